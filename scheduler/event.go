package scheduler

// The events that a Core takes, and the effects that it returns.

import (
	"time"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
)

// Token pairs a request with its reply.
type Token uint64

// Event is anything that can happen to a Core.
type Event interface{ event() }

// The events.
type (
	// Submit asks for a new job.
	Submit struct {
		Token Token
		User  string
		Key   string // idempotency key, or empty
		Spec  job.Spec
		// Operator says that the user is one: only the bounds of all users count.
		Operator bool
		// Unknown are jobs that Spec depends on and that their owner does not have.
		Unknown []job.ID
		// Brief says that the reply need have no more than the ID of the job. To tell why a job waits takes a look at all
		// hosts.
		Brief bool
	}
	// Cancel asks that tasks end.
	Cancel struct {
		Token  Token
		Job    job.ID
		Tasks  []job.Range // empty: all
		Reason string
	}
	// Hold holds waiting tasks back, or releases them.
	Hold struct {
		Token   Token
		Job     job.ID
		Tasks   []job.Range // empty: all
		Release bool
		Reason  string
	}
	// Requeue asks that tasks run again: those that have ended, and those that run, which end first.
	Requeue struct {
		Token  Token
		Job    job.ID
		Tasks  []job.Range // empty: all
		Failed bool        // only tasks that have ended, and not with SUCCEEDED
		Reason string
	}
	// Forget asks to delete a job that has ended.
	Forget struct {
		Token Token
		Job   job.ID
	}
	// Unarchived brings the rows of an archived job, before the Committed entry that changes the job; see AddRows. Of
	// the tails it needs only that of task 0.
	Unarchived struct {
		Job  job.ID
		Rows []job.Row
	}
	// Committed is an entry of the journal.
	Committed struct{ job.Committed }
	// NotProposed gives back records that the journal did not take, or that may be lost because this daemon no longer
	// leads.
	NotProposed struct {
		Records []job.Record
		Err     error
	}
	// SessionUp is a new session with a daemon, whether it runs tasks or not.
	SessionUp struct {
		Peer job.Peer
		Path contract.Path
	}
	// Measured is how long a message to the peer of a session and the answer take.
	Measured struct {
		Peer      job.Peer
		RoundTrip time.Duration
	}
	// SessionDown is the end of a session.
	SessionDown struct{ Peer job.Peer }
	// Revoked says that a host is no member of the cluster any more.
	Revoked struct{ Peer job.Peer }
	// FromWorker is a message from a host.
	FromWorker struct {
		Peer job.Peer
		Msg  contract.ToScheduler
	}
	// NotSent gives back a message that is out of bounds, so that no session would carry it.
	NotSent struct {
		To  job.Peer
		Msg contract.ToWorker
		Err error
	}
	// Found brings hosts of a class that a search has found, and tells its end.
	Found struct {
		Class string
		Peers []job.Peer
		Cut   bool // the search ran out of time: there may be more hosts
	}
	// ReadDone is the end of a quorum round that Effects.Read began.
	ReadDone struct {
		Token Token
		Epoch job.Epoch
		Err   error
	}
	// ParentSeen is how far a job is that Effects.Follow asked for.
	ParentSeen struct{ job.Progress }
	// ParentsSilent says that the owner of jobs that Effects.Follow asked for cannot be asked.
	ParentsSilent struct {
		Jobs   []job.ID
		Detail string
	}
	// RowsKept says that the rows on disk reflect the entries up to this one.
	RowsKept struct{ Applied uint64 }
	// Tick has no meaning but that time has passed.
	Tick struct{}
)

func (Submit) event()      {}
func (Cancel) event()      {}
func (Hold) event()        {}
func (Requeue) event()     {}
func (Forget) event()      {}
func (Unarchived) event()  {}
func (Committed) event()   {}
func (NotProposed) event() {}
func (SessionUp) event()   {}
func (Measured) event()    {}
func (SessionDown) event() {}
func (Revoked) event()     {}
func (FromWorker) event()  {}
func (NotSent) event()     {}
func (Found) event()       {}
func (ReadDone) event()    {}
func (RowsKept) event()    {}
func (Tick) event()        {}

func (ParentSeen) event()    {}
func (ParentsSilent) event() {}

// Effects are what is to be done after a step, in this order.
type Effects struct {
	Propose  []job.Record
	Send     []Outgoing   // in order for each host
	Read     Token        // if not 0, begin a quorum round
	Raise    job.Epoch    // if not zero, lead again with an epoch beyond it
	Find     []string     // classes of hosts to search for
	Want     []job.Peer   // sessions to open and keep
	Unwant   []job.Peer   // sessions that need not be kept any more
	Follow   []job.Follow // jobs of which the progress is to be told, now and with each change
	Unfollow []job.ID     // jobs of which it need not be told any more
	Announce bool         // Wants has changed
	Wants    []Want
	Rows     []job.Row    // to save; they reflect the entries up to Core.Applied
	Files    []FileWanted // job files to read; each is answered with FileRead
	Gone     []job.ID     // jobs whose rows are to be deleted
	Changed  []job.ID     // jobs that look different now, for watchers
	Allot    []AllotmentAsk
	Reply    []Reply
	Notices  []Notice
}

// AllotmentAsk is what other daemons are to hear of a user whose tasks are limited in the cluster. If Round is not 0, what they say is
// to come back as AllotmentsHeard.
type AllotmentAsk struct {
	Round uint64
	State contract.Allotment
	To    job.Peer // empty: all others that accept jobs, and the other owners of this daemon
}

// AllotmentsHeard brings what the daemons have answered that were reached.
type AllotmentsHeard struct {
	User    string
	Round   uint64
	Answers []AllotmentAnswer
}

func (AllotmentsHeard) event() {}

// AllotmentAnswer is what the owners of a daemon have answered.
type AllotmentAnswer struct {
	Peer   job.Peer
	States []contract.Allotment
}

// Outgoing is a message to a host.
type Outgoing struct {
	To  job.Peer
	Msg contract.ToWorker
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
	File  []byte // the file of Job, if Job.Lean and it is not on disk yet
	// Archived is set instead of Job if the job is archived.
	Archived *Listed
	// Given is how many attempts were given up after DeclareDead.
	Given int
	// Looked answers Schedule.
	Looked *Looked
	Err    error
}

// Looked is what came of looking anew.
type Looked struct {
	Ended   int       // back-offs that were ended
	Placed  []Placed  // tasks that were assigned to a host, the first ones
	Tasks   int       // how many there were
	Waiting []Waiting // for what the rest waits, by the reason
	More    int       // waiting jobs of which it does not tell
}

// Placed is a task that was assigned to a host.
type Placed struct {
	Job      job.ID
	Task     int // its number
	Node     job.Peer
	NodeName string
}

// Waiting sums up the jobs that wait for the same.
type Waiting struct {
	Reason job.Reason // that of Job
	Jobs   int
	Tasks  int
	Job    job.ID // the oldest of them
}

// Notice is a line for the log.
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
	WorkerLost // its session ended while our tasks may run there
	WorkerGone // its session ended and none of our tasks run there
	NewerOwner
	MessageDefect
	NodeDead // declared dead by the user in Detail
	RowDefect
	IllegalMove // of an attempt, from one phase to another
	RowsDamaged // of an archived job that a record would change; nothing was changed
	FileDefect  // the file of a job cannot be read
	// StartHeldBack is a Start that the session keeps back for a while; Detail says why, and for how long.
	StartHeldBack
	// CopyHasLed says that a host knows a newer epoch of this same daemon.
	CopyHasLed
)

// Listed is a job of a listing.
type Listed struct {
	ID        job.ID
	Submitted time.Time
	Job       *job.Job // as it looks now; nil if it is archived and only the rows on disk have it
	File      []byte   // the file of Job, if Job.Lean and it is not on disk yet
	// Ended is when an archived job ended, as far as this daemon knows.
	Ended time.Time
}

// DeclareDead is the guarantee of an operator that nothing runs on a host any more.
type DeclareDead struct {
	Token Token
	Peer  job.Peer
	Store string // the data directory that the host has now, if it answers: only earlier ones are dead
	By    string // the user who gives it
}

func (DeclareDead) event() {}

// Deposed is the end of the ownership that began with the Lead entry of this epoch.
type Deposed struct{ Epoch job.Epoch }

func (Deposed) event() {}

// FileWanted is a job file to read.
type FileWanted struct {
	Job    job.ID
	Digest job.Digest
	Text   []byte // the file; nil if it is on disk
	size   int
}

// FileRead brings a job file, or tells why it cannot be read: state.ErrDamaged says that this will not change.
type FileRead struct {
	FileWanted

	File  *job.File // for the hosts
	Lines []string  // of Spec.EachLine
	Err   error
}

func (FileRead) event() {}
