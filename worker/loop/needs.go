package loop

// The interfaces that a Loop needs: disk, sessions, driver and clocks.

import (
	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker/driver"
	"github.com/musterhq/muster/worker/health"
	"github.com/musterhq/muster/worker/leaseclock"
	"github.com/musterhq/muster/worker/resources"
	"github.com/musterhq/muster/worker/step"
)

// Ledger keeps the state of a worker on disk.
type Ledger interface {
	// Save puts records, deletes records, and puts claims, all in one atomic write. A claim without an epoch is deleted.
	// With sync it returns when this and everything saved before would survive a power cut. After an error either all of
	// it or nothing may be on disk.
	Save(put []contract.Record, gone []job.Attempt, claims []contract.Claim, sync bool) error
	// Load returns what was saved.
	Load() ([]contract.Record, []contract.Claim, error)
}

// Sender sends messages to schedulers. It never waits. An error says that there is no session. The worker sends whatever
// matters again in the next session.
type Sender interface {
	Send(to job.Peer, m contract.ToScheduler) error
	// Want requests that a session to the scheduler is opened and kept.
	Want(p job.Peer)
	// Unwant withdraws a Want. The session is then closed unless another part of the daemon needs it.
	Unwant(p job.Peer)
}

// Parts is what a Loop needs.
type Parts struct {
	Ledger  Ledger
	Sender  Sender
	Driver  driver.Driver
	Adopter driver.Adopter
	// Poll requests a DeviceStatus soon. It must not wait. May be nil.
	Poll func()
	// Drained is told whether the host drains and no task holds a GPU, whenever that changes. It must not wait. May be
	// nil.
	Drained func(bool)
	// Keep saves the quarantine for the next run of the daemon. It is called rarely, and the loop waits for it. May be
	// nil.
	Keep func(health.Quarantine) error
	// KeepUsage saves the usage for the next run of the daemon. It is called once a minute at most, and the loop waits for
	// it. May be nil.
	KeepUsage func(resources.Usage) error
	// Admit is the host's policy. It returns nil, or why this user's task is refused. The loop waits for it. Nil admits
	// all tasks.
	Admit func(user string, spec job.Spec) error
	// LookUp looks up whether users have an account, and passes each answer to TellLookedUp. It must not wait. May be nil
	// without Config.LookUp.
	LookUp func(users []step.UserLookup)
	// PortFree reports whether no program on this host listens on a port. Nil: all ports are free.
	PortFree func(port int) bool
	// Clocks is ReadClocks; tests use other clocks.
	Clocks func() leaseclock.Moment
}
