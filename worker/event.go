package worker

// Events, which a Core takes, and effects, which it returns.

import (
	"log/slog"
	"time"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/lease"
)

// Event is one thing that happened: any of the types below, or a DriverEvent.
type Event interface{ workerEvent() }

type (
	// Up says that a session to a scheduler has opened.
	Up struct{ Peer job.Peer }

	// Down says that the session to a scheduler has ended.
	Down struct{ Peer job.Peer }

	// Message is what a scheduler sent.
	Message struct {
		From job.Peer
		Msg  lease.ToWorker
	}

	// Adopted ends a restart with what the driver still knows. An attempt that the ledger calls started and that is not
	// among these has no process.
	Adopted struct{ Found []DriverEvent }

	// Admitted answers an Admission.
	Admitted struct {
		Attempt job.Attempt
		Refused string // why the host's policy refuses the task; empty: it may start
	}

	// StopFailed says that the driver could not take a Stop.
	StopFailed struct{ Attempt job.Attempt }

	// DeviceStatus is how the GPUs of this host are now, and where NVIDIA's
	// multi-process service listens, if it runs.
	DeviceStatus struct {
		Devices []gpu.Status
		MPS     string // directory of its pipes
	}

	// DeviceFault is an error that a GPU reported.
	DeviceFault struct{ Fault gpu.Fault }

	// DeviceRestored says that a person has found a GPU fit again.
	DeviceRestored struct{ UUID string }

	// ProfileChanged says what this host could ever give from now on.
	ProfileChanged struct{ Profile lease.Profile }

	// LimitsChanged says how much each user may hold from now on.
	LimitsChanged struct{ Limits Limits }

	// Drain has the host take no new tasks, or take tasks again. What runs goes on, until the deadline if there is one.
	Drain struct {
		On       bool
		Reason   string
		Deadline time.Time // by this host's wall clock; zero: none
	}
)

func (Up) workerEvent()             {}
func (Down) workerEvent()           {}
func (Message) workerEvent()        {}
func (Adopted) workerEvent()        {}
func (Admitted) workerEvent()       {}
func (StopFailed) workerEvent()     {}
func (DeviceStatus) workerEvent()   {}
func (DeviceFault) workerEvent()    {}
func (DeviceRestored) workerEvent() {}
func (ProfileChanged) workerEvent() {}
func (LimitsChanged) workerEvent()  {}
func (Drain) workerEvent()          {}
func (DriverEvent) workerEvent()    {}

// Writes is what must be written before the effects of a turn.
type Writes struct {
	Put    []lease.Record
	Gone   []job.Attempt
	Epochs []lease.GroupEpoch
	// Sync says that this, and with it all that was written before, must survive a power cut: it has an epoch, a start or
	// a refusal. What comes after a start is known to the driver, too, until it is told to forget.
	Sync bool
}

// Empty says that nothing has to be written.
func (w Writes) Empty() bool { return len(w.Put)+len(w.Gone)+len(w.Epochs) == 0 }

// Effects is what a turn decided, to be carried out in the order of the fields.
type Effects struct {
	Log    []Line
	Start  []Task
	Stop   []Stop
	Signal []SignalTo
	Extend map[job.Attempt]BootTime
	Forget []job.Attempt
	// Keep is the quarantine, if that has changed.
	Keep *Quarantine
	// Want and Unwant are the owners of attempts with whom a session is needed, and is needed no longer.
	Want   []job.Peer
	Unwant []job.Peer
	Send   []Outgoing
	// Poll requests a DeviceStatus soon.
	Poll bool
	// Admit asks the host's policy. Each Admission is answered with an Admitted event; until then the attempt is neither
	// started nor refused.
	Admit []Admission
}

// Line is one line for the log.
type Line struct {
	Level slog.Level
	Msg   string // fixed for each kind of line
	Attrs []slog.Attr
}

// Admission asks whether this user may run this here.
type Admission struct {
	Attempt job.Attempt
	User    string
	Spec    job.Spec
}

// Outgoing is one message to a scheduler.
type Outgoing struct {
	To  job.Peer
	Msg lease.ToScheduler
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
