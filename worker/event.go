package worker

// The events that a Core handles, and the effects that it returns.

import (
	"time"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/internal/fairshare"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker/driver"
	"github.com/musterhq/muster/worker/health"
	"github.com/musterhq/muster/worker/resources"
	"github.com/musterhq/muster/worker/step"
	"github.com/musterhq/muster/worker/useraccounts"
)

// Event is one thing that happened: any of the types below, or a driver.Event.
type Event interface{ WorkerEvent() }

type (
	// Up says that a session to a scheduler has opened.
	Up struct {
		Peer job.Peer
		Path contract.Path
	}

	// Down says that the session to a scheduler has ended.
	Down struct{ Peer job.Peer }

	// Message is a message of a scheduler.
	Message struct {
		From job.Peer
		Msg  contract.ToWorker
	}

	// Adopted completes a restart with the attempts that the driver knows. Any other attempt in the ledger has no process.
	Adopted struct {
		Found []driver.Event
		// NeverBegun are attempts in the ledger that the driver was never asked to start.
		NeverBegun []job.Attempt
	}

	// Admitted answers an Admission.
	Admitted struct {
		Attempt job.Attempt
		Refused string // why the host's policy refuses the task; empty: it may start
	}

	// PortFound answers a PortSearch with a port that no program uses; 0: there was none.
	PortFound struct {
		Attempt job.Attempt
		Port    int
	}

	// StopFailed says that the driver could not take a Stop.
	StopFailed struct{ Attempt job.Attempt }

	// DeviceStatus is the present status of the GPUs of this host.
	DeviceStatus struct {
		Devices []gpu.Status
		// Tasks says by PID whether a process on the devices belongs to a task. A missing PID is not known.
		Tasks map[int]bool
	}

	// DeviceFault is an error that a GPU reported.
	DeviceFault struct{ Fault gpu.Fault }

	// DeviceRestored says that a person has ended the quarantine of a GPU.
	DeviceRestored struct{ UUID string }

	// LookedUp answers a lookup: whether a user has an account on this host.
	LookedUp struct {
		User string
		Is   useraccounts.Presence
	}

	// ProfileChanged replaces the profile of this host.
	ProfileChanged struct{ Profile contract.Profile }

	// RoomChanged says why the data directory has no room for new work, for people. Why is empty if it has room again.
	RoomChanged struct{ Why string }
	// LimitsChanged replaces the limits of users.
	LimitsChanged struct {
		Limits     resources.Limits
		Priorities *contract.Priorities
	}

	// SharesChanged replaces the weights of users and projects.
	SharesChanged struct{ Weights fairshare.Weights }

	// ForgetClaim forgets the epoch of a group, because an operator said so. The next epoch that its owner sends counts,
	// even a lower one.
	ForgetClaim struct{ Group job.Group }

	// Drain begins or ends a drain of the host. Running tasks go on, until the deadline if there is one.
	Drain struct {
		On       bool
		Reason   string
		Deadline time.Time // by this host's wall clock; zero: none
	}
)

// WorkerEvent marks Up as an event.
func (Up) WorkerEvent() {}

// WorkerEvent marks Down as an event.
func (Down) WorkerEvent() {}

// WorkerEvent marks Message as an event.
func (Message) WorkerEvent() {}

// WorkerEvent marks Adopted as an event.
func (Adopted) WorkerEvent() {}

// WorkerEvent marks Admitted as an event.
func (Admitted) WorkerEvent() {}

// WorkerEvent marks PortFound as an event.
func (PortFound) WorkerEvent() {}

// WorkerEvent marks StopFailed as an event.
func (StopFailed) WorkerEvent() {}

// WorkerEvent marks DeviceStatus as an event.
func (DeviceStatus) WorkerEvent() {}

// WorkerEvent marks DeviceFault as an event.
func (DeviceFault) WorkerEvent() {}

// WorkerEvent marks DeviceRestored as an event.
func (DeviceRestored) WorkerEvent() {}

// WorkerEvent marks LookedUp as an event.
func (LookedUp) WorkerEvent() {}

// WorkerEvent marks ProfileChanged as an event.
func (ProfileChanged) WorkerEvent() {}

// WorkerEvent marks LimitsChanged as an event.
func (LimitsChanged) WorkerEvent() {}

// WorkerEvent marks RoomChanged as an event.
func (RoomChanged) WorkerEvent() {}

// WorkerEvent marks SharesChanged as an event.
func (SharesChanged) WorkerEvent() {}

// WorkerEvent marks ForgetClaim as an event.
func (ForgetClaim) WorkerEvent() {}

// WorkerEvent marks Drain as an event.
func (Drain) WorkerEvent() {}

// Writes is what must be written to disk before the effects of a turn.
type Writes struct {
	Put    []contract.Record
	Gone   []job.Attempt
	Claims []contract.Claim
	// Sync says that this and everything written before must survive a power cut, because it contains a claim, a start
	// or a refusal. Later changes of a started attempt need no sync: the driver has them too, until it is told to forget.
	Sync bool
}

// Empty reports whether there is nothing to write.
func (w Writes) Empty() bool { return len(w.Put)+len(w.Gone)+len(w.Claims) == 0 }

// Effects is what to do after a turn, in the order of loop.executor.carryOut.
type Effects struct {
	step.Effects
	// Keep is the quarantine to save; nil: it has not changed.
	Keep *health.Quarantine
	// KeepUsage is the usage to save; nil: not now.
	KeepUsage *resources.Usage
	// Want are owners of attempts with which a session is needed from now on; Unwant are those with which none is needed
	// any more.
	Want   []job.Peer
	Unwant []job.Peer
}
