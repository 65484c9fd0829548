package step

// The effects of a turn that its parts ask for.

import (
	"log/slog"
	"time"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker/driver"
	"github.com/musterhq/muster/worker/leaseclock"
)

// Effects is what to do after a turn.
type Effects struct {
	Log    []Line
	Start  []driver.Task
	Stop   []Stop
	Signal []SignalTo
	Extend map[job.Attempt]leaseclock.BootTime
	Forget []job.Attempt
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
