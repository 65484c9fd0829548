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

// After arms a timer that calls do after this time; see At.
func (tn *Turn) After(d time.Duration, do func()) *Timer { return tn.At(tn.Now.Add(d), do) }

// Stop disarms a timer. The timer may be nil or may have fired.
func (tn *Turn) Stop(t *Timer) { tn.Timers.Stop(t) }

// RunTimers fires the timers that are due.
func (tn *Turn) RunTimers() {
	for do, due := tn.Timers.Take(tn.Now); due; do, due = tn.Timers.Take(tn.Now) {
		do()
	}
}

// Send adds a message to a host to the effects.
func (tn *Turn) Send(to job.Peer, m contract.ToWorker) {
	tn.Effects.Send = append(tn.Effects.Send, Outgoing{To: to, Msg: m})
}

// Propose adds a record for the journal to the effects.
func (tn *Turn) Propose(r job.Record) {
	tn.Outgoing++
	tn.Effects.Propose = append(tn.Effects.Propose, r)
}

// Notify adds a line for the log to the effects.
func (tn *Turn) Notify(n Notice) { tn.Effects.Notices = append(tn.Effects.Notices, n) }

// Jitter returns d, plus or minus up to a quarter of it.
func (tn *Turn) Jitter(d time.Duration) time.Duration {
	return d*3/4 + time.Duration(tn.Rand.Int64N(int64(d)/2+1))
}

// Owns returns what a Hello tells hosts of this ownership.
func (tn *Turn) Owns() contract.Owns {
	return contract.Owns{Groups: []contract.GroupEpoch{{Group: tn.Config.Group, Epoch: tn.Epoch, Founding: tn.Config.Founding}}}
}
