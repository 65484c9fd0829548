package scheduler

// What all parts of a Core share: the time, the timers, the effects of this step, and whether this daemon is the owner.

import (
	"math/rand/v2"
	"time"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/internal/timers"
	"github.com/musterhq/muster/internal/waittime"
	"github.com/musterhq/muster/job"
)

// turn is what all parts of a Core share.
type turn struct {
	cfg    Config
	rng    *rand.Rand
	now    time.Time
	fx     Effects
	steps  uint64 // how many steps were taken
	timers *timers.Heap[time.Time, func()]
	totals *Totals
	waited waittime.Hour // of jobs, until their first task was sent to a host

	// The core acts only while it leads (R10).
	lead     bool
	epoch    job.Epoch // of the newest ownership
	leadAt   time.Time // when that began
	outgoing int       // how many records are proposed and not yet applied
	raises   raises
}

// raises says when the next epoch may be taken because a host knows a higher one.
type raises struct {
	next  time.Time
	pause time.Duration // after the last one
}

// timer is something to do at a time, unless it is stopped before.
type timer = timers.Timer[time.Time, func()]

// at arms a timer that calls do at that time. A timer that is seldom needed in the end should be stopped. For all
// others, do finds out itself whether it is still needed.
func (tn *turn) at(when time.Time, do func()) *timer {
	t := &timer{Value: do}
	tn.timers.Set(t, when)
	return t
}

func (tn *turn) after(d time.Duration, do func()) *timer { return tn.at(tn.now.Add(d), do) }

// stop disarms a timer. The timer may be nil or may have fired.
func (tn *turn) stop(t *timer) { tn.timers.Stop(t) }

func (tn *turn) runTimers() {
	for do, due := tn.timers.Take(tn.now); due; do, due = tn.timers.Take(tn.now) {
		do()
	}
}

func (t *turn) send(to job.Peer, m contract.ToWorker) {
	t.fx.Send = append(t.fx.Send, Outgoing{To: to, Msg: m})
}

func (t *turn) propose(r job.Record) {
	t.outgoing++
	t.fx.Propose = append(t.fx.Propose, r)
}

func (tn *turn) notify(t Notice) { tn.fx.Notices = append(tn.fx.Notices, t) }

// jitter returns d, plus or minus up to a quarter of it.
func (t *turn) jitter(d time.Duration) time.Duration {
	return d*3/4 + time.Duration(t.rng.Int64N(int64(d)/2+1))
}

func (t *turn) owns() contract.Owns {
	return contract.Owns{Groups: []contract.GroupEpoch{{Group: t.cfg.Group, Epoch: t.epoch, Founding: t.cfg.Founding}}}
}
