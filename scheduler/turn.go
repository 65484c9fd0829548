package scheduler

// What a step has come to so far: the effects that it will return, and what all parts of a Core share.

import (
	"container/heap"
	"math/rand/v2"
	"time"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/lease"
)

// turn is the part of a Core that all others share.
type turn struct {
	cfg      Config
	rng      *rand.Rand
	now      time.Time
	fx       Effects
	steps    uint64 // taken
	timers   timerHeap
	timerSeq uint64

	// Ownership (R10): nothing is done before lead.
	lead     bool
	epoch    job.Epoch
	leadAt   time.Time
	outgoing int // records proposed and not yet applied
}

// at arms a timer. One whose end nearly always comes before its time is stopped
// then; for others do finds out whether it is still wanted.
func (tn *turn) at(when time.Time, do func()) *timer {
	tn.timerSeq++
	t := &timer{when: when, seq: tn.timerSeq, do: do}
	heap.Push(&tn.timers, t)
	return t
}

func (t *turn) after(d time.Duration, do func()) *timer { return t.at(t.now.Add(d), do) }

// stop disarms a timer, if there is one that has not fired.
func (tn *turn) stop(t *timer) {
	if t != nil && t.at >= 0 {
		heap.Remove(&tn.timers, t.at)
	}
}

func (tn *turn) runTimers() {
	for len(tn.timers) > 0 && !tn.timers[0].when.After(tn.now) {
		t, _ := heap.Pop(&tn.timers).(*timer)
		t.do()
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
