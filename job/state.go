package job

// The states of a task, and the table of legal moves between them.

import (
	"errors"
	"fmt"
	"slices"
)

// State is the state of a job or a task, as users see it.
type State string

// The states. A task is PENDING until a worker commits to it and RESERVED until it is started. It ends in one of the
// last seven states.
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

// ErrBadMove means that the table does not have this move, because the event is late or a duplicate. Drop the event.
var ErrBadMove = errors.New("no legal move")

// ends are the final states.
var ends = []State{Succeeded, Failed, Cancelled, Timeout, OutOfMemory, NodeFail, Preempted}

// next is the table of legal moves. A move back to Pending means another attempt; a final state is left only by a
// requeue, a retry, or a person. A move from Pending to a final
// state is a result that arrives after its attempt had been given up.
var next = map[State][]State{
	Pending:     append([]State{Held, Reserved}, ends...),
	Held:        append([]State{Pending}, ends...),
	Reserved:    append([]State{Pending, Held, Starting, Running, Completing, Unreachable}, ends...),
	Starting:    append([]State{Pending, Held, Running, Completing, Unreachable}, ends...),
	Running:     append([]State{Pending, Held, Completing, Unreachable}, ends...),
	Unreachable: append([]State{Pending, Held, Starting, Running, Completing}, ends...),
	Completing:  append([]State{Pending, Held, Unreachable}, ends...),
	Succeeded:   {Pending, Held},
	Failed:      {Pending, Held},
	Cancelled:   {Pending, Held},
	Timeout:     {Pending, Held},
	OutOfMemory: {Pending, Held},
	NodeFail:    {Pending, Held, Succeeded},
	Preempted:   {Pending, Held},
}

var codes = map[State]string{
	Pending: "PD", Held: "HD", Reserved: "RS", Starting: "ST", Running: "R", Unreachable: "UN", Completing: "CG",
	Succeeded: "CD", Failed: "F", Cancelled: "CA", Timeout: "TO", OutOfMemory: "OOM", NodeFail: "NF", Preempted: "PR",
}

// States returns all states in the order of a task's life.
func States() []State {
	return append([]State{Pending, Held, Reserved, Starting, Running, Unreachable, Completing}, ends...)
}

// Ended reports whether the state is final.
func (s State) Ended() bool { return slices.Contains(ends, s) }

// Active reports whether a worker holds resources for a task in this state.
func (s State) Active() bool {
	return slices.Contains([]State{Reserved, Starting, Running, Unreachable, Completing}, s)
}

// Code returns the short code of the state, as Slurm has it.
func (s State) Code() string { return codes[s] }

// ParseState parses a state or its short code, in upper or lower case.
func ParseState(text string) (State, error) {
	for _, s := range States() {
		if equalFold(text, string(s)) || equalFold(text, s.Code()) {
			return s, nil
		}
	}
	return "", fmt.Errorf("state %.40q: no such state; want one of PENDING (PD), RUNNING (R), SUCCEEDED (CD), FAILED (F), …", text)
}

// CanMove reports whether the move is legal.
func (s State) CanMove(to State) bool { return slices.Contains(next[s], to) }

// Reason says why a task waits or how it ended: a stable word, and a sentence for people.
type Reason struct {
	Word   string `json:"word"`
	Detail string `json:"detail,omitempty"`
}

// String returns "Word" or "Word: detail".
func (r Reason) String() string {
	if r.Detail == "" {
		return r.Word
	}
	return r.Word + ": " + r.Detail
}

// ReasonGangEnded is the reason of a member of a gang that ended because another one did; the detail names that one.
const ReasonGangEnded = "GangEnded"

// The reasons of a PENDING task.
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

// BarringReasons returns the reasons of tasks that cannot start however much capacity is free.
func BarringReasons() []string {
	return []string{ReasonDependency, ReasonDependencyNeverSatisfied, ReasonBeginTime, ReasonArrayThrottle}
}

// ReasonNodeSilent is the reason of an UNREACHABLE task.
const ReasonNodeSilent = "NodeSilent"

// The reasons that records of the journal set.
const (
	ReasonHeld       = "Held"
	ReasonRequeued   = "Requeued"
	ReasonCancelled  = "Cancelled"
	ReasonNodeLost   = "NodeLost"
	ReasonNodesLost  = "NodesLost" // of a member of a gang, until the gang is settled and held
	ReasonExit       = "Exit"
	ReasonNotStarted = "NotStarted" // of a member of a gang: its host did not start it
)
