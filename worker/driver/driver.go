// Package driver has the interface between the core of a worker and what runs tasks: package supervisor implements it with
// runners, and package files wraps that for jobs with files.
package driver

// The interface of the drivers that run tasks.

import (
	"context"
	"time"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker/leaseclock"
)

// Driver starts and ends tasks. No method waits for a task. What happens to a task is reported as Events, which
// must be delivered by another goroutine than the caller's.
//
// Leases are passed as deadlines on the lease clock (BootTime) and not as remaining time. So a message that was delayed
// while this process stood still cannot make a lease longer (R3). The driver ends a task at its deadline on its own,
// even if the daemon is dead: it sends TERM at FenceLead before the deadline, and KILL at the deadline.
type Driver interface {
	// Start starts a task. After an error the task was not started and will not be. Otherwise Started or
	// Failed follows. A task whose deadline has passed is not started.
	Start(t Task) error
	// Stop ends all processes of an attempt: TERM, and KILL after grace. It may be called again; the shorter grace
	// counts.
	Stop(a job.Attempt, grace time.Duration, reason string) error
	// Signal sends a signal to all processes of an attempt.
	Signal(a job.Attempt, number int) error
	// Extend moves deadlines later. A deadline at which the driver has begun to end the task does not move, and no deadline
	// ever moves earlier.
	Extend(deadlines map[job.Attempt]leaseclock.BootTime) error
	// Forget deletes what the driver keeps of an attempt that ended, except its output.
	Forget(a job.Attempt) error
}

// Adopter finds the tasks of an earlier run of the daemon.
type Adopter interface {
	// Adopt reports every attempt that runs (Started), that is being started (Starting), or whose end is on
	// disk and was not forgotten (Exited, Failed). Attempts that were forgotten lately may be among them.
	// Any other attempt has no process.
	Adopt(ctx context.Context) ([]Event, error)
	// NeverBegun reports whether nothing was ever done to start an attempt that Adopt has not reported. It must be called
	// after Adopt, and on an attempt of this boot.
	NeverBegun(a job.Attempt) bool
}

// FenceLead is how long before its deadline a task gets TERM.
const FenceLead = 10 * time.Second

// Task is one attempt, as a driver runs it.
type Task struct {
	Attempt job.Attempt
	Spec    job.Spec // its Resources are what was reserved
	Number  int      // the number of the task that people see
	Index   int      // in the array; without an array the same as Number
	User    string   // name of the user who submitted it
	Devices []string // GPU UUIDs
	// Env is the environment, sorted. The driver adds MUSTER_SCRATCH, MUSTER_HOSTFILE and the variables by which a program
	// finds its GPUs. If it runs the task as another user, it also sets HOME and USER.
	Env      []string
	Hostfile string // content of the file that MUSTER_HOSTFILE names
	// Files, if set, is a directory with the uploaded files, owned by the task's user and on the same file system as the
	// scratch directories. The driver moves it to the place of the task's scratch directory.
	Files string
	// Deadline is when the task ends unless Extend moves it. It has no meaning with Hold.
	Deadline  leaseclock.BootTime
	Hold      bool          // the task has no lease, and survives any loss of contact
	TimeLimit time.Duration // from the start of its process; 0: none
	Grace     time.Duration // between TERM and KILL at the time limit
	Warning   job.Warning   // before the time limit
}

// Kind is the kind of a Event.
type Kind string

// The kinds of driver events.
const (
	// Starting says that the attempt is being started: either Adopt found it so, or Detail says what it waits for.
	// Another event follows.
	Starting Kind = "starting"
	// Started says that the process of the attempt exists.
	Started Kind = "started"
	// Exited says that the attempt has ended and has no process left.
	Exited Kind = "exited"
	// Failed says that the attempt could not be started. Exit has Started false, and code 127 or 126, or 125 if the
	// host is the cause.
	Failed Kind = "failed"
	// Lost says that the attempt has no process left, and that its exit is not known.
	Lost Kind = "lost"
)

// Event is what happened to an attempt.
type Event struct {
	Attempt job.Attempt
	Kind    Kind
	PID     int // with Started
	// Isolation says how its processes are isolated, for people; with Started.
	Isolation string
	Began     time.Time // with Started: when it began on the host's wall clock, for people; zero: not known
	Detail    string    // with Starting: what it waits for, for people
	Exit      job.Exit  // with Exited and Failed; with Lost only Reason may be set
}

// WorkerEvent makes an Event one of the events that a worker handles.
func (Event) WorkerEvent() {}
