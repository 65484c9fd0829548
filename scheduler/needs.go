package scheduler

// What a Loop stands on: the journal, the sessions, and the search for hosts.

import (
	"context"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/lease"
)

// Journal keeps the records of this daemon's jobs.
type Journal interface {
	// Propose queues records to be committed together or not at all, and
	// returns at once; each comes back through Loop.Deliver if it is committed,
	// and else through Loop.NotProposed.
	// An error says that none of them was queued. It must not wait for Deliver.
	Propose(records ...job.Record) error
	// ReadIndex begins a quorum round and calls done when it is over, with the
	// epoch in which this daemon still leads.
	ReadIndex(done func(job.Epoch, error))
	// Save writes rows as they are after the entry applied, and deletes those of jobs
	// that are gone. It may be lost with a crash: the journal then replays what came
	// after the last rows that were kept.
	Save(applied uint64, rows []job.Row, gone []job.ID) error
	// Rows reads the rows of a job from one part to before another, in order; to is
	// empty for the end. Any goroutine may ask.
	Rows(id job.ID, from, to string) ([]job.Row, error)
}

// Sessions carries messages to workers.
type Sessions interface {
	// Send queues a message, in order, and returns at once. ErrUnsendable says that
	// the message is out of its bounds; any other error that there is no session,
	// and a SessionDown follows or has come.
	Send(to job.Peer, m lease.ToWorker) error
	// Want has a session opened to the peer and kept.
	Want(p job.Peer)
	// Unwant takes a Want back: the session is closed unless somebody else needs it.
	Unwant(p job.Peer)
}

// Finder looks for hosts of a class, as lease.ClassOf names them.
type Finder interface {
	// Find streams at most n hosts until ctx ends; the channel is then closed.
	Find(ctx context.Context, class string, n int) <-chan job.Peer
}

// Announcer tells others what this scheduler looks for; they may come.
type Announcer interface {
	// Announce replaces what was announced before; nothing is wanted if empty.
	Announce(wants []Want)
}

// Needs are the neighbours of a Loop.
type Needs struct {
	Journal   Journal
	Sessions  Sessions
	Finder    Finder
	Announcer Announcer
}
