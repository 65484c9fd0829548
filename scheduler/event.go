package scheduler

// Events go into a Core, and effects come out of it.

import (
	"time"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/lease"
)

// Token pairs a request with its reply.
type Token uint64

// Event is anything that a Core can learn.
type Event interface{ event() }

// The events.
type (
	// Submit asks for a new job.
	Submit struct {
		Token Token
		User  string
		Key   string // idempotency key, or empty
		Spec  job.Spec
	}
	// Cancel asks that a job end.
	Cancel struct {
		Token  Token
		Job    job.ID
		Reason string
	}
	// Hold holds a waiting job back, or releases it.
	Hold struct {
		Token   Token
		Job     job.ID
		Release bool
		Reason  string
	}
	// Committed is an entry of the journal.
	Committed struct{ job.Committed }
	// NotProposed gives back records that the journal did not take, or that
	// may be lost since it leads no more.
	NotProposed struct {
		Records []job.Record
		Err     error
	}
	// SessionUp is a session with a daemon, worker or not.
	SessionUp struct{ Peer job.Peer }
	// SessionDown is its end.
	SessionDown struct{ Peer job.Peer }
	// FromWorker is a message of a worker.
	FromWorker struct {
		Peer job.Peer
		Msg  lease.ToScheduler
	}
	// NotSent gives back a message that no session would carry.
	NotSent struct {
		To  job.Peer
		Msg lease.ToWorker
		Err error
	}
	// Found ends a search for hosts of a class.
	Found struct {
		Class string
		Peers []job.Peer
		Cut   bool // the search ended before its time: there may be more
	}
	// ReadDone ends a quorum round that Effects.Read began.
	ReadDone struct {
		Token Token
		Epoch job.Epoch
		Err   error
	}
	// RowsKept says that the rows on disk reflect the entries up to this one.
	RowsKept struct{ Applied uint64 }
	// Tick says nothing but the time.
	Tick struct{}
)

func (Submit) event()      {}
func (Cancel) event()      {}
func (Hold) event()        {}
func (Committed) event()   {}
func (NotProposed) event() {}
func (SessionUp) event()   {}
func (SessionDown) event() {}
func (FromWorker) event()  {}
func (NotSent) event()     {}
func (Found) event()       {}
func (ReadDone) event()    {}
func (RowsKept) event()    {}
func (Tick) event()        {}

// Effects is what a step wants done, in this order.
type Effects struct {
	Propose  []job.Record
	Send     []Outgoing // per worker in order
	Read     Token      // not zero: begin a quorum round
	Find     []string   // classes to look for
	Want     []job.Peer // sessions to open and keep
	Unwant   []job.Peer // sessions that need not be kept any more
	Announce bool       // Wants has changed
	Wants    []Want
	Rows     []job.Row // to save, after the entry Core.Applied
	Gone     []job.ID  // jobs whose rows are to be deleted
	Changed  []job.ID  // jobs that look different now, for watchers
	Reply    []Reply
	Notices  []Notice
}

// Outgoing is a message to a worker.
type Outgoing struct {
	To  job.Peer
	Msg lease.ToWorker
}

// Want is how many tasks wait for hosts of a class.
type Want struct {
	Class string
	Count int
}

// Reply answers a request.
type Reply struct {
	Token Token
	Job   job.Job
	// Archived is set instead of Job if the answer is a job that is archived.
	Archived *Listed
	// Given is how many attempts were given up, for DeclareDead.
	Given int
	Err   error
}

// Notice is an event of a life, for the log.
type Notice struct {
	Kind    Kind
	Attempt job.Attempt
	Peer    job.Peer
	Node    string
	State   job.State
	Detail  string
}

// Kind is what a notice is about.
type Kind int

// The kinds.
const (
	TaskStarted Kind = iota
	TaskEnded
	TaskWrittenOff
	WorkerFound
	WorkerLost // while tasks of ours may run there
	WorkerGone
	NewerOwner
	MessageDefect
	NodeDead // by the word of the user in Detail
	RowDefect
	IllegalMove // of a dispatch
)

// Listed is a job of a listing.
type Listed struct {
	ID        job.ID
	Submitted time.Time
	Job       *job.Job // as it looks now; nil if it is archived: its rows tell
	// Ended is when an archived job ended, as well as this daemon can tell.
	Ended time.Time
}

// DeclareDead is an operator's word that a host runs nothing any more.
type DeclareDead struct {
	Token Token
	Peer  job.Peer
	By    string // the user who says so
}

func (DeclareDead) event() {}

// Deposed ends the ownership that began with the Lead entry of this epoch.
type Deposed struct{ Epoch job.Epoch }

func (Deposed) event() {}
