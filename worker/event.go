package worker

// The events that a Core handles, and the effects that it returns.

import (
	"log/slog"
	"time"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/internal/fairshare"
	"github.com/musterhq/muster/job"
)

// Event is one thing that happened: any of the types below, or a DriverEvent.
type Event interface{ workerEvent() }

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
		Found []DriverEvent
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
		Is   Presence
	}

	// ProfileChanged replaces the profile of this host.
	ProfileChanged struct{ Profile contract.Profile }

	// RoomChanged says why the data directory has no room for new work, for people. Why is empty if it has room again.
	RoomChanged struct{ Why string }
	// LimitsChanged replaces the limits of users.
	LimitsChanged struct {
		Limits     Limits
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

// Presence says whether a user has an account on this host.
type Presence int

// The answers of a lookup.
const (
	Unknown Presence = iota // it failed, or there was none yet
	Present
	Absent
)

func (Up) workerEvent()             {}
func (Down) workerEvent()           {}
func (Message) workerEvent()        {}
func (Adopted) workerEvent()        {}
func (Admitted) workerEvent()       {}
func (PortFound) workerEvent()      {}
func (StopFailed) workerEvent()     {}
func (DeviceStatus) workerEvent()   {}
func (DeviceFault) workerEvent()    {}
func (DeviceRestored) workerEvent() {}
func (LookedUp) workerEvent()       {}
func (ProfileChanged) workerEvent() {}
func (LimitsChanged) workerEvent()  {}
func (RoomChanged) workerEvent()    {}
func (SharesChanged) workerEvent()  {}
func (ForgetClaim) workerEvent()    {}
func (Drain) workerEvent()          {}
func (DriverEvent) workerEvent()    {}

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

// Effects is what to do after a turn, in the order of executor.carryOut.
type Effects struct {
	Log    []Line
	Start  []Task
	Stop   []Stop
	Signal []SignalTo
	Extend map[job.Attempt]BootTime
	Forget []job.Attempt
	// Keep is the quarantine to save; nil: it has not changed.
	Keep *Quarantine
	// KeepUsage is the usage to save; nil: not now.
	KeepUsage *Usage
	// Want are owners of attempts with which a session is needed from now on; Unwant are those with which none is needed
	// any more.
	Want   []job.Peer
	Unwant []job.Peer
	Send   []Outgoing
	// Poll requests a DeviceStatus soon.
	Poll bool
	// Drained says that from now on no task needs the GPUs of this host, or that some may again; nil: no change.
	Drained *bool
	// Admit are questions to the host's policy. Each is answered with an Admitted event. Until then the attempt is
	// neither started nor refused.
	Admit []Admission
	// Ports are searches for a port. Each is answered with a PortFound. Until then the Commit is not sent.
	Ports []PortSearch
	// LookUp are users whose accounts are to be looked up. Each is answered with a LookedUp, now or later.
	LookUp []UserLookup
}

// UserLookup is a lookup of a user's account.
type UserLookup struct {
	User string
	For  job.Peer // the scheduler whose offer needs it
}

// Line is one line for the log.
type Line struct {
	Level slog.Level
	Msg   string // a constant
	Attrs []slog.Attr
}

// Admission asks whether the user may run this task here.
type Admission struct {
	Attempt job.Attempt
	User    string
	Spec    job.Spec
}

// PortSearch asks for the first of some ports that no program on this host uses, for rank 0 of a gang.
type PortSearch struct {
	Attempt job.Attempt
	Try     []int
}

// Outgoing is one message to a scheduler.
type Outgoing struct {
	To  job.Peer
	Msg contract.ToScheduler
}

// Stop asks the driver to end an attempt.
type Stop struct {
	Attempt job.Attempt
	Grace   time.Duration
	Reason  string
}

// SignalTo asks the driver to signal an attempt.
type SignalTo struct {
	Attempt job.Attempt
	Number  int
}
