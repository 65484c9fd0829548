package job

// Jobs, their tasks, and the results of attempts.

import (
	"fmt"
	"time"
)

// Exit is how a process ended. If a signal ended it, Code is 128 plus the signal's number, as in a shell.
type Exit struct {
	State  State  `json:"state"`            // the final state that follows: SUCCEEDED, FAILED, TIMEOUT, …
	Code   int    `json:"code"`             // exit code; 127 or 126 if the program could not be executed
	Signal int    `json:"signal,omitempty"` // the signal that ended it, or 0
	Reason string `json:"reason,omitempty"` // one line for people; empty for a plain exit
	// Started is false if no process of the attempt ever ran.
	Started bool `json:"started"`
	// Began and Ended are the worker's wall clock. They are for display and are never compared with the clock of
	// another host.
	Began time.Time `json:"began"`
	Ended time.Time `json:"ended"`
	// Tail is the end of the standard error, at most TailBytes.
	Tail string `json:"tail,omitempty"`
	// Isolation says for people what confined the processes; see Task.
	Isolation string `json:"isolation,omitempty"`
	// Usage is the encoded usage.Report about the attempt, at most UsageBytes; empty if unknown.
	Usage string `json:"-"`
}

// FailedStart reports whether no process of the attempt ever ran, and the host was the cause.
func (x Exit) FailedStart() bool {
	return x.State == NodeFail && !x.Started && (x.Code == ExitMuster || x.Code == ExitNotExecutable)
}

// UsageBytes bounds the report about what an attempt used that travels with its result. It is usage.MaxBytes.
const UsageBytes = 4 << 10

// TailBytes bounds the end of the standard error that travels with a result.
const TailBytes = 4 << 10

// Task is one part of a job that runs to its end. It is a value: Move returns another one.
type Task struct {
	Index   int
	State   State
	Reason  Reason
	Attempt int // number of the newest attempt; 0 if none
	// Node, NodeName and Store tell where the newest attempt is; they are empty before the first.
	Node     Peer
	NodeName string
	Store    string // ID of the store of the worker to which the attempt was assigned
	// Fencing is what that host said of itself when the attempt was assigned to it.
	Fencing Fencing
	Epoch   Epoch // the epoch in which the attempt was assigned
	Devices []string
	PID     int
	// Isolation says for people what confines the processes of the newest attempt, such as "cgroup v2 (cpu, memory,
	// pids, devices)" or "process group".
	Isolation string
	// Assigned is true if the attempt may be running: its Assign is committed, and no Result or Unassign is.
	Assigned bool
	// Runs counts the attempts in which a process ran, since a person last requeued the task; it bounds retries. Attempts
	// that ended with the checkpoint exit code do not count.
	Runs int
	// Settled is the number of the attempt that was the newest when a person last requeued the task. No result of it or
	// of an earlier one counts any more.
	Settled int
	// Placed is when the newest attempt was assigned, by the owner's clock; zero if that is not known.
	Placed  time.Time
	Started time.Time
	Ended   time.Time
	Exit    *Exit    // of the newest attempt, once it has ended
	Earlier *Earlier // attempts before the newest; nil if there are none, and in most views
	// Lost lists the hosts that were lost while they ran the task, newest last, since a person last released it. At
	// most MaxLost.
	Lost []Peer
	// Closed is when the owner recorded the end, by its own clock.
	Closed time.Time
	// Ending is what becomes of the task when the attempt ends, if the attempt was told to end; Reason says why. A
	// member of a gang that has ended keeps this value until all members have ended.
	Ending Ending
}

// Ending is what becomes of a task whose attempt was told to end.
type Ending uint8

// The endings.
const (
	NotEnding     Ending = iota
	EndsCancelled        // it ends as CANCELLED
	EndsRequeued         // it runs again
	EndsGang             // another member of its gang has ended badly, and decides what becomes of all
)

// Status returns the exit code that people get for the end of the task: the code of its process; 128+N if signal N
// ended it; 124 for the time limit; 125 if no process ran to its own end. It is 0 before the end.
func (t *Task) Status() int {
	switch {
	case !t.State.Ended(), t.State == Succeeded:
		return 0
	case t.State == Timeout:
		return ExitTimeLimit
	case t.Exit != nil && t.Exit.Signal > 0:
		return ExitSignal + t.Exit.Signal
	case t.Exit != nil && t.Exit.Code != 0:
		return t.Exit.Code
	}
	return ExitMuster
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

// Job is one job: its spec, its user and its state.
type Job struct {
	ID        ID
	User      string
	Spec      Spec
	Owner     Peer // the daemon that owns the job
	Submitted time.Time
	Key       string // idempotency key, or empty
	Cancelled string // the reason given with cancel, or empty
	Lean      bool   // Spec is without its bulk; see Spec.Lean
	// Seq orders the jobs of a group as its journal accepted them, or their last requeue after the end, independent of
	// wall clocks. It is 0 in rows of older versions.
	Seq    uint64
	Counts Counts    // of all tasks
	Ends   Ends      // of all tasks
	Starts time.Time // when the first waiting task should start at the latest; zero if that is not known
	Reason Reason    // why the job as a whole waits, or how it ended; that of the first task in the job's state
	// Depends has the state of each dependency, in the order of the job file.
	Depends []Depends
	// Acts are what people have asked for since the submission, the oldest first. OlderActs counts the acts that were
	// forgotten.
	Acts      []Act
	OlderActs int
	Tasks     []Task // all tasks, one page of them if there are many, or none
}

// Ends sums up how the tasks of a job have ended.
type Ends struct {
	Exited bool // a process of an ended task has ended
	Code   int  // the highest exit code of these processes
	Status int  // the highest Status of the tasks
	// When the first process began and the last one ended, by the clocks of their hosts; zero if unknown.
	Began time.Time
	Last  time.Time
}

// EndsOf sums up the ends of tasks.
func EndsOf(tasks []Task) (out Ends) {
	for i := range tasks {
		t := &tasks[i]
		if !t.State.Ended() {
			continue
		}
		out.Status = max(out.Status, t.Status())
		if t.Exit != nil {
			out.Exited, out.Code = true, max(out.Code, t.Exit.Code)
		}
		if !t.Started.IsZero() && (out.Began.IsZero() || t.Started.Before(out.Began)) {
			out.Began = t.Started
		}
		if t.Ended.After(out.Last) {
			out.Last = t.Ended
		}
	}
	return out
}

// State returns the job's state; see Counts.State.
func (j Job) State() State {
	counts := j.Counts
	if counts == (Counts{}) {
		counts = CountsOf(j.Tasks)
	}
	return counts.State()
}

// Submission is a job that a user submits, from the API to the core of the scheduler.
type Submission struct {
	Spec Spec
	User string
	Key  string // idempotency key, or empty
	// Operator says that the user is an operator. Then only the bounds for all users together apply.
	Operator bool
	// Unknown are the jobs that Spec depends on and that do not exist. The job is refused for that, unless it is the retry
	// of an earlier submission.
	Unknown []ID
}

// Epoch orders the successive owners of a journal group: by generation, then by Raft term.
type Epoch struct {
	Generation uint64 `json:"generation"`
	Term       uint64 `json:"term"`
}

// Less reports whether e belongs to an older owner than f.
func (e Epoch) Less(f Epoch) bool {
	if e.Generation != f.Generation {
		return e.Generation < f.Generation
	}
	return e.Term < f.Term
}

// String returns "generation.term".
func (e Epoch) String() string { return fmt.Sprintf("%d.%d", e.Generation, e.Term) }

// Exit codes of muster. They agree with those of shells, timeout(1) and `docker run`.
const (
	// ExitTimeLimit means that the time limit ended the job.
	ExitTimeLimit = 124
	// ExitMuster means that muster or the host failed, not the program.
	ExitMuster = 125
	// ExitNotExecutable means that the program was found but could not be executed.
	ExitNotExecutable = 126
	// ExitNotFound means that the program was not found.
	ExitNotFound = 127
	// ExitSignal plus a signal number means that the signal ended the process.
	ExitSignal = 128
)
