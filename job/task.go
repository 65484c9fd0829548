package job

// A task, the job it belongs to, and how far each has come.

import (
	"fmt"
	"time"
)

// Exit is how a process ended. At most one of Code and Signal tells: a signal
// leaves Code at 128 plus its number, as a shell would.
type Exit struct {
	State  State  `json:"state"`            // the end that it means: SUCCEEDED, FAILED, TIMEOUT, …
	Code   int    `json:"code"`             // what the process returned; 127 and 126 if it could not be executed
	Signal int    `json:"signal,omitempty"` // the signal that ended it, or 0
	Reason string `json:"reason,omitempty"` // one line for people, empty for a plain exit
	// Started is false where no process of the attempt ever ran.
	Started bool `json:"started"`
	// Began and Ended are the worker's wall clock: for display, never compared
	// with another host's.
	Began time.Time `json:"began"`
	Ended time.Time `json:"ended"`
	// Tail is the end of the standard error, at most TailBytes.
	Tail string `json:"tail,omitempty"`
	// Isolation says for people what held its processes; see Task.
	Isolation string `json:"isolation,omitempty"`
}

// TailBytes bounds the part of the standard error that travels with a result.
const TailBytes = 4 << 10

// Task is one run-to-completion piece of a job. A value: moving it returns
// another.
type Task struct {
	Index   int
	State   State
	Reason  Reason
	Attempt int // number of the newest attempt; 0 if none
	// The newest attempt's place, empty before the first.
	Node     Peer
	NodeName string
	Store    string // store id of the worker that was given the attempt
	Epoch    Epoch  // under which the attempt was assigned
	Devices  []string
	PID      int
	// Isolation says for people what holds the newest attempt's processes, such
	// as "cgroup v2 (cpu, memory, pids, devices)" or "process group".
	Isolation string
	// Assigned says that the attempt may be running: its Assign is committed
	// and no Result or Unassign is.
	Assigned bool
	Runs     int // attempts that really started, for retries
	Started  time.Time
	Ended    time.Time
	Exit     *Exit // of the newest attempt that ended
	// Lost are the hosts that were lost while they ran the task, the newest
	// last, since a person last released it; at most MaxLost.
	Lost []Peer
	// Closed is when the owner recorded the end, by its own clock.
	Closed time.Time
}

// MaxLost bounds the lost hosts that a task remembers.
const MaxLost = 16

// Move returns the task in its new state, or ErrBadMove.
func (t Task) Move(to State) (Task, error) {
	if !t.State.CanMove(to) {
		return t, fmt.Errorf("task %d: %s to %s: %w", t.Index, t.State, to, ErrBadMove)
	}
	t.State = to
	return t, nil
}

// Job is what was asked for, by whom, and what has become of it.
type Job struct {
	ID        ID
	User      string
	Spec      Spec
	Owner     Peer // the daemon that answers for it
	Submitted time.Time
	Key       string // idempotency key, or empty
	Cancelled string // reason given with cancel, or empty
	// Seq orders the jobs of a group as its journal took them, whatever the wall
	// clock said; 0 in rows of older versions.
	Seq    uint64
	Counts Counts // of all tasks
	Tasks  []Task // a page of them: all, unless there are many
}

// State is the job's own state, as Counts.State says.
func (j Job) State() State {
	counts := j.Counts
	if counts == (Counts{}) {
		counts = CountsOf(j.Tasks)
	}
	return counts.State()
}

// Epoch orders the owners that a journal group has had: generation first, then
// the Raft term.
type Epoch struct {
	Generation uint64 `json:"generation"`
	Term       uint64 `json:"term"`
}

// Less says whether e is of an older owner than f.
func (e Epoch) Less(f Epoch) bool {
	if e.Generation != f.Generation {
		return e.Generation < f.Generation
	}
	return e.Term < f.Term
}

// String is "generation.term".
func (e Epoch) String() string { return fmt.Sprintf("%d.%d", e.Generation, e.Term) }
