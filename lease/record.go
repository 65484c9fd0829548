package lease

// What a worker keeps on disk about each attempt, and the answers to users'
// questions about placement.

import (
	"time"

	"github.com/musterhq/muster/job"
)

// Phase is how far an attempt has come on its worker.
type Phase string

// The phases of an attempt record.
const (
	PhaseReserved Phase = "reserved" // committed, not dispatched
	PhaseStarted  Phase = "started"  // written and synced before its process exists
	PhaseDone     Phase = "done"     // ended, result not yet acknowledged
	PhaseRefused  Phase = "refused"  // tombstone: never started, never will be (R6)
)

// Record is the worker's memory of one attempt; its disk form outlives the
// daemon. The resources that it holds are in Need and Devices until it ends.
type Record struct {
	Attempt job.Attempt
	Group   job.Group
	Epoch   Epoch
	Session Session
	Owner   job.Peer
	Phase   Phase
	Offer   uint64
	User    string
	Need    job.Resources
	Devices []string
	Milli   int // of each device, 1000 for whole ones
	Spec    job.Spec
	Lease   time.Duration
	Hold    bool   // partition: hold; never ended for lost contact
	Boot    string // incarnation of the host that started it
	PID     int
	Started time.Time
	Exit    *job.Exit
	EventN  uint64 // number of the newest event
	AckedN  uint64
	Reason  string
	// Preempted: it was told to end for no fault of its own, for Reason.
	Preempted bool
	// Isolation says for people what holds its processes.
	Isolation string
	Recorded  time.Time
}

// Clause is one demand of a request and how the hosts meet it.
type Clause struct {
	Clause string   `json:"clause"` // "gpus: 2 × h100"
	Meets  int      `json:"meets"`
	Of     int      `json:"of"`
	Fails  []Failed `json:"fails,omitempty"` // at most MaxFails
}

// Failed is one host and why it does not meet a clause.
type Failed struct {
	Node   job.Peer `json:"node_id"`
	Name   string   `json:"node"`
	Reason string   `json:"reason"`
}

// MaxFails bounds the hosts that an explanation names for one clause.
const MaxFails = 32

// Explanation says where a request could run and what stands against it.
type Explanation struct {
	Job     job.ID      `json:"job,omitempty"`
	State   job.State   `json:"state,omitempty"`
	Reason  job.Reason  `json:"reason"`
	Clauses []Clause    `json:"clauses"`
	Now     []Candidate `json:"now"`   // would take it now, best first
	Later   []Candidate `json:"later"` // could take it when they have room
}

// Candidate is a host that meets every clause.
type Candidate struct {
	Node job.Peer `json:"node_id"`
	Name string   `json:"node"`
	Why  string   `json:"why"`
	Free Free     `json:"free"`
}
