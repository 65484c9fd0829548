package loop

// What a Loop needs of the rest of the daemon: the journal, the sessions and the search for hosts.

import (
	"context"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler/step"
)

// Journal keeps the records of this daemon's jobs.
type Journal interface {
	// Propose queues records and returns at once. The records are committed together or not at all. A record that is
	// committed comes back through Loop.Deliver, any other through Loop.NotProposed. An error says that none was
	// queued. Propose must not wait for Deliver.
	Propose(records ...job.Record) error
	Leadership
	// Save writes rows as they are after the entry applied, and deletes the rows of jobs that are gone. A crash may
	// lose the write. Then the journal delivers the entries after the last write again.
	Save(applied uint64, rows []job.Row, gone []job.ID) error
	// Rows returns the rows of a job from part from to before part to, in order. An empty to means the end. Any
	// goroutine may call it.
	Rows(id job.ID, from, to string) ([]job.Row, error)
	// File returns the job file of a job as it was saved with the part job.PartFile; nil if there is none. Any goroutine
	// may call it.
	File(id job.ID) ([]byte, error)
}

// Leadership tells with which epoch this daemon owns its jobs.
type Leadership interface {
	// ReadIndex begins a quorum round. When the round is over it calls done with the epoch in which this daemon still
	// leads.
	ReadIndex(done func(job.Epoch, error))
	// Raise makes this daemon lead again with an epoch higher than the given one, if it leads. It returns at once.
	Raise(beyond job.Epoch)
}

// Sessions carries messages to hosts.
type Sessions interface {
	// Send queues a message, in order, and returns at once. ErrUnsendable says that the message is out of bounds, and a
	// HeldBackError that this host does not get it now. Any other error says that there is no session: a SessionDown
	// follows or has come.
	Send(to job.Peer, m contract.ToWorker) error
	// Want opens a session with the peer and keeps it.
	Want(p job.Peer)
	// Unwant takes a Want back. The session is closed unless another part of the daemon wants it.
	Unwant(p job.Peer)
}

// Finder looks for hosts of a class, as contract.ClassOf names them.
type Finder interface {
	// Find sends at most n hosts until ctx ends. Then it closes the channel.
	Find(ctx context.Context, class string, n int) <-chan job.Peer
	// Members returns the members of the cluster that may run tasks and were heard lately, as far as this daemon knows
	// the cluster.
	Members() []job.Peer
}

// Announcer announces which classes of hosts this scheduler looks for. Hosts of these classes may open a session.
type Announcer interface {
	// Announce replaces the last announcement. Empty means that nothing is wanted.
	Announce(wants []step.Want)
}

// Parents follows the jobs that jobs of this scheduler depend on. What their owners report comes through
// Loop.ParentSeen. All methods return at once.
type Parents interface {
	// Follow asks for the progress of jobs, now and with each change. A job that is followed is asked for again.
	Follow(jobs []job.Follow)
	// Unfollow ends what Follow began.
	Unfollow(ids []job.ID)
}

// Allotter tells other daemons what is allotted to users whose tasks are limited in the cluster, and asks them the same.
type Allotter interface {
	// Allot returns at once. The answers come through TellAllotted, once every daemon has answered or has failed to.
	Allot(asks []step.AllotmentAsk)
}

// Needs are the parts of the daemon that a Loop uses.
type Needs struct {
	Journal   Journal
	Sessions  Sessions
	Finder    Finder
	Announcer Announcer
	Parents   Parents
	Allotter  Allotter
}
