package worker

// What a Loop stands on: the disk, the sessions, the driver and the clocks of this host.

import (
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/lease"
)

// Ledger is the disk of a worker.
type Ledger interface {
	// Save writes all or nothing: it puts and deletes records, and puts epochs. With sync it returns when that, and all
	// that was saved before, would survive a power cut. After an error all of it may be on disk, or nothing.
	Save(put []lease.Record, gone []job.Attempt, epochs []lease.GroupEpoch, sync bool) error
	// Load reads what was saved.
	Load() ([]lease.Record, []lease.GroupEpoch, error)
}

// Sender carries messages to schedulers. It never waits. An error says that there is no session; what matters is sent
// again when there is one.
type Sender interface {
	Send(to job.Peer, m lease.ToScheduler) error
	// Want has a session opened to the scheduler and kept.
	Want(p job.Peer)
	// Unwant takes a Want back: the session is closed unless another part of the daemon needs it.
	Unwant(p job.Peer)
}

// Parts is what a Loop stands on.
type Parts struct {
	Ledger  Ledger
	Sender  Sender
	Driver  Driver
	Adopter Adopter
	// Poll requests a DeviceStatus soon. It must not wait. May be nil.
	Poll func()
	// Keep writes the quarantine for the next life of the daemon. It is called rarely, and the loop waits for it. May be
	// nil.
	Keep func(Quarantine) error
	// Admit is the host's own policy. It returns nil, or why this user's task is refused; the loop waits for it. May be
	// nil: all tasks are admitted.
	Admit func(user string, spec job.Spec) error
	// Clocks is ReadClocks, or in tests and simulations other clocks.
	Clocks func() Moment
}
