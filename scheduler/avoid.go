package scheduler

// Avoidance: hosts that a task is not offered to for a while, with a growing pause.

import (
	"slices"
	"time"

	"github.com/musterhq/muster/job"
)

// avoidance is a host that a task avoids for a while: if hard, in any case, else only while there is another host.
type avoidance struct {
	peer  job.Peer
	until time.Time
	hard  bool
	// kept says that what is free there is kept for tasks of other schedulers. The task may queue behind them.
	kept bool
}

const (
	avoidFor = 30 * time.Second // the host on which a task has just failed
	keptFor  = 30 * time.Second // a host that keeps what is free for others
	// maxAvoid bounds the hosts that one task avoids. A task that avoids so many is offered to none before the first
	// pause is over.
	maxAvoid   = 64
	retryFirst = time.Second
	retryMost  = time.Minute
	// lossFirst and lossMost bound the pause of a task that has lost its host.
	lossFirst = 5 * time.Second
	lossMost  = 90 * time.Second
)

// backoff doubles from retryFirst with each time, up to retryMost.
func backoff(times int) time.Duration { return doubled(retryFirst, times, retryMost) }

// doubled is first, then twice as much with each further time, up to most.
func doubled(first time.Duration, times int, most time.Duration) time.Duration {
	return min(first<<min(max(times-1, 0), 10), most)
}

// avoid has the task avoid the host. It replaces what the task held against the host before.
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

// avoided is why the task avoids the host now, if it does.
func (c *Core) avoided(t *task, p job.Peer) (avoidance, bool) {
	for _, a := range t.avoid {
		if a.peer == p && a.until.After(c.now) {
			return a, true
		}
	}
	return avoidance{}, false
}

// askAgain has the waiting tasks compared with the host again at that time.
func (c *Core) askAgain(w *worker, when time.Time) {
	if w.askAt.After(c.now) && !when.Before(w.askAt) {
		return // an earlier time is set; whatever must wait longer sets its own then
	}
	w.askAt = when
	c.at(when, func() {
		if w.askAt.Equal(when) {
			w.askAt = time.Time{}
			w.Touch()
			c.offerToFreed(w)
			if until := w.PausedUntil(); until.After(c.now) { // the host has declined more since
				c.askAgain(w, until)
			}
		}
	})
}

// missesMost is how often in a row a host may decline for lack of what it had told to be free: other schedulers may
// have been faster. After that it gets a pause.
const missesMost = 16

// missed notes that a host declined for lack of what it had told to be free, or that it did not let an offer queue.
// The host then gets a growing pause: at once if it lets nothing queue, else after missesMost times.
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

// avoidsAll says whether the task avoids as many hosts as it may, and until when.
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

// soonest is when to try again to place a task that avoids hosts: when its first pause is over, or sooner if a host
// that it does not avoid may get room before. It is zero for a task that avoids no host.
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
