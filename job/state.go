package job

// The states of a task and every legal move between them.

import (
	"errors"
	"fmt"
	"slices"
)

// State is where a job or a task stands, in the words that users see.
type State string

// The states. A task is PENDING until a worker commits to it,
// RESERVED until it is dispatched, and ends in one of the last seven.
const (
	Pending     State = "PENDING"
	Held        State = "HELD"
	Reserved    State = "RESERVED"
	Starting    State = "STARTING"
	Running     State = "RUNNING"
	Unreachable State = "UNREACHABLE"
	Completing  State = "COMPLETING"
	Succeeded   State = "SUCCEEDED"
	Failed      State = "FAILED"
	Cancelled   State = "CANCELLED"
	Timeout     State = "TIMEOUT"
	OutOfMemory State = "OUT_OF_MEMORY"
	NodeFail    State = "NODE_FAIL"
	Preempted   State = "PREEMPTED"
)

// ErrBadMove is a move that the table does not hold: a stale or doubled event.
// Drop the event.
var ErrBadMove = errors.New("no legal move")

// ends are the states in which a task has come to its end.
var ends = []State{Succeeded, Failed, Cancelled, Timeout, OutOfMemory, NodeFail, Preempted}

// next holds every legal move; what is not here cannot happen. Back to Pending
// means another attempt; from Pending straight to an end is a result that
// arrives after its attempt had been written off.
var next = map[State][]State{
	Pending:     append([]State{Held, Reserved}, ends...),
	Held:        append([]State{Pending}, ends...),
	Reserved:    append([]State{Pending, Held, Starting, Running, Completing, Unreachable}, ends...),
	Starting:    append([]State{Pending, Held, Running, Completing, Unreachable}, ends...),
	Running:     append([]State{Pending, Held, Completing, Unreachable}, ends...),
	Unreachable: append([]State{Pending, Held, Starting, Running, Completing}, ends...),
	Completing:  append([]State{Pending, Held, Unreachable}, ends...),
	Succeeded:   {},
	Failed:      {Pending, Held},
	Cancelled:   {},
	Timeout:     {Pending, Held},
	OutOfMemory: {Pending, Held},
	NodeFail:    {Pending, Held, Succeeded},
	Preempted:   {Pending, Held},
}

var codes = map[State]string{
	Pending: "PD", Held: "HD", Reserved: "RS", Starting: "ST", Running: "R", Unreachable: "UN", Completing: "CG",
	Succeeded: "CD", Failed: "F", Cancelled: "CA", Timeout: "TO", OutOfMemory: "OOM", NodeFail: "NF", Preempted: "PR",
}

// States lists all states in the order of a task's life.
func States() []State {
	return append([]State{Pending, Held, Reserved, Starting, Running, Unreachable, Completing}, ends...)
}

// Ended says whether nothing more will happen by itself.
func (s State) Ended() bool { return slices.Contains(ends, s) }

// Active says whether a worker holds something for the task in this state.
func (s State) Active() bool {
	return slices.Contains([]State{Reserved, Starting, Running, Unreachable, Completing}, s)
}

// Code is Slurm's short code of the state.
func (s State) Code() string { return codes[s] }

// ParseState reads a state or its short code, in any case of letters.
func ParseState(text string) (State, error) {
	for _, s := range States() {
		if equalFold(text, string(s)) || equalFold(text, s.Code()) {
			return s, nil
		}
	}
	return "", fmt.Errorf("state %.40q: no such state; one of PENDING (PD), RUNNING (R), SUCCEEDED (CD), FAILED (F), …", text)
}

// CanMove says whether the table holds the move.
func (s State) CanMove(to State) bool { return slices.Contains(next[s], to) }

// Reason says why a task waits or how it ended: a stable word, and for people
// a sentence.
type Reason struct {
	Word   string `json:"word"`
	Detail string `json:"detail,omitempty"`
}

// String is "Word" or "Word: detail".
func (r Reason) String() string {
	if r.Detail == "" {
		return r.Word
	}
	return r.Word + ": " + r.Detail
}

// The words of a PENDING task's reason.
const (
	ReasonResources                = "Resources"
	ReasonPriority                 = "Priority"
	ReasonDependency               = "Dependency"
	ReasonDependencyNeverSatisfied = "DependencyNeverSatisfied"
	ReasonBeginTime                = "BeginTime"
	ReasonArrayThrottle            = "ArrayThrottle"
	ReasonQuota                    = "Quota"
	ReasonNodesDraining            = "NodesDraining"
	ReasonGPUUnhealthy             = "GPUUnhealthy"
	ReasonGangWaiting              = "GangWaiting"
	ReasonNoMatch                  = "NoMatch"
	ReasonNoPeers                  = "NoPeers"
	ReasonBackoff                  = "Backoff"
	ReasonStaging                  = "Staging"
)
