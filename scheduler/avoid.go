package scheduler

// Hosts that a task leaves alone for a while, with a pause that grows.

import (
	"slices"
	"time"

	"github.com/musterhq/muster/job"
)

// avoidance is a host that a task leaves alone for a while: wholly if hard, else
// only while there is another.
type avoidance struct {
	peer  job.Peer
	until time.Time
	hard  bool
	// kept says that what is free there is kept for tasks of other schedulers: this
	// one may queue behind them.
	kept bool
}

const (
	avoidFor = 30 * time.Second // the host on which a task has just failed
	keptFor  = 30 * time.Second // one whose room is kept for others
	// maxAvoid bounds the hosts that one task leaves alone. A task that so many
	// have refused asks no further one before the first of them may be asked again.
	maxAvoid   = 64
	retryFirst = time.Second
	retryMost  = time.Minute
	// lossFirst and lossMost bound the pause of a task whose host was lost.
	lossFirst = 5 * time.Second
	lossMost  = 90 * time.Second
)

// backoff doubles from retryFirst with each time, up to retryMost.
func backoff(times int) time.Duration { return doubled(retryFirst, times, retryMost) }

// doubled is first, then twice as much with each further time, up to most.
func doubled(first time.Duration, times int, most time.Duration) time.Duration {
	return min(first<<min(max(times-1, 0), 10), most)
}

// avoid leaves the host alone for the task; the newest word on a host counts.
func (c *Core) avoid(t *task, a avoidance) {
	if a.peer == "" {
		return
	}
	t.avoid = slices.DeleteFunc(t.avoid, func(b avoidance) bool { return b.peer == a.peer || !b.until.After(c.now) })
	if len(t.avoid) >= maxAvoid {
		t.avoid = t.avoid[1:]
	}
	t.avoid = append(t.avoid, a)
}

// avoided is what the task holds against the host just now.
func (c *Core) avoided(t *task, p job.Peer) (avoidance, bool) {
	for _, a := range t.avoid {
		if a.peer == p && a.until.After(c.now) {
			return a, true
		}
	}
	return avoidance{}, false
}

// askAgain has the waiting tasks compared with the host again then.
func (c *Core) askAgain(w *worker, when time.Time) {
	if w.askAt.After(c.now) && !when.Before(w.askAt) {
		return // they are before, and it is seen then that this one must wait on
	}
	w.askAt = when
	c.at(when, func() {
		if w.askAt.Equal(when) {
			w.askAt = time.Time{}
			w.Touch()
			c.offerToFreed(w)
			if until := w.PausedUntil(); until.After(c.now) { // it has refused more since
				c.askAgain(w, until)
			}
		}
	})
}

// missesMost is how often in a row a host may decline for lack of the room that it
// had told: others may have been before. Beyond, tasks queue there.
const missesMost = 16

// missed notes that a host had no room where it had told some, or that it does
// not let an offer queue: then it takes nothing just now, and says why to people.
func (c *Core) missed(w *worker, o *offer) {
	times := w.Missed(&o.claim)
	if !o.queued() {
		times -= missesMost
	}
	if times <= 0 {
		return
	}
	until := c.now.Add(backoff(times))
	w.Pause(until)
	c.askAgain(w, until)
}

// avoidsAll says whether the task has been refused by as many hosts as it
// remembers, and when it may ask the next one.
func (c *Core) avoidsAll(t *task) (until time.Time, all bool) {
	if len(t.avoid) < maxAvoid {
		return time.Time{}, false
	}
	for _, a := range t.avoid {
		if !a.until.After(c.now) {
			return time.Time{}, false
		}
		if until.IsZero() || a.until.Before(until) {
			until = a.until
		}
	}
	return until, true
}

// soonest is when a task that hosts have refused may try again: when the first
// of them may be asked, or soon if others may get room before. It is zero for a
// task that no host has refused.
func (c *Core) soonest(t *task) time.Time {
	var until time.Time
	for _, a := range t.avoid {
		w := c.workers[a.peer]
		if !a.hard || !a.until.After(c.now) || w == nil || !w.Open() || !c.fleet.Could(&t.group.Shape, w.Host) {
			continue
		}
		if until.IsZero() || a.until.Before(until) {
			until = a.until
		}
	}
	if until.IsZero() {
		return until
	}
	if soon := c.now.Add(retryWait); until.After(soon) && c.askable(t) {
		return soon
	}
	return until
}

// askable says whether there is an open host that the task does not avoid.
func (c *Core) askable(t *task) bool {
	for h := range c.fleet.Candidates(&t.group.Shape) {
		if a, against := c.avoided(t, h.Peer); h.Open() && (!against || !a.hard) {
			return true
		}
	}
	return false
}
