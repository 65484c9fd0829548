package admission

// What this host knows about an offer of a scheduler.

import (
	"cmp"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/internal/fairshare"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker/leaseclock"
	"github.com/musterhq/muster/worker/step"
)

// Key identifies an offer among those of all schedulers.
type Key struct {
	Peer job.Peer
	ID   uint64
}

// account returns the account to which the usage of the offer's task is charged.
func (o *Offer) account() fairshare.Account {
	return fairshare.Account{User: o.Msg.User, Project: o.Msg.Project}
}

// makesRoom reports whether tasks end for the offer, or are promised to it.
func (o *Offer) makesRoom() bool { return o.Preempted || o.Conditional }

// offerState is the state of an offer.
type offerState int

// The states of an offer.
const (
	Queued   offerState = iota // it waits in the queue
	Reserved                   // an attempt holds its resources
	Lapsed                     // its reservation has lapsed
	Gone                       // it was answered or withdrawn
)

// Offer is an offer of a scheduler.
type Offer struct {
	Key       Key
	Msg       contract.Offer
	submitted leaseclock.BootTime // when its job was submitted, from the job's age when the offer arrived
	until     leaseclock.BootTime // how long it may wait
	Timer     *step.Timer         // fires at until; nil: it has not had to wait yet
	State     offerState
	standing  fairshare.Standing
	turn      uint64 // when it got its turn, counted by the queue; 0: not yet
	Preempted bool   // preemption has made room for it, or could not

	booked       booking  // of the last pass
	turns        rota     // of setting aside; a gang skips the first one
	sentForecast forecast // the last one that was sent to its scheduler

	// Of gangs only:
	lead        uint64              // the earliest turn of this offer and of those after it by rank; 0: none
	last        *Offer              // the last one, by use, of this offer and those before it by rank
	Since       leaseclock.BootTime // its first Commit; 0: there was none
	Conditional bool                // that Commit was a conditional one, and the offer is still queued
	Promised    []Victim            // the tasks that the conditional Commit named
	Firm        bool                // all members have committed: the promised tasks are to be ended, and no offer may revoke the reservation
}

// Victim is a task that is promised to an offer, and the devices that it holds or held.
type Victim struct {
	Attempt job.Attempt
	Devices []string
}

// Prolong takes over what a renewed offer says of a reservation.
func (o *Offer) Prolong(m contract.Offer) { o.Msg.Hold, o.Firm = m.Hold, o.Firm || m.Firm }

// Preempts notes that preemption has made room for the offer, or could not.
func (o *Offer) Preempts() { o.Preempted = true }

// Promise replaces the tasks that are promised to the offer.
func (o *Offer) Promise(all []Victim) { o.Promised = all }

// BookedFor returns the time for which the offer is booked; 0: it is not.
func (o *Offer) BookedFor() leaseclock.BootTime { return o.booked.at }

// booking is the time and the devices for which an offer is booked; zero if it is not.
type booking struct {
	at      leaseclock.BootTime
	devices []string
}

// forecastKind is what is known of the start of an offer.
type forecastKind int

const (
	unforeseen forecastKind = iota // nothing
	startsBy                       // it is booked
	keptAside                      // what is free is set aside for it until a time
	sharedOut                      // other tasks may have what is free until a time
)

// keptFor is the part of the free resources that is kept for one offer.
type keptFor struct {
	offer  *Offer
	below  bool // it is kept only from offers of a lower priority
	cpus   int
	memory job.Size
	milli  int                 // thousandths of each of the devices
	held   []string            // UUIDs of the devices
	until  leaseclock.BootTime // never: not known
	starts bool                // the offer is booked for that time
}

// forecast is what is known of the start of an offer.
type forecast struct {
	offer     *Offer
	kind      forecastKind
	at        leaseclock.BootTime
	elsewhere bool // nothing is kept for it, because another host has booked it
}

// rank orders offers by priority, then by the age of the job, then by name. The order is nearly the same on all hosts:
// the age leaves out the time for which the offer travelled, which differs from host to host. For gangs the order is
// exactly the same; see gangs.Add.
func rank(a, b *Offer) int {
	if n := cmp.Or(cmp.Compare(b.Msg.Precedence(), a.Msg.Precedence()), cmp.Compare(a.submitted, b.submitted)); n != 0 {
		return n
	}
	return cmp.Or(
		cmp.Compare(a.Msg.Order, b.Msg.Order), CompareAttempts(a.Msg.Attempt, b.Msg.Attempt),
		cmp.Compare(a.Key.Peer, b.Key.Peer), cmp.Compare(a.Key.ID, b.Key.ID),
	)
}

// CompareAttempts orders attempts by name.
func CompareAttempts(a, b job.Attempt) int {
	return cmp.Or(cmp.Compare(a.Job, b.Job), cmp.Compare(a.Task, b.Task), cmp.Compare(a.N, b.N))
}
