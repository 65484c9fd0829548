package step

import (
	"math/rand/v2"
	"time"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/internal/timers"
	"github.com/musterhq/muster/internal/waittime"
	"github.com/musterhq/muster/job"
)

// Turn is what all parts of a Core share.
type Turn struct {
	Config  Config
	Rand    *rand.Rand
	Now     time.Time
	Effects Effects
	Steps   uint64 // how many steps were taken
	Timers  *timers.Heap[time.Time, func()]
	Totals  *Totals
	Waited  waittime.Hour // of jobs, until their first task was sent to a host

	// The core acts only while it leads (R10).
	Lead     bool
	Epoch    job.Epoch // of the newest ownership
	LeadAt   time.Time // when that began
	Outgoing int       // how many records are proposed and not yet applied
	Raises   raises
}

// raises says when the next epoch may be taken because a host knows a higher one.
type raises struct {
	Next  time.Time
	Pause time.Duration // after the last one
}

// Timer is something to do at a time, unless it is stopped before.
type Timer = timers.Timer[time.Time, func()]

// At arms a timer that calls do at that time. A timer that is seldom needed in the end should be stopped. For all
// others, do finds out itself whether it is still needed.
func (tn *Turn) At(when time.Time, do func()) *Timer {
	t := &Timer{Value: do}
	tn.Timers.Set(t, when)
	return t
}

func (tn *Turn) After(d time.Duration, do func()) *Timer { return tn.At(tn.Now.Add(d), do) }

// Stop disarms a timer. The timer may be nil or may have fired.
func (tn *Turn) Stop(t *Timer) { tn.Timers.Stop(t) }

func (tn *Turn) RunTimers() {
	for do, due := tn.Timers.Take(tn.Now); due; do, due = tn.Timers.Take(tn.Now) {
		do()
	}
}

func (t *Turn) Send(to job.Peer, m contract.ToWorker) {
	t.Effects.Send = append(t.Effects.Send, Outgoing{To: to, Msg: m})
}

func (t *Turn) Propose(r job.Record) {
	t.Outgoing++
	t.Effects.Propose = append(t.Effects.Propose, r)
}

func (tn *Turn) Notify(t Notice) { tn.Effects.Notices = append(tn.Effects.Notices, t) }

// Jitter returns d, plus or minus up to a quarter of it.
func (t *Turn) Jitter(d time.Duration) time.Duration {
	return d*3/4 + time.Duration(t.Rand.Int64N(int64(d)/2+1))
}

func (t *Turn) Owns() contract.Owns {
	return contract.Owns{Groups: []contract.GroupEpoch{{Group: t.Config.Group, Epoch: t.Epoch, Founding: t.Config.Founding}}}
}
