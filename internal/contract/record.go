package contract

// The worker's record of an attempt, and the explanation of where a request could run.

import (
	"time"

	"github.com/musterhq/muster/job"
)

// Phase is how far an attempt has got on its worker.
type Phase string

// The phases of an attempt record.
const (
	PhaseReserved Phase = "reserved" // committed, not started
	PhaseStarted  Phase = "started"  // written and synced before the process exists
	PhaseDone     Phase = "done"     // ended; the result is not yet acknowledged
	PhaseRefused  Phase = "refused"  // never started and never will be (R6)
)

// Record is what a worker stores about one attempt. It outlives the daemon. Until the attempt ends, it holds the
// resources in Need and Devices.
type Record struct {
	Attempt job.Attempt
	Group   job.Group
	Epoch   Epoch
	Session Session
	Owner   job.Peer
	Phase   Phase
	Offer   uint64
	User    string
	Project string
	Need    job.Resources
	Devices []string
	Milli   int       // of each device; 1000 for whole devices
	File    *job.File // nil before the start and after the end
	Element Element
	Gang    *Gang
	Lease   time.Duration
	Hold    bool   // the job has partition: hold; the attempt is never ended for lost contact
	Boot    string // boot ID of the host that started it
	PID     int
	Started time.Time
	Exit    *job.Exit
	EventN  uint64 // number of the newest event
	AckedN  uint64
	Reason  string
	// Preempted is true if the host ended the attempt through no fault of its own; Reason says why.
	Preempted bool
	// Isolation tells people what confines the attempt's processes.
	Isolation string
	Recorded  time.Time
}

// Clause is one requirement of a request and how the hosts meet it.
type Clause struct {
	Clause string   `json:"clause"` // "gpus: 2 × h100"
	Meets  int      `json:"meets"`
	Of     int      `json:"of"`
	Fails  []Failed `json:"fails,omitempty"`  // at most MaxFails
	Advice string   `json:"advice,omitempty"` // what helps if no host meets the clause and asking for less does not help
}

// Failed is a host that does not meet a clause, and why.
type Failed struct {
	Node   job.Peer `json:"node_id"`
	Name   string   `json:"node"`
	Reason string   `json:"reason"`
}

// MaxFails bounds the hosts that an explanation names for one clause.
const MaxFails = 32

// Explanation says where a request could run, and which requirements exclude which hosts.
type Explanation struct {
	Job     job.ID      `json:"job,omitempty"`
	State   job.State   `json:"state,omitempty"`
	Reason  job.Reason  `json:"reason"`
	Clauses []Clause    `json:"clauses"`
	Now     []Candidate `json:"now"`   // hosts that would start it now, best first
	Later   []Candidate `json:"later"` // hosts that could start it once enough is free
	// Nearest is set if no host could start the request now. It says to which amount of one resource it must be reduced.
	Nearest Nearest `json:"nearest"`
	Ahead   int     `json:"ahead,omitempty"` // waiting tasks of the same owner that go first
	// Starts is the latest time at which the first waiting task of the job is expected to start; zero: not known.
	Starts time.Time `json:"starts,omitzero"`
}

// Nearest says, for each resource, with which amount of it a request would fit if the rest of the request stayed as it
// is. Zero means that less of this resource alone would not help.
type Nearest struct {
	Ever   bool     `json:"ever,omitempty"` // no host could ever run the request: the amounts are for idle hosts
	CPUs   int      `json:"cpus,omitempty"`
	Memory job.Size `json:"memory,omitempty"`
	GPUs   int      `json:"gpus,omitempty"`
}

// Candidate is a host that meets every clause.
type Candidate struct {
	Node job.Peer `json:"node_id"`
	Name string   `json:"node"`
	Why  string   `json:"why"`
	Free Free     `json:"free"`
}
