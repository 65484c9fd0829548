package scheduler

// What a step has come to so far: the effects that it will return, and what all parts of a Core share.

import (
	"math/rand/v2"
	"time"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/lease"
	"github.com/musterhq/muster/timers"
)

// turn is the part of a Core that all others share.
type turn struct {
	cfg    Config
	rng    *rand.Rand
	now    time.Time
	fx     Effects
	steps  uint64 // taken
	timers *timers.Heap[time.Time, func()]

	// Ownership (R10): nothing is done before lead.
	lead     bool
	epoch    job.Epoch
	leadAt   time.Time
	outgoing int // records proposed and not yet applied
}

// timer is something to do at a moment, unless it is stopped before.
type timer = timers.Timer[time.Time, func()]

// at arms a timer. One whose end nearly always comes before its time is stopped then. For others do finds out whether it
// is still wanted.
func (tn *turn) at(when time.Time, do func()) *timer {
	t := &timer{Value: do}
	tn.timers.Set(t, when)
	return t
}

func (tn *turn) after(d time.Duration, do func()) *timer { return tn.at(tn.now.Add(d), do) }

// stop disarms a timer, if there is one that has not fired.
func (tn *turn) stop(t *timer) { tn.timers.Stop(t) }

func (tn *turn) runTimers() {
	for do, due := tn.timers.Take(tn.now); due; do, due = tn.timers.Take(tn.now) {
		do()
	}
}

func (t *turn) send(to job.Peer, m lease.ToWorker) {
	t.fx.Send = append(t.fx.Send, Outgoing{To: to, Msg: m})
}

func (t *turn) propose(r job.Record) {
	t.outgoing++
	t.fx.Propose = append(t.fx.Propose, r)
}

func (tn *turn) notify(t Notice) { tn.fx.Notices = append(tn.fx.Notices, t) }

// jitter is d, give or take a quarter.
func (t *turn) jitter(d time.Duration) time.Duration {
	return d*3/4 + time.Duration(t.rng.Int64N(int64(d)/2+1))
}

func (t *turn) owns() lease.Owns {
	return lease.Owns{Groups: []lease.GroupEpoch{{Group: t.cfg.Group, Epoch: t.epoch}}}
}
