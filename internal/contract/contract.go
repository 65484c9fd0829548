// Package contract defines the messages between a scheduler and a worker: what a host has in total (Profile) and what
// of that is free now (Free); an Offer of a task; the Commit that reserves devices for it; the Start that turns the
// reservation into an attempt under a lease; and the Events that report the attempt's progress.
//
// They have a package of their own because they name GPU devices, which package job does not know, and because both
// sides must mean the same by each of them. The messages are plain values. p2p encodes them as protobuf between hosts and validates them once on arrival
// (package p2p/session). Between the scheduler and the worker of one daemon they are passed as they are.
//
// No code compares the clocks of two hosts. A time on the wire is either a duration or the sender's own clock, which
// the receiver echoes.
package contract

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/internal/fairshare"
	"github.com/musterhq/muster/job"
)

// The drivers that a host can have.
const (
	DriverExec   = "exec"   // plain processes
	DriverDocker = "docker" // container images
	DriverInput  = "input"  // the host passes a client's input to tasks; earlier versions cannot
	DriverSigned = "signed" // the host takes jobs that trust only signed labels; earlier versions do not know that field
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
	// Signed are the labels among Labels that an inviter has signed. They come from the host's credential, never from a
	// message of the host; see Sign.
	Signed  map[string]string `json:"signed,omitempty"`
	CPUs    int               `json:"cpus"`
	Memory  job.Size          `json:"memory"`
	Disk    job.Size          `json:"disk"` // of the data directory's file system
	GPUs    []gpu.Device      `json:"gpus,omitempty"`
	Drivers []string          `json:"drivers,omitempty"` // of the Driver constants
	Mounts  []string          `json:"mounts,omitempty"`  // directories that containers may mount, with all below them
	Worker  bool              `json:"worker"`            // false: the host runs no tasks
	// OnlyUser is the only user whose tasks the host runs; empty: it runs the tasks of all users.
	OnlyUser string `json:"only_user,omitempty"`
	// NoRoot is true if the host runs no tasks of the user Root.
	NoRoot bool `json:"no_root,omitempty"`
	// Fencing says whether attempts that start on the host now are certain to end with their leases.
	Fencing job.Fencing `json:"fencing,omitzero"`
	// Format is the newest format that the host knows, as the greeting of its session says; 0: that of this daemon.
	Format job.Format `json:"format,omitempty"`
	// Limits is what users may hold on the host; nil: the host does not say.
	Limits *UserLimits `json:"-"`
}

// Knows says whether the host knows a format.
func (p *Profile) Knows(f job.Format) bool { return p.Format == 0 || p.Format >= f }

// Root is the name of the user root. A daemon that runs as root runs root's tasks only if a setting allows it.
const Root = "root"

// Sign sets the labels that an inviter has signed. They override labels of the same names that the host gives itself.
// If the host then has more than MaxLabels, Sign drops labels of its own.
func (p *Profile) Sign(signed map[string]string) {
	p.Signed = signed
	if len(signed) == 0 {
		return
	}
	all := maps.Clone(p.Labels)
	if all == nil {
		all = map[string]string{}
	}
	for _, k := range slices.Backward(slices.Sorted(maps.Keys(all))) { // make room for the signed ones
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
	// Tasks counts the tasks that hold a part of the host. An exclusive need fits only if there are none.
	Tasks int `json:"tasks,omitempty"`
	// Exclusive is true if one of these tasks has the host for itself. Nothing is free then.
	Exclusive bool `json:"exclusive,omitempty"`
	// Quarantined holds the UUIDs of the devices in quarantine that no task holds. No task gets them. Its JSON name is
	// from older versions.
	Quarantined []string `json:"aside,omitempty"`
	// Preemptible is what preemptible tasks hold, the lowest precedence first. A task of higher precedence can take it.
	Preemptible []Preemptible `json:"preemptible,omitempty"`
	// Foreign lists the devices whose memory is in use by programs that muster did not start. No task gets that memory.
	Foreign []ForeignUse `json:"foreign,omitempty"`
}

// MaxForeign bounds Free.Foreign. A host with more such devices leaves out the rest.
const MaxForeign = 64

// ForeignUse says how much memory of one device is in use by programs that muster did not start.
type ForeignUse struct {
	UUID   string   `json:"uuid"`
	Memory job.Size `json:"memory"`
	PID    int      `json:"pid,omitempty"`    // of the program that uses the most; 0: no program is listed
	Others int      `json:"others,omitempty"` // programs besides that one
}

// By names, for people, the programs that use the memory.
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
	Index     int    // of the task in the array, as people write it
	Entry     string // the task's line of each_line
	Rank      int    // of the task in its gang
}

// Gang is what the members of a gang know about each other. All members get the same Gang.
type Gang struct {
	Members []Member // by rank; at least two
	Port    int      // on the host of rank 0, whose daemon keeps it free while the gang runs
}

// Member is a member of a gang.
type Member struct {
	Node    job.Peer
	Name    string
	Address string // IP address of the member's host, as the hosts of the other members reach it
}

// Path is the IP addresses of the two ends of a direct session. Both are empty if a relay carries the session, or if it
// is the session of a daemon with itself.
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
		Device   string // for a share of a GPU: the UUID of the device that the task should get; empty: any
		Priority int
		User     string
		Token    string        // the user's own credential, checked by the worker; empty over the host's local socket
		Wait     time.Duration // how long the worker may queue the offer until resources are free; 0: answer at once
		Age      time.Duration // since the job was submitted
		Project  string        // the project that is charged for the usage, in addition to the user; empty: none
		Preempt  bool          // if the task does not fit: end preemptible tasks of a lower priority, or decline the offer
		// Limit is the longest time for which the task holds its resources, from the start of its process; see LimitOf.
		// 0: no limit. The Start must not name a longer one.
		Limit time.Duration
		Gang  int           // number of members of the task's gang; 0: the task is in no gang
		Order uint64        // the same in all offers of a gang; each host serves gangs of one priority lowest Order first
		Hold  time.Duration // how long a Commit holds the devices; 0: ReserveFor
		Firm  bool          // of a gang: end now the preemptible tasks that hold the devices of a conditional Commit
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
		File    *job.File // the job file for the tasks: job.Spec.TaskFile
		Element Element
		Gang    *Gang // nil: the task is not in a gang
	}

	// Query asks for the state of an attempt. A worker that does not know the attempt records it as refused for good (R6).
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

// Usage is what accounts have used on a host: the MaxUsage accounts that have used the most. The host has already
// applied the decay over time.
type Usage struct {
	Entries []fairshare.Entry
}

// GroupEpoch is a group that the sender owns, and the sender's epoch as its owner.
type GroupEpoch struct {
	Group    job.Group
	Epoch    Epoch
	Founding job.Founding // proves that the sender has founded the group; set only in Owns
}

// Claim is what a worker has on disk about the owner of a group.
type Claim struct {
	Group job.Group
	Epoch Epoch    // the owner's newest epoch; zero: the worker has forgotten the group
	Owner job.Peer // the only daemon whose commands count for the group; empty in rows of earlier versions
}

// Verdict is the owner's decision on one live attempt.
type Verdict struct {
	Attempt job.Attempt
	Keep    bool // false: end the attempt
}

// Keeping says what a worker keeps for an offer that does not fit, and how much it tells others about that.
type Keeping struct {
	Spare bool // if it is not known when the offer fits, set nothing aside for it: it gets what others leave
	// Elsewhere says that another host has booked the task and keeps what it needs. So this worker keeps nothing for the
	// offer, which gets what others leave.
	Elsewhere bool
	Private   bool // others may not learn the offer's job and user
}

// Forecast is what a worker expects for a queued offer. At most one of the durations is set. If none is, the worker no
// longer expects anything for the offer, or keeps nothing for it.
type Forecast struct {
	Offer  uint64
	Start  time.Duration // the offer starts within this time: by their limits, enough tasks have ended by then
	Kept   time.Duration // the start is not known: free capacity is set aside for the offer for this time
	Shared time.Duration // the start is not known: other tasks may use what was set aside, for this time
	// Elsewhere says that nothing is kept for the offer here, because its owner has said Elsewhere. The offer would start
	// within Start if nothing else began here.
	Elsewhere bool
}

// Kept is the part of a worker's free capacity that it keeps for one waiting task. Some other tasks cannot have it, by
// their priority and by how long they last.
type Kept struct {
	Job      job.ID // the waiting job; empty: private
	User     string // of the job; empty: private
	Priority int    // of the job: tasks of this priority and of lower ones cannot have what is kept
	Below    bool   // only tasks of lower priorities cannot have it
	// CPUs and Memory are the part of the free capacity that a task cannot have if it lasts longer than For.
	CPUs   int
	Memory job.Size
	GPUs   []int         // as indices in Free.GPUs of the same message
	Milli  int           // kept thousandths of each of these GPUs
	For    time.Duration // for how long from now; 0: not known
	Starts bool          // this is a booking: the task starts there within For
}

// LimitOf returns the longest time for which a task of this spec holds its resources, from the start of its process: its
// time limit and its grace. It is 0 for a task without a time limit.
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
		// Forecasts are what this worker expects for queued offers of this scheduler. At most MaxForecasts.
		Forecasts []Forecast
		// Usage is what accounts have used here; nil: this message does not say.
		Usage *Usage
		// Kept is the part of the free capacity that is kept for waiting tasks. At most MaxKept.
		Kept []Kept
	}

	// Commit accepts an offer and reserves its devices for as long as the offer says.
	Commit struct {
		Offer   uint64
		Attempt job.Attempt
		Group   job.Group
		Devices []string // UUIDs of this host's GPUs
		Session Session  // the session that Start must name; 0 while no lease is live
		// Address is the IP address at which the scheduler's host reaches this host. Port is a port that the worker keeps
		// free. Both are set only for members of a gang; Address is empty on the scheduler's own host.
		Address string
		Port    int
		// Conditional is true if preemptible tasks still hold the devices. The devices are promised to the offer. The worker
		// ends these tasks when the offer comes again as Firm, and sends an unconditional Commit when the devices are free.
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
		// NoUser is true if the offer is declined because this host has no account of the user now. The decline then holds
		// for all tasks of the user. Earlier versions ignore the field and see Never alone.
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
		// Isolation tells people what confines the process. Began is when the process began, by the worker's wall clock;
		// it is never compared with another clock.
		Isolation string
		Began     time.Time
		Devices   []string
		Exit      *job.Exit // set with a final state
		Detail    string    // with STARTING: tells people what the attempt waits for
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
	// MaxUnderQuota bounds the users in Availability.UnderQuota; the next Availability names the rest.
	MaxUnderQuota = 256
	// MaxForecasts bounds the forecasts of one Availability; the next one has the rest. It equals the number of offers of
	// one scheduler that a worker keeps.
	MaxForecasts = MaxOffers
	// MaxKept bounds the waiting tasks in Availability.Kept.
	MaxKept = 16
	// MaxForecast bounds the durations of a Forecast, and Kept.For.
	MaxForecast = 10 * 366 * 24 * time.Hour
	// MaxUsage bounds the accounts of one Availability.
	MaxUsage = 256
	// MaxUsed bounds the use of one account, in seconds.
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

// Clip returns s as one line of valid UTF-8 of at most MaxDetail bytes.
func Clip(s string) string {
	if len(s) > MaxDetail {
		s = s[:MaxDetail]
	}
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, ""))
}
