// Package contract defines the messages between a scheduler and a worker: what a host has at most (Profile) and at the
// moment (Free); an Offer of a task; the Commit that reserves devices for it; the Start that turns the reservation
// into an attempt under a lease; and the Events that report the attempt's progress.
//
// The messages are plain values. p2p encodes them as protobuf between hosts and validates them once on arrival
// (package p2p/session). Between the scheduler and the worker of one daemon they are passed as they are.
//
// No code compares the clocks of two hosts. A time on the wire is either a duration or the sender's own clock, which
// the receiver echoes.
package contract

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/internal/fairshare"
	"github.com/musterhq/muster/job"
)

// The drivers that a host can have.
const (
	DriverExec   = "exec"   // plain processes
	DriverDocker = "docker" // container images
	DriverInput  = "input"  // passes input of a client to tasks; earlier versions do not
	DriverSigned = "signed" // takes jobs that trust only signed labels; earlier versions do not know their field
)

// Profile is what a host has when it is idle.
type Profile struct {
	Peer    job.Peer          `json:"peer"`
	Name    string            `json:"name"`
	Version string            `json:"version"`
	Store   string            `json:"store"`          // ID of the data directory; a wiped disk gets a new one
	Arch    string            `json:"arch,omitempty"` // as Go names it: amd64, arm64; empty: an older daemon
	OS      string            `json:"os,omitempty"`   // linux
	Labels  map[string]string `json:"labels,omitempty"`
	// Signed are those of Labels that an inviter has signed. They come from the credential of the host, never from what it
	// says; see Sign.
	Signed  map[string]string `json:"signed,omitempty"`
	CPUs    int               `json:"cpus"`
	Memory  job.Size          `json:"memory"`
	Disk    job.Size          `json:"disk"` // of the data directory's file system
	GPUs    []gpu.Device      `json:"gpus,omitempty"`
	Drivers []string          `json:"drivers,omitempty"` // DriverExec, DriverDocker, DriverInput
	Mounts  []string          `json:"mounts,omitempty"`  // directories that containers may mount, with all below them
	Worker  bool              `json:"worker"`            // false: the host runs no tasks
	// OnlyUser is the user whose tasks the host runs, and no other's; empty: it runs those of all.
	OnlyUser string `json:"only_user,omitempty"`
	// NoRoot is true if the host runs no tasks of the user Root.
	NoRoot bool `json:"no_root,omitempty"`
	// Fencing is what holds of the attempts that the host gets now.
	Fencing job.Fencing `json:"fencing,omitzero"`
	// Format is the newest format that the host knows, by the greeting of its session; 0: that of this daemon.
	Format job.Format `json:"format,omitempty"`
	// Limits is what its users may have there; nil: it does not tell.
	Limits *UserLimits `json:"-"`
}

// Knows says whether the host knows a format.
func (p *Profile) Knows(f job.Format) bool { return p.Format == 0 || p.Format >= f }

// Root is the name of the user whose tasks a daemon of root runs only if that is allowed.
const Root = "root"

// Sign sets the labels that an inviter has signed. They hold against those of the same names that the host gives itself.
func (p *Profile) Sign(signed map[string]string) {
	p.Signed = signed
	if len(signed) == 0 {
		return
	}
	all := maps.Clone(p.Labels)
	if all == nil {
		all = map[string]string{}
	}
	for _, k := range slices.Backward(slices.Sorted(maps.Keys(all))) { // room for the signed ones
		if _, both := signed[k]; len(all)+len(signed) > MaxLabels && !both {
			delete(all, k)
		}
	}
	maps.Copy(all, signed)
	p.Labels = all
}

// Free is what a host has free at one moment.
type Free struct {
	CPUs   int       `json:"cpus"`
	Memory job.Size  `json:"memory"`
	GPUs   []FreeGPU `json:"gpus,omitempty"`
	// Tasks counts those that hold a part of the host. A need that is exclusive fits only where there are none.
	Tasks int `json:"tasks,omitempty"`
	// Exclusive is true if one of them has the host for itself. Nothing is free then.
	Exclusive bool `json:"exclusive,omitempty"`
	// Quarantined holds the UUIDs of the devices in quarantine that no task holds. No task gets them. Its JSON name is
	// from older versions.
	Quarantined []string `json:"aside,omitempty"`
	// Preemptible is what preemptible tasks hold, by precedence, the least first. A task of a higher one can have it.
	Preemptible []Preemptible `json:"preemptible,omitempty"`
	// Foreign says of which devices programs use memory that muster did not start. No task gets that memory.
	Foreign []ForeignUse `json:"foreign,omitempty"`
}

// MaxForeign bounds Free.Foreign. Hosts with more such devices leave out the others.
const MaxForeign = 64

// ForeignUse is how much of the memory of a device programs use that muster did not start.
type ForeignUse struct {
	UUID   string   `json:"uuid"`
	Memory job.Size `json:"memory"`
	PID    int      `json:"pid,omitempty"`    // of the program that uses most; 0: no program is listed
	Others int      `json:"others,omitempty"` // programs besides that one
}

// By says for people who uses the memory.
func (u ForeignUse) By() string {
	switch {
	case u.PID == 0:
		return "programs that are not listed"
	case u.Others > 0:
		return fmt.Sprintf("PID %d and %d more, not muster's", u.PID, u.Others)
	}
	return fmt.Sprintf("PID %d, not muster's", u.PID)
}

// MaxPreemptible bounds Free.Preemptible.
const MaxPreemptible = 256

// Preemptible is what the preemptible tasks of one priority and level hold on a host.
type Preemptible struct {
	Priority int      `json:"priority"`
	Level    int      `json:"level,omitempty"`
	CPUs     int      `json:"cpus"`
	Memory   job.Size `json:"memory"`
	GPUs     int      `json:"gpus"` // devices, whole or in part
}

// FreeGPU is the free part of one device.
type FreeGPU struct {
	UUID   string   `json:"uuid"`
	Memory job.Size `json:"memory"`
	Milli  int      `json:"milli"` // thousandths of the device that are not reserved
}

// Element is what distinguishes a task from the others of its job.
type Element struct {
	Preempted bool   // an earlier attempt was preempted
	Array     bool   // the job is an array
	Index     int    // in the array: the number by which people call the task
	Entry     string // its line of each_line
	Rank      int    // in its gang
}

// Gang is what the members of a gang know of each other. All get the same.
type Gang struct {
	Members []Member // by rank; at least two
	Port    int      // on the host of rank 0, and kept free there by its daemon for as long as the gang runs
}

// Member is a member of a gang.
type Member struct {
	Node    job.Peer
	Name    string
	Address string // IP address of the host, at which the hosts of the others reach it
}

// Path is the two ends of a session that goes straight from host to host, as IP addresses. Both are empty if a relay
// carries it, or if it is the session of a daemon with itself.
type Path struct {
	Local  string // of this host
	Remote string // of the peer
}

// Epoch is the owner's epoch in its journal group.
type Epoch = job.Epoch

// Session is a random number that a worker draws each time its lease with one group begins. A Start that names
// another session is refused (R5).
type Session uint64

// Messages from a scheduler to a worker.
type (
	// ToWorker is one of the messages below.
	ToWorker interface{ toWorker() }

	// Owns opens a session. It lists the groups that the sender owns.
	Owns struct {
		Groups []GroupEpoch
	}

	// Offer asks whether the worker would run a task now or soon.
	Offer struct {
		ID       uint64 // drawn by the scheduler, unique among its offers
		Attempt  job.Attempt
		Group    job.Group
		Epoch    Epoch
		Need     job.Resources
		Device   string // for a share of a GPU: the UUID of the device that it should get; empty: any
		Priority int
		User     string
		Token    string        // the user's own credential, checked by the worker; empty over the host's local socket
		Wait     time.Duration // how long the worker may queue the offer until resources are free; 0: answer at once
		Age      time.Duration // since the job was submitted
		Project  string        // whose usage this is, besides the user's; empty: none
		Preempt  bool          // if it does not fit, preemptible tasks of a lower priority are ended for it, or it is declined
		// Limit is how long the task holds what it gets at most, from the start of its process; see LimitOf. 0: no limit.
		// The Start must not name a longer one.
		Limit time.Duration
		Gang  int           // number of members of the task's gang; 0: none
		Order uint64        // of a gang, the same in all its offers: of gangs of one priority the lowest goes first at every host
		Hold  time.Duration // how long a Commit holds the devices; 0: ReserveFor
		Firm  bool          // of a gang: the tasks that the conditional Commit of this offer named are to be ended now
		Keeping
		Ordered
	}

	// Release withdraws an offer, or a commit that has not been started.
	Release struct{ Offer uint64 }

	// Start starts the task of a committed offer. Its Assign record is already in the journal (R1).
	Start struct {
		Offer   uint64
		Attempt job.Attempt
		Group   job.Group
		Epoch   Epoch
		Session Session
		User    string
		File    *job.File // of the job's tasks: job.Spec.TaskFile
		Element Element
		Gang    *Gang // nil: it is not a member of a gang
	}

	// Query asks for the state of an attempt. The worker records an unknown attempt as refused for good (R6).
	Query struct {
		Attempt job.Attempt
		Group   job.Group
		Epoch   Epoch
		Store   string // the store of the worker to which the attempt was assigned
	}

	// Signal sends a signal to all processes of an attempt.
	Signal struct {
		Attempt job.Attempt
		Group   job.Group
		Epoch   Epoch
		Number  int
	}

	// Cancel ends an attempt: SIGTERM, the grace period, SIGKILL.
	Cancel struct {
		Attempt job.Attempt
		Group   job.Group
		Epoch   Epoch
		Grace   time.Duration
		Reason  string
	}

	// Ack says that the attempt's events up to N are in the journal or are not needed. Only the owner of the
	// attempt's group may send it. Older daemons send neither group nor epoch; both are then zero.
	Ack struct {
		Attempt job.Attempt
		Group   job.Group
		Epoch   Epoch
		N       uint64
	}

	// Renewed answers a Renew, after a quorum round that began when the Renew had arrived (R3).
	Renewed struct {
		Group    job.Group
		Epoch    Epoch
		Clock    int64   // copied from the Renew
		Session  Session // copied from the Renew
		Verdicts []Verdict
	}
)

// Usage is what accounts have used on a host: at most MaxUsage, those that have used most. The host has decayed it.
type Usage struct {
	Entries []fairshare.Entry
}

// GroupEpoch is a group and the epoch of its owner, which says so.
type GroupEpoch struct {
	Group    job.Group
	Epoch    Epoch
	Founding job.Founding // proves that the sender has founded the group; only claims have it
}

// Claim is what a worker has on disk about the owner of a group.
type Claim struct {
	Group job.Group
	Epoch Epoch    // the newest of the owner; zero: the group is forgotten
	Owner job.Peer // the only daemon whose commands count for the group; empty in rows of earlier versions
}

// Verdict is the owner's decision on one live attempt.
type Verdict struct {
	Attempt job.Attempt
	Keep    bool // false: end the attempt
}

// Keeping is what a worker keeps for an offer that does not fit, and whom it tells.
type Keeping struct {
	Spare bool // if nothing shows when it fits, nothing is set aside for the offer: it gets what others leave
	// Elsewhere says that another host has booked the task, and keeps for it what it needs. So nothing is kept for the
	// offer: it gets what others leave.
	Elsewhere bool
	Private   bool // others may not be told of which job and user it is
}

// Forecast is what a worker expects of a queued offer. At most one of the durations is set; if none is, nothing is known
// about the offer any more, or the worker keeps nothing for it.
type Forecast struct {
	Offer  uint64
	Start  time.Duration // it starts within this time: by then enough tasks have ended, by their limits
	Kept   time.Duration // nothing shows when it starts: what is free is set aside for it for so long
	Shared time.Duration // nothing shows when it starts: for so long other tasks may have what was set aside
	// Elsewhere says that nothing is kept for the offer here, because its owner has said Elsewhere. It would start within
	// Start if nothing else began here.
	Elsewhere bool
}

// Kept is what a worker keeps for one waiting task of what is free there, and from which tasks.
type Kept struct {
	Job      job.ID // empty: it is private
	User     string // of the job; empty: it is private
	Priority int    // of the job: it is kept from tasks of this priority and of lower ones
	Below    bool   // it is kept from those of lower ones only
	// CPUs and Memory are how much of what is free a task may not have that lasts longer than For.
	CPUs   int
	Memory job.Size
	GPUs   []int         // as indices in Free.GPUs of the same message
	Milli  int           // thousandths of each of these
	For    time.Duration // for how long from now; 0: not known
	Starts bool          // it is booked: by then the task starts there
}

// LimitOf returns how long a task of this spec holds what it gets at most, from the start of its process: its time limit
// and its grace. It is 0 for a task without a time limit.
func LimitOf(s *job.Spec) time.Duration {
	if s.TimeLimit <= 0 {
		return 0
	}
	return s.TimeLimit.D() + s.GraceOr()
}

// MaxLimit bounds what LimitOf returns.
const MaxLimit = job.MaxTimeLimit + time.Hour

// Messages from a worker to a scheduler.
type (
	// ToScheduler is one of the messages below.
	ToScheduler interface{ toScheduler() }

	// Hello opens a session: it names the worker and its profile.
	Hello struct {
		Profile Profile
		Free    Free
	}

	// Availability reports what is free, whenever that changes. A higher Seq is newer.
	Availability struct {
		Seq      uint64
		Free     Free
		Draining bool
		Detail   string // why the host takes no tasks, for people
		// UnderQuota names users who may now run more here: their offers from this scheduler were declined with
		// reason Quota, and since then they hold less or their quota grew. At most MaxUnderQuota.
		UnderQuota []string
		// Forecasts says what is expected of offers of this scheduler that are queued here. At most MaxForecasts.
		Forecasts []Forecast
		// Usage is what accounts have used here; nil: this message does not tell.
		Usage *Usage
		// Kept is what is kept for waiting tasks of what is free. At most MaxKept.
		Kept []Kept
	}

	// Commit accepts an offer and reserves its devices for as long as the offer says.
	Commit struct {
		Offer   uint64
		Attempt job.Attempt
		Group   job.Group
		Devices []string // UUIDs of this host's GPUs
		Session Session  // the session that Start must name; 0 while no lease is live
		// Address is the IP address at which the scheduler's host reaches this one, and Port one that the worker keeps
		// free. Both are set for members of a gang only; for the scheduler's own host there is no address.
		Address string
		Port    int
		// Conditional is true if preemptible tasks still hold the devices. They are promised to the offer, and those tasks
		// are ended when the offer comes again as Firm; a Commit without it follows when the devices are free.
		Conditional bool
	}

	// Decline refuses an offer.
	Decline struct {
		Offer   uint64
		Attempt job.Attempt
		Reason  job.Reason
		Free    Free
		// Never is true if this host could not meet the need even when idle.
		Never bool
		// NoUser is true if this host has no account of the user now. Then that is why, and the decline is about all tasks of
		// the user. Earlier versions take it as Never alone.
		NoUser bool
	}

	// Event is the N-th event of an attempt. The worker keeps it until it is acknowledged, and sends it again after a
	// break of the connection.
	Event struct {
		Attempt job.Attempt
		Group   job.Group
		N       uint64
		State   job.State // STARTING, RUNNING, COMPLETING or a final state
		PID     int
		// Isolation says for people what confines the process. Began is when the process began, by the worker's wall
		// clock; it is never compared with another clock.
		Isolation string
		Began     time.Time
		Devices   []string
		Exit      *job.Exit // set with a final state
		Detail    string    // with STARTING: what the attempt waits for, for people
		// Refused says why the attempt never started and never will (R6), or why Start was refused. Exit is then nil.
		Refused string
	}

	// Renew asks the owner of a group to extend the lease of all live attempts of that group.
	Renew struct {
		Group   job.Group
		Store   string
		Clock   int64   // the worker's own monotonic clock in ns; Renewed echoes it
		Session Session // a new one when no lease is live (R5)
		Live    []job.Attempt
	}

	// Stale refuses a command from an owner that has been succeeded by another (R2).
	Stale struct {
		Group job.Group
		Epoch Epoch    // the newest epoch that the worker has seen
		Owner job.Peer // a hint; may be empty
	}
)

func (Owns) toWorker()    {}
func (Offer) toWorker()   {}
func (Release) toWorker() {}
func (Start) toWorker()   {}
func (Query) toWorker()   {}
func (Signal) toWorker()  {}
func (Cancel) toWorker()  {}
func (Ack) toWorker()     {}
func (Renewed) toWorker() {}

func (Hello) toScheduler()        {}
func (Availability) toScheduler() {}
func (Commit) toScheduler()       {}
func (Decline) toScheduler()      {}
func (Event) toScheduler()        {}
func (Renew) toScheduler()        {}
func (Stale) toScheduler()        {}

// Times and bounds that both sides rely on.
const (
	// ReserveFor is how long a Commit holds devices for a Start.
	ReserveFor = 10 * time.Second
	// RenewEvery is how often a worker asks for renewal.
	RenewEvery = 30 * time.Second
	// ExpiryMargin is added to 1.03 leases before an attempt is written off (R4).
	ExpiryMargin = time.Second
	// MaxOfferWait bounds how long an offer may queue at a worker.
	MaxOfferWait = time.Minute
	// MaxOffers bounds the offers of one scheduler that a worker keeps.
	MaxOffers = 64
	// MaxEvents bounds the unacknowledged events of one attempt.
	MaxEvents = 1024
	// MaxDetail bounds any sentence for people on the wire.
	MaxDetail = 1024
	// MaxUnderQuota bounds the users of one Availability; more are named in the next.
	MaxUnderQuota = 256
	// MaxForecasts bounds the forecasts of one Availability; more are in the next. It is the number of offers that a
	// worker keeps of one scheduler.
	MaxForecasts = MaxOffers
	// MaxKept bounds the tasks of which one Availability says what is kept for them.
	MaxKept = 16
	// MaxForecast bounds the durations of a forecast, and for how long something is kept.
	MaxForecast = 10 * 366 * 24 * time.Hour
	// MaxUsage bounds the accounts of one Availability.
	MaxUsage = 256
	// MaxUsed bounds what one of them has used, in seconds.
	MaxUsed = 1e15
	// MaxLive bounds the attempts of a Renew: more live tasks than a host has.
	MaxLive = 16384
	// MaxGPUs bounds the devices of a profile.
	MaxGPUs = 1024
	// MaxLabels bounds the labels of a profile.
	MaxLabels = 64
	// MaxMounts bounds the directories of a profile.
	MaxMounts = 64
)
