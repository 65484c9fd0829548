package job

// The records of a journal. When a record is applied it is compared with the state of its job; a record that is out
// of date changes nothing.

import "time"

// Record is one committed event of a job: one of the types below.
type Record interface{ record() }

func (SubmitRecord) record()   {}
func (AssignRecord) record()   {}
func (UnassignRecord) record() {}

func (AssignGangRecord) record()   {}
func (UnassignGangRecord) record() {}
func (ResultRecord) record()       {}
func (CancelRecord) record()       {}
func (HoldRecord) record()         {}
func (RequeueRecord) record()      {}
func (ParentRecord) record()       {}
func (PurgeRecord) record()        {}

// BeginsWork reports whether the record starts new work. A full disk refuses such records; all other records end work
// or return it.
func BeginsWork(r Record) bool {
	switch r.(type) {
	case SubmitRecord, AssignRecord, AssignGangRecord, RequeueRecord:
		return true
	default:
		return false
	}
}

// SubmitRecord creates a job if its ID is new.
type SubmitRecord struct {
	Job   ID
	User  string
	Spec  Spec
	Key   string // idempotency key, or empty
	At    time.Time
	Tasks int // number of tasks; 0 means 1; at most MaxTasks
}

// AssignRecord assigns the next attempt of a pending task to a worker. It must be committed before a Start is sent
// (rule R1).
type AssignRecord struct {
	Attempt  Attempt
	Node     Peer
	NodeName string
	Store    string    // ID of the worker's store: a wiped disk counts as another worker
	Fencing  Fencing   // as the worker says
	At       time.Time // by the owner's clock; zero in records of older versions
}

// UnassignRecord ends an attempt that never ran, is known to be dead, or whose lease has certainly expired. Once the
// owner has proposed the record it never starts the attempt (R7).
type UnassignRecord struct {
	Attempt Attempt
	Proof   Proof
	Detail  string
	At      time.Time // by the owner's clock
	// Hold is set if the task's host was lost and the task must not run again until a person releases it. It says
	// why.
	Hold string
}

// Proof says why it is safe to give up an attempt.
type Proof string

// The proofs, from cheapest to most expensive.
const (
	ProofDeclined     Proof = "declined"      // the worker refused the offer; it held nothing
	ProofNeverStarted Proof = "never-started" // the worker recorded that it will never start the attempt
	ProofDead         Proof = "dead"          // the worker says that the attempt's processes are gone
	ProofExpired      Proof = "expired"       // its lease has certainly expired
	ProofOperator     Proof = "operator"      // a person declared it dead
)

// AssignGangRecord assigns the next attempt of all tasks of a gang, each to a host of its own: all or none. It must be
// committed before a Start is sent (rule R1).
type AssignGangRecord struct {
	Attempt Attempt    // of rank 0; rank N has the Nth task after it, and the same attempt number
	Members []Assignee // by rank; 2 to MaxNodes
	At      time.Time  // as in AssignRecord
}

// Assignee is the host that gets a member of a gang.
type Assignee struct {
	Node     Peer
	NodeName string
	Store    string // as in AssignRecord
	Fencing  Fencing
}

// UnassignGangRecord ends the attempts of all tasks of a gang, none of which was started. Once the owner has proposed the
// record it starts none of them (R7).
type UnassignGangRecord struct {
	Attempt Attempt // of rank 0
	Proof   Proof   // ProofDeclined or ProofNeverStarted
	Detail  string
	At      time.Time // by the owner's clock
}

// ResultRecord is the end of an attempt that ran.
type ResultRecord struct {
	Attempt Attempt
	Devices []string
	Exit    Exit
	At      time.Time // by the owner's clock
	Hold    string    // as in UnassignRecord
	// Elsewhere is set if the host could not start the attempt. The task then waits for another host even if it is not to
	// run again: it never ran.
	Elsewhere bool
}

// CancelRecord asks for the end of tasks. They end one by one, as workers confirm.
type CancelRecord struct {
	Job    ID
	Tasks  []Range // empty: all
	Reason string
	At     time.Time
}

// HoldRecord holds pending tasks, or releases held ones.
type HoldRecord struct {
	Job     ID
	Tasks   []Range // empty: all
	Release bool
	Reason  string
	At      time.Time // by the owner's clock; zero in records of older versions
}

// RequeueRecord makes tasks run again. A task that still runs is ended first.
type RequeueRecord struct {
	Job    ID
	Tasks  []Range // empty: all
	Failed bool    // only tasks that have ended, and not with SUCCEEDED
	Reason string
	At     time.Time
}

// ParentRecord tells the progress of a job on which jobs of this journal depend. It carries only what the journal's
// other records do not: the progress of a job of another journal, and when a job has started. See docs/adr, ADR 86.
type ParentRecord struct {
	Parent  ID
	State   State      // empty: its owner has no such job, so it has ended and was deleted
	Started bool       // each of its tasks has started or ended
	Since   time.Time  // when the last of them did, by the owner's clock
	Tasks   TaskStates // by their numbers; not all of them need be listed
	At      time.Time
}

// PurgeRecord deletes a job that has ended.
type PurgeRecord struct{ Job ID }

// Committed is one journal entry, as it is applied: old entries when the journal is opened, then new ones as the
// group commits them. Indexes are delivered in order and without gaps.
type Committed struct {
	Index   uint64
	Epoch   Epoch // the epoch of the owner that wrote the entry
	Records []Record
	// Lead marks the entry with which this daemon becomes the owner: the first, empty entry of its own term. The
	// daemon must not act as owner before it (R10).
	Lead bool
}

// Row is one of the rows that a job has on disk. Only package state knows the format of its data.
type Row struct {
	Job  ID
	Part string // orders the rows of a job; empty for the header, which is the first
	Data []byte // nil: the row is deleted
}
