package job

// The records of a journal: each is compared with the state it finds and, where
// that has moved on, changes nothing.

import "time"

// Record is one committed fact of a job's life: one of the types below.
type Record interface{ record() }

func (SubmitRecord) record()   {}
func (AssignRecord) record()   {}
func (UnassignRecord) record() {}
func (ResultRecord) record()   {}
func (CancelRecord) record()   {}
func (HoldRecord) record()     {}
func (PurgeRecord) record()    {}

// BeginsWork says whether the record is the first step of new work, which a full disk
// refuses; every other record ends work or gives it back.
func BeginsWork(r Record) bool {
	switch r.(type) {
	case SubmitRecord, AssignRecord:
		return true
	default:
		return false
	}
}

// SubmitRecord creates a job if its id is new.
type SubmitRecord struct {
	Job   ID
	User  string
	Spec  Spec
	Key   string // idempotency key, or empty
	At    time.Time
	Tasks int // how many; 0 is 1; at most MaxTasks
}

// AssignRecord gives a pending task's next attempt to a worker. It must be
// committed before a Start is sent (rule R1).
type AssignRecord struct {
	Attempt  Attempt
	Node     Peer
	NodeName string
	Store    string // the worker's store id: a wiped disk is another worker
}

// UnassignRecord ends an attempt that never ran, is known dead, or whose lease
// has run out for certain. After proposing it the owner never starts the
// attempt (R7).
type UnassignRecord struct {
	Attempt Attempt
	Proof   Proof
	Detail  string
	At      time.Time // by the owner's clock
	// Hold says why a task whose host was lost is not to be run again before a
	// person releases it; empty if it is.
	Hold string
}

// Proof says why an attempt may be given up.
type Proof string

// The proofs, from harmless to costly.
const (
	ProofDeclined     Proof = "declined"      // the worker refused the offer; nothing was held
	ProofNeverStarted Proof = "never-started" // the worker wrote a tombstone for it
	ProofDead         Proof = "dead"          // the worker says that its processes are gone
	ProofExpired      Proof = "expired"       // its lease ran out, for certain
	ProofOperator     Proof = "operator"      // a person said so
)

// ResultRecord is the end of an attempt that ran.
type ResultRecord struct {
	Attempt Attempt
	Devices []string
	Exit    Exit
	At      time.Time // by the owner's clock
	Hold    string    // as for an UnassignRecord
}

// CancelRecord asks that the job end; its tasks do so as workers confirm.
type CancelRecord struct {
	Job    ID
	Reason string
	At     time.Time
}

// HoldRecord holds a pending job back, or lets it go again.
type HoldRecord struct {
	Job     ID
	Release bool
	Reason  string
}

// PurgeRecord forgets a job that ended.
type PurgeRecord struct{ Job ID }

// Committed is one entry of a journal, as it is applied: first on replay, then
// as the group commits. Indexes rise without gaps in what is delivered.
type Committed struct {
	Index   uint64
	Epoch   Epoch // the owner's, under which the entry was written
	Records []Record
	// Lead is set on the entry with which this daemon becomes the owner: its
	// own term's first, empty entry. Before it the daemon must not act (R10).
	Lead bool
}

// Row is a part of what is kept on disk of a job. Only package jobs knows what is in it.
type Row struct {
	Job  ID
	Part string // orders the rows of a job, its header first: empty
	Data []byte // nil: the row is deleted
}
