package fleet

// Claims: what this scheduler's offers take of a host, or wait for there.

import (
	"slices"

	"github.com/musterhq/muster/job"
)

// maxClaims bounds the claims on one host. It is below contract.MaxOffers, so that the host can hold further offers that are
// about to be released.
const maxClaims = 48

// ClaimState is the state of a claim.
type ClaimState int

const (
	// Direct is a claim on free resources: its offer fitted when it was made.
	Direct ClaimState = iota
	// Queued is a claim that waits at a host until resources are free.
	Queued
	// Held is a claim for which the host has reserved resources: it has committed.
	Held
)

// Claim is what one offer takes of a host, or waits for there. Only methods of its host change it.
type Claim struct {
	ID      uint64 // of the offer
	User    string
	Project string
	Rank    Rank
	Need    job.Resources
	Devices []string // UUIDs of the devices that it takes; none while it is queued
	State   ClaimState
	Limited bool // the task has a time limit
	Gang    bool // it is a member of a gang
	Spare   bool // it is queued, does not fit, and the host keeps nothing for it
	// Elsewhere says that it is queued, does not fit, and other hosts keep what it needs. So any request may have what is
	// free.
	Elsewhere bool
	// Gathers says that the task is a gang that holds places at hosts and lacks others, where usage counts. Hosts let the
	// oldest of all gangs go first, whatever accounts have used. So it must be in the queue wherever younger gangs hold
	// what it lacks. Otherwise they would wait for its places, and it for theirs.
	Gathers bool
}

// Claims holds the claims on one host. Only methods of the host change it.
type Claims struct {
	all      []*Claim // oldest first
	queued   int      // how many of them are queued
	unleased int      // tasks without a claim that wait until the host has a lease
	// owed is what the host has reserved since it last said what is free. Its next message leaves these resources out
	// of what is free, whether the claims still exist or not.
	owed []taken
}

// taken is a part of the resources of a host.
type taken struct {
	need    job.Resources
	devices []string
}

func (cs *Claims) add(c *Claim) {
	cs.all = append(cs.all, c)
	if c.State == Queued {
		cs.queued++
	}
}

// remove removes a claim. It returns false if there was no such claim.
func (cs *Claims) remove(c *Claim) bool {
	i := slices.Index(cs.all, c)
	if i < 0 {
		return false
	}
	cs.all = slices.Delete(cs.all, i, i+1)
	if c.State == Queued {
		cs.queued--
	}
	return true
}

// hold notes that the host has reserved these devices for the claim.
func (cs *Claims) hold(c *Claim, devices []string) {
	if c.State == Queued {
		cs.queued--
	}
	c.State = Held
	cs.owed = append(cs.owed, taken{need: c.Need, devices: devices})
}

// IDs returns the ids of the claims, oldest first.
func (cs *Claims) IDs() []uint64 {
	ids := make([]uint64, len(cs.all))
	for i, c := range cs.all {
		ids[i] = c.ID
	}
	return ids
}

// Queued returns how many claims are queued.
func (cs *Claims) Queued() int { return cs.queued }

// QueuedAround returns how many queued claims have at least this priority, and how many have a lower one.
func (cs *Claims) QueuedAround(priority int) (before, after int) {
	if cs.queued == 0 {
		return 0, 0
	}
	for _, c := range cs.all {
		if c.State == Queued && c.Rank.Priority < priority {
			after++
		}
	}
	return cs.queued - after, after
}

// None says whether there is no claim and no task waits for the host's lease.
func (cs *Claims) None() bool { return len(cs.all)+cs.unleased == 0 }

// full says whether there is no room for a further claim.
func (cs *Claims) full() bool { return len(cs.all)+cs.unleased >= maxClaims }
