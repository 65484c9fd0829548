package fleet

// Claims: what this scheduler's offers take of a host, or wait for there.

import (
	"slices"

	"github.com/musterhq/muster/job"
)

// ClaimState is how far a claim has come.
type ClaimState int

const (
	// Direct is a claim on what is free: its offer fitted when it was made.
	Direct ClaimState = iota
	// Queued is a claim that waits at a full host until something is free.
	Queued
	// Held is a claim that the host has committed itself to.
	Held
)

// Claim is what one offer takes of a host, or waits for there. Only the host's methods change its state.
type Claim struct {
	ID      uint64 // the offer's
	User    string
	Rank    Rank
	Need    job.Resources
	Devices []string // UUIDs of those that it takes; none while it is queued
	State   ClaimState
}

// claims are those on one host.
type claims struct {
	all      []*Claim // oldest first
	queued   int      // of them
	unleased int      // further tasks that wait until the host has a lease; they take nothing
	// owed are the claims that the host committed itself to since it last said what is free. What it says next has
	// them in it, whether they are among all still or not.
	owed []taken
}

// taken is a part of a host's resources.
type taken struct {
	need    job.Resources
	devices []string
}

func (cs *claims) add(c *Claim) {
	cs.all = append(cs.all, c)
	if c.State == Queued {
		cs.queued++
	}
}

// remove takes a claim out; false if it was not in.
func (cs *claims) remove(c *Claim) bool {
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
func (cs *claims) hold(c *Claim, devices []string) {
	if c.State == Queued {
		cs.queued--
	}
	c.State = Held
	cs.owed = append(cs.owed, taken{need: c.Need, devices: devices})
}

// last is the last by rank of the claims that may queue, if as many do; nil if there is a place. Those behind it
// queue as well: they were made because they fitted.
func (cs *claims) last() *Claim {
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
