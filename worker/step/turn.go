// Package step has what all parts of a worker share in a step of its core: the timers, the effects so far, and what is left
// to do before the step ends.
package step

// The state of a turn: the effects so far, and what is left to do before the turn ends.

import (
	"log/slog"
	"time"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker/driver"
	"github.com/musterhq/muster/worker/leaseclock"
)

// maxLines bounds the log lines of one turn. An event causes at most one line, but a restart loads a whole ledger.
// The last line says how many were left out.
const maxLines = 4096

// Turn is what all parts of a Core share: the timers, the effects, and what is left to do.
type Turn struct {
	Timers  Timers
	now     leaseclock.BootTime // of this turn
	out     Effects             // effects that need not wait for the disk
	dropped int                 // number of log lines above maxLines

	arbitrate bool // offers or what is free have changed since the last arbitration
	announce  bool // what is free, or why nothing is, has changed since the last Availability
}

// New returns the state before the first turn.
func New() *Turn { return &Turn{Timers: newTimers()} }

// Begin begins a turn, or a part of it, at a time.
func (t *Turn) Begin(now leaseclock.BootTime) { t.now = now }

// Now returns the time of this turn.
func (t *Turn) Now() leaseclock.BootTime { return t.now }

// Log adds a line to the log.
func (t *Turn) Log(level slog.Level, msg string, attrs ...slog.Attr) {
	if len(t.out.Log) >= maxLines {
		t.dropped++
		return
	}
	t.out.Log = append(t.out.Log, Line{level, msg, attrs})
}

// Send sends a message to a scheduler.
func (t *Turn) Send(to job.Peer, msg contract.ToScheduler) {
	t.out.Send = append(t.out.Send, Outgoing{To: to, Msg: msg})
}

// Start asks the driver to start a task.
func (t *Turn) Start(task driver.Task) { t.out.Start = append(t.out.Start, task) }

// Stop asks the driver to end an attempt.
func (t *Turn) Stop(a job.Attempt, grace time.Duration, reason string) {
	t.out.Stop = append(t.out.Stop, Stop{Attempt: a, Grace: grace, Reason: reason})
}

// Signal asks the driver to signal attempts.
func (t *Turn) Signal(all ...SignalTo) { t.out.Signal = append(t.out.Signal, all...) }

// Extend asks the driver to move the deadline of an attempt.
func (t *Turn) Extend(a job.Attempt, until leaseclock.BootTime) {
	if t.out.Extend == nil {
		t.out.Extend = map[job.Attempt]leaseclock.BootTime{}
	}
	t.out.Extend[a] = until
}

// Forget asks the driver to delete what it keeps of an attempt.
func (t *Turn) Forget(a job.Attempt) { t.out.Forget = append(t.out.Forget, a) }

// Admit asks the host's policy about an attempt.
func (t *Turn) Admit(a Admission) { t.out.Admit = append(t.out.Admit, a) }

// SearchPort searches for a port.
func (t *Turn) SearchPort(s PortSearch) { t.out.Ports = append(t.out.Ports, s) }

// LookUp looks up a user's account.
func (t *Turn) LookUp(u UserLookup) { t.out.LookUp = append(t.out.LookUp, u) }

// Poll requests a status of the devices soon.
func (t *Turn) Poll() { t.out.Poll = true }

// Drained says that from now on no task needs the GPUs of this host, or that some may again.
func (t *Turn) Drained(is bool) { t.out.Drained = &is }

// Arbitrate says that offers or what is free have changed: an arbitration follows.
func (t *Turn) Arbitrate() { t.arbitrate = true }

// Arbitrates reports whether an arbitration is to follow.
func (t *Turn) Arbitrates() bool { return t.arbitrate }

// Arbitrated says that the arbitration was done.
func (t *Turn) Arbitrated() { t.arbitrate = false }

// Announce says that what is free, or why nothing is, has changed: an Availability follows.
func (t *Turn) Announce() { t.announce = true }

// Announces reports whether an Availability is to follow.
func (t *Turn) Announces() bool { return t.announce }

// Announced says that the Availability was sent.
func (t *Turn) Announced() { t.announce = false }

// Reopen is called when the host begins or ceases to accept tasks. An arbitration and an Availability follow.
func (t *Turn) Reopen() {
	t.Arbitrate()
	t.Announce()
}

// End returns the effects and clears them for the next turn.
func (t *Turn) End() Effects {
	if t.dropped > 0 {
		t.out.Log = append(t.out.Log, Line{slog.LevelWarn, "log lines left out", []slog.Attr{slog.Int("lines", t.dropped)}})
		t.dropped = 0
	}
	out := t.out
	t.out = Effects{}
	return out
}
