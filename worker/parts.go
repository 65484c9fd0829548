package worker

// What a Loop stands on: the disk, the sessions, the driver and the clocks of this host.

import (
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/lease"
)

// Ledger is the disk of a worker.
type Ledger interface {
	// Save writes all or nothing; with sync it returns when that, and all that
	// was saved before, would survive a power cut.
	Save(put []lease.Record, gone []job.Attempt, epochs []lease.GroupEpoch, sync bool) error
	// Load reads what was saved.
	Load() ([]lease.Record, []lease.GroupEpoch, error)
}

// Sender carries messages to schedulers. It never waits: an error says that
// there is no session, and what matters is sent again when there is.
type Sender interface {
	Send(to job.Peer, m lease.ToScheduler) error
	// Want has a session opened to the scheduler and kept.
	Want(p job.Peer)
	// Unwant takes a Want back: the session is closed unless somebody else needs it.
	Unwant(p job.Peer)
}

// Parts is what a Loop stands on.
type Parts struct {
	Ledger  Ledger
	Sender  Sender
	Driver  Driver
	Adopter Adopter
	// Poll asks whoever reads the devices for a DeviceStatus soon; it must not
	// wait. May be nil.
	Poll func()
	// Keep writes what is set aside, for the next life of the daemon: rarely,
	// and the loop waits for it. May be nil.
	Keep func(Quarantine) error
	// Admit is the host's own policy: nil, or why this user's task is refused.
	// The loop waits for it. May be nil: all is admitted.
	Admit func(user string, spec job.Spec) error
	// Clocks is ReadClocks, or in tests and simulations other clocks.
	Clocks func() Moment
}
