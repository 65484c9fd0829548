// Package step has what a step of the scheduler's core takes and gives: the events and the effects, the errors of its
// answers, its configuration, and the Turn that the parts of the core share.
package step

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
		job.Submission

		// Brief says that the reply needs only the ID of the job. Telling why a job waits would take a look at all hosts.
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
	// Requeue asks that tasks run again, whether they have ended or still run. Those that run are ended first.
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
	// Unarchived brings the rows of an archived job. It comes before the Committed entry that changes the job; see
	// AddRows. Of the tails of standard error, only that of task 0 is needed.
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
	// Measured is the round-trip time of a message to the peer of a session.
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
	// NotSent gives back a message that was not sent. Err says whether the message is out of bounds, so that no session
	// would carry it, or whether the session holds it back for a while.
	NotSent struct {
		To  job.Peer
		Msg contract.ToWorker
		Err error
	}
	// Found brings hosts of a class that a search has found. The last one of a search has no hosts and marks its end.
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
	// ParentSeen is the progress of a job that Effects.Follow asked for.
	ParentSeen struct{ job.Progress }
	// ParentsSilent says that the owner of these jobs cannot be asked. Effects.Follow asked for their progress.
	ParentsSilent struct {
		Jobs   []job.ID
		Detail string
	}
	// RowsKept says that the rows on disk reflect the entries up to this one.
	RowsKept struct{ Applied uint64 }
	// Tick says only that time has passed.
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

// Effects are what to do after a step, in this order.
type Effects struct {
	Propose  []job.Record
	Send     []Outgoing   // in order for each host
	Read     Token        // if not 0, begin a quorum round
	Raise    job.Epoch    // if not zero, lead again with an epoch beyond it
	Find     []string     // classes of hosts to search for
	Want     []job.Peer   // sessions to open and keep
	Unwant   []job.Peer   // sessions that need not be kept any more
	Follow   []job.Follow // jobs whose progress to report, now and after each change
	Unfollow []job.ID     // jobs whose progress is no longer needed
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

// AllotmentAsk tells other daemons about a user with limits over the whole cluster. If Round is not 0, it is also a
// question, and their answers come back as AllotmentsHeard.
type AllotmentAsk struct {
	Round uint64
	State contract.Allotment
	To    job.Peer // empty: all others that accept jobs, and the other owners of this daemon
}

// AllotmentsHeard brings the answers of the daemons that were reached.
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
	// GivenUp is how many attempts were given up after DeclareDead.
	GivenUp int
	// Reset answers Schedule.
	Reset *ResetResult
	Err   error
}

// ResetResult is the result of a Schedule request, which has waiting jobs placed again without back-off.
type ResetResult struct {
	Ended   int       // back-offs that were ended
	Placed  []Placed  // the first tasks that were assigned to a host
	Tasks   int       // how many tasks were assigned in all
	Waiting []Waiting // why jobs still wait, by reason
	More    int       // waiting jobs that Waiting does not count
}

// Placed is a task that was assigned to a host.
type Placed struct {
	Job      job.ID
	Task     int // its number
	Node     job.Peer
	NodeName string
}

// Waiting sums up the jobs that wait for the same reason.
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
	By    string // the user who gives the guarantee
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
	Size   int
}

// FileRead brings a job file, or tells why it cannot be read: state.ErrDamaged says that this will not change.
type FileRead struct {
	FileWanted

	File  *job.File // for the hosts
	Lines []string  // of Spec.EachLine
	Err   error
}

func (FileRead) event() {}

// Schedule asks to end the back-offs of waiting tasks and to search for hosts again. With a user it is about the jobs of
// this user only.
type Schedule struct {
	Token Token
	User  string // empty: all
}

func (Schedule) event() {}
