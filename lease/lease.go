// Package lease holds the words that a scheduler and a worker exchange: what a
// host could ever give (Profile), what it has left (Free), an Offer of a task,
// the Commit that reserves devices for it, the Start that turns the
// reservation into an attempt under a lease, and the events that tell its life.
//
// These are plain values. p2p carries them between hosts as protobuf and checks
// them once on arrival (Valid); between the scheduler and the worker of one
// daemon they travel as they are.
//
// Nothing here compares the clocks of two hosts: a time on the wire is a
// duration, or the sender's own clock that comes back as an echo.
package lease

import (
	"time"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/job"
)

// The drivers that a host may have.
const (
	DriverExec   = "exec"   // plain processes
	DriverDocker = "docker" // images
)

// Profile is what a host could ever give, free or not.
type Profile struct {
	Peer    job.Peer          `json:"peer"`
	Name    string            `json:"name"`
	Version string            `json:"version"`
	Store   string            `json:"store"` // id of its data directory; a wiped disk has another
	Labels  map[string]string `json:"labels,omitempty"`
	CPUs    int               `json:"cpus"`
	Memory  job.Size          `json:"memory"`
	Disk    job.Size          `json:"disk"` // of the data directory's file system
	GPUs    []gpu.Device      `json:"gpus,omitempty"`
	Drivers []string          `json:"drivers,omitempty"` // DriverExec, DriverDocker
	Mounts  []string          `json:"mounts,omitempty"`  // directories that containers may see, with all below them
	Worker  bool              `json:"worker"`            // false: it runs no tasks
}

// Free is what a host has left at one moment.
type Free struct {
	CPUs   int       `json:"cpus"`
	Memory job.Size  `json:"memory"`
	GPUs   []FreeGPU `json:"gpus,omitempty"`
	Aside  []string  `json:"aside,omitempty"` // UUIDs of devices that nobody holds and nobody gets: they are not sound
}

// FreeGPU is what is left of one device.
type FreeGPU struct {
	UUID   string   `json:"uuid"`
	Memory job.Size `json:"memory"`
	Milli  int      `json:"milli"` // thousandths of the device that are not promised
}

// Epoch is the owner's epoch in its journal group.
type Epoch = job.Epoch

// Session is drawn by a worker for one unbroken life of its lease with one
// group; a Start of another session never fires (R5).
type Session uint64

// A scheduler's messages to a worker.
type (
	// ToWorker is any of the messages below.
	ToWorker interface{ toWorker() }

	// Owns opens a session: the groups whose jobs the sender answers for.
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
		Priority int
		User     string
		Token    string        // the user's own credential, checked by the worker; empty on one host's own socket
		Wait     time.Duration // how long the worker may keep it until something is free; 0: answer at once
		Age      time.Duration // since the job was submitted
	}

	// Release takes back an offer or an undispatched commit.
	Release struct{ Offer uint64 }

	// Start dispatches a committed offer; its Assign is in the journal (R1).
	Start struct {
		Offer   uint64
		Attempt job.Attempt
		Group   job.Group
		Epoch   Epoch
		Session Session
		User    string
		Spec    job.Spec
	}

	// Query asks what became of an attempt; an unknown one gets a tombstone (R6).
	Query struct {
		Attempt job.Attempt
		Group   job.Group
		Epoch   Epoch
		Store   string // the store that was given the attempt
	}

	// Signal sends a signal to all processes of an attempt.
	Signal struct {
		Attempt job.Attempt
		Group   job.Group
		Epoch   Epoch
		Number  int
	}

	// Cancel ends an attempt: TERM, grace, KILL.
	Cancel struct {
		Attempt job.Attempt
		Group   job.Group
		Epoch   Epoch
		Grace   time.Duration
		Reason  string
	}

	// Ack says that the attempt's events up to N are in the journal or need not
	// be. Only the owner of the attempt's group may say so. Older daemons
	// name neither group nor epoch; both are then zero.
	Ack struct {
		Attempt job.Attempt
		Group   job.Group
		Epoch   Epoch
		N       uint64
	}

	// Renewed answers Renew after a quorum round begun after it (R3).
	Renewed struct {
		Group    job.Group
		Epoch    Epoch
		Clock    int64   // of the Renew, unchanged
		Session  Session // of the Renew, unchanged
		Verdicts []Verdict
	}
)

// GroupEpoch is a group and the epoch of its owner.
type GroupEpoch struct {
	Group job.Group
	Epoch Epoch
}

// Verdict is the owner's word on one live attempt.
type Verdict struct {
	Attempt job.Attempt
	Keep    bool // false: end it, it is not wanted
}

// A worker's messages to a scheduler.
type (
	// ToScheduler is any of the messages below.
	ToScheduler interface{ toScheduler() }

	// Hello opens a session: who the worker is and what it could ever give.
	Hello struct {
		Profile Profile
		Free    Free
	}

	// Availability tells what is free, on change. Later Seq is newer.
	Availability struct {
		Seq      uint64
		Free     Free
		Draining bool
		Detail   string // why nothing is given away, for people
		// UnderQuota names users whose offers from this scheduler the worker
		// declined with reason Quota, and who hold less there now, or may hold
		// more. At most MaxUnderQuota.
		UnderQuota []string
	}

	// Commit reserves devices for an offer, for ReserveFor.
	Commit struct {
		Offer   uint64
		Attempt job.Attempt
		Group   job.Group
		Devices []string // GPU UUIDs, of this host
		Session Session  // that Start must name; 0 while no lease is live
	}

	// Decline refuses an offer.
	Decline struct {
		Offer   uint64
		Attempt job.Attempt
		Reason  job.Reason
		Free    Free
		// Never says that this host could not meet the need even when idle.
		Never bool
	}

	// Event is the N-th thing that happened to an attempt; kept by the worker
	// until acknowledged, and sent again after a break.
	Event struct {
		Attempt job.Attempt
		Group   job.Group
		N       uint64
		State   job.State // STARTING, RUNNING, COMPLETING or an end
		PID     int
		// Isolation says for people what holds the process, and Began when it
		// began, by the worker's wall clock: it is compared with nothing.
		Isolation string
		Began     time.Time
		Devices   []string
		Exit      *job.Exit // at an end
		Detail    string    // with STARTING: what it waits for, for people
		// Refused: the attempt was never started and never will be (R6), or
		// Start was not accepted; Exit is nil.
		Refused string
	}

	// Renew asks the owner of a group to extend the lease of all live attempts.
	Renew struct {
		Group   job.Group
		Store   string
		Clock   int64   // the worker's own monotonic clock in ns, echoed back
		Session Session // fresh when no lease is live (R5)
		Live    []job.Attempt
	}

	// Stale refuses a command of an owner that has been followed by another (R2).
	Stale struct {
		Group job.Group
		Epoch Epoch    // the newest that the worker has seen
		Owner job.Peer // a hint, may be empty
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

// The times that both sides count on.
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
	// MaxLive bounds the attempts of a Renew: more live tasks than a host has.
	MaxLive = 16384
	// MaxGPUs bounds the devices of a profile.
	MaxGPUs = 1024
	// MaxLabels bounds the labels of a profile.
	MaxLabels = 64
	// MaxMounts bounds the directories of a profile.
	MaxMounts = 64
)
