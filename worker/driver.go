package worker

// Drivers run tasks: what the worker requests of them, and what they report.

import (
	"context"
	"time"

	"github.com/musterhq/muster/job"
)

// Driver starts and ends tasks. No method waits for a task: what becomes of it
// arrives as DriverEvents, which must be delivered by another goroutine than
// the one that called.
//
// Leases travel as deadlines of the lease clock (BootTime) and not as time left,
// so that a message that lay somewhere while this process was stopped cannot
// lengthen one (R3). The driver ends a task at its deadline by itself, TERM FenceLead
// before and KILL at it, whether or not the daemon lives.
type Driver interface {
	// Start begins a task. An error says that it was not and will not be begun;
	// otherwise DriverStarted or DriverFailed follows. A task whose deadline has
	// passed is not begun.
	Start(t Task) error
	// Stop ends all processes of an attempt: TERM, and KILL after grace. Asking
	// again is harmless; the shorter grace counts.
	Stop(a job.Attempt, grace time.Duration, reason string) error
	// Signal sends a signal to all processes of an attempt.
	Signal(a job.Attempt, number int) error
	// Extend moves deadlines. One that has passed stays so, and none is ever
	// moved back.
	Extend(deadlines map[job.Attempt]BootTime) error
	// Forget drops what is kept of an attempt that ended, except its output.
	Forget(a job.Attempt) error
}

// Adopter finds what an earlier life of the daemon left running.
type Adopter interface {
	// Adopt reports every attempt that still runs (DriverStarted), is
	// about to (DriverStarting), or whose end is on disk and was not forgotten
	// (DriverExited, DriverFailed); one that was forgotten lately may be
	// among them. What it does not name has no process any more.
	Adopt(ctx context.Context) ([]DriverEvent, error)
}

// FenceLead is how long before its deadline a task gets TERM.
const FenceLead = 10 * time.Second

// Task is one attempt as a driver has to run it.
type Task struct {
	Attempt job.Attempt
	Spec    job.Spec // Resources are what was reserved for it
	User    string   // who submitted it, by name
	Devices []string // GPU UUIDs
	// Simulated says that there is no hardware behind Devices.
	Simulated bool
	// Env is the whole environment, sorted, but for what only the driver knows:
	// it adds MUSTER_SCRATCH and MUSTER_HOSTFILE, and sets HOME and USER anew
	// when it runs the task as another user.
	Env      []string
	Hostfile string // what the file that MUSTER_HOSTFILE names holds
	// Files, if set, is a directory on the file system of the tasks with what the
	// job brings, owned by the task's user: the driver moves it to where the
	// task's scratch directory is to be.
	Files string
	// Deadline ends the task unless Extend moves it; not looked at with Hold.
	Deadline  BootTime
	Hold      bool          // the task outlives any loss of contact
	TimeLimit time.Duration // from the start of its process; 0: none
	Grace     time.Duration // between TERM and KILL at the time limit
	Warning   job.Warning   // before the time limit
}

// DriverKind says what a DriverEvent tells.
type DriverKind string

// The kinds of driver events.
const (
	// DriverStarting says that it has neither begun nor failed to: from Adopt, or
	// with a Detail of what it waits for. Another event follows.
	DriverStarting DriverKind = "starting"
	DriverStarted  DriverKind = "started" // its process exists
	DriverExited   DriverKind = "exited"  // it ended, and no process of it is left
	DriverFailed   DriverKind = "failed"  // no process of it ever ran: Exit has code 127 or 126, or 125 where the host is to blame, and Started false
	DriverLost     DriverKind = "lost"    // no process of it is left, and how it ended is not known
)

// DriverEvent is what happened to an attempt.
type DriverEvent struct {
	Attempt job.Attempt
	Kind    DriverKind
	PID     int // with DriverStarted
	// Isolation says for people what holds its processes, with DriverStarted.
	Isolation string
	Began     time.Time // with DriverStarted: the host's wall clock, for people; zero if it is not known
	Detail    string    // with DriverStarting: what it waits for, for people
	Exit      job.Exit  // with DriverExited and DriverFailed; with DriverLost its Reason may tell more
}
