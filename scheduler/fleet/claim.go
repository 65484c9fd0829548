package fleet

// Claims: what this scheduler's offers take of a host, or wait for there.

import (
	"slices"

	"github.com/musterhq/muster/job"
)

const (
	// maxClaims bounds the claims on one host. It is below lease.MaxOffers, so that late ones fit.
	maxClaims = 48
	// MaxQueued bounds the claims that were made to queue at one full host.
	MaxQueued = 8
)

// ClaimState is how far a claim has come.
type ClaimState int

const (
	// Direct is a claim on what is free: its offer fitted when it was made.
	Direct ClaimState = iota
	// Queued is a claim that waits at a host until something is free.
	Queued
	// Held is a claim that the host has committed itself to.
	Held
)

// Claim is what one offer takes of a host, or waits for there. Only Host.Hold changes its state.
type Claim struct {
	ID      uint64 // the offer's
	User    string
	Rank    Rank
	Need    job.Resources
	Devices []string // UUIDs of those that it takes; none while it is queued
	State   ClaimState
}

// Claims are those on one host. Methods of the host change them.
type Claims struct {
	all      []*Claim // oldest first
	queued   int      // of them
	unleased int      // further tasks that wait until the host has a lease; they take nothing
	// owed is what the host committed itself to since it last said what is free. Its next word has all that in it,
	// whether the claims are still there or not.
	owed []taken
}

// taken is a part of a host's resources.
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

// remove takes a claim out; false if it was not in.
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

// hold notes that the host has committed itself to the claim, with these devices.
func (cs *Claims) hold(c *Claim, devices []string) {
	if c.State == Queued {
		cs.queued--
	}
	c.State = Held
	cs.owed = append(cs.owed, taken{need: c.Need, devices: devices})
}

// IDs lists the ids of the claims, oldest first.
func (cs *Claims) IDs() []uint64 {
	ids := make([]uint64, len(cs.all))
	for i, c := range cs.all {
		ids[i] = c.ID
	}
	return ids
}

// Queued counts the claims that queue.
func (cs *Claims) Queued() int { return cs.queued }

// LastQueued is the claim that gives way to one that ranks before it: the MaxQueued-th by rank of those that queue;
// nil if fewer do. Those behind it stay: they were offered to the host since they fitted there.
func (cs *Claims) LastQueued() *Claim {
	if cs.queued < MaxQueued {
		return nil
	}
	queued := make([]*Claim, 0, cs.queued)
	for _, c := range cs.all {
		if c.State == Queued {
			queued = append(queued, c)
		}
	}
	slices.SortFunc(queued, func(a, b *Claim) int { return a.Rank.Compare(&b.Rank) })
	return queued[MaxQueued-1]
}

// None says whether there is no claim, and nothing waits for the host's lease.
func (cs *Claims) None() bool { return len(cs.all)+cs.unleased == 0 }

// full says whether there are as many claims as may be.
func (cs *Claims) full() bool { return len(cs.all)+cs.unleased >= maxClaims }
