package fleet

// Claims: what this scheduler's offers take of a host, or wait for there.

import (
	"slices"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/share"
)

const (
	// maxClaims bounds the claims on one host. It is below lease.MaxOffers, so that the host can hold further offers
	// that are about to be released.
	maxClaims = 48
	// MaxQueued bounds the tasks that are made to queue at one full host.
	MaxQueued = 8
	// maxAlone bounds them while each is of another account. So tasks that wait long, because other schedulers have older
	// ones of the same users, do not keep out all other users.
	maxAlone = 24
)

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

// Claim is what one offer takes of a host, or waits for there. Only Host.Hold changes its state.
type Claim struct {
	ID      uint64 // of the offer
	User    string
	Project string
	Rank    Rank
	Need    job.Resources
	Devices []string // UUIDs of the devices that it takes; none while it is queued
	State   ClaimState
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

// LastQueued returns the queued claim that a task with a better rank may replace: the MaxQueued-th by rank. It returns
// nil if fewer are queued. Claims behind that one stay: they were queued because they fitted at the host at the time.
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

// yielding returns the queued claim that gives up its place to some tasks that rank before the bar; see yields. It returns
// nil if there is a place.
func (cs *Claims) yielding() (c *Claim, bar Rank) {
	last := cs.LastQueued()
	if last == nil || last.Rank.Share == (share.Standing{}) {
		if last != nil {
			bar = last.Rank
		}
		return last, bar
	}
	c = nil
	for _, x := range cs.all {
		if x.State != Queued || x.Rank.Priority != last.Rank.Priority || !cs.several(x) {
			continue
		}
		if n := 0; c != nil {
			if n = x.Rank.Share.Compare(c.Rank.Share); n == 0 {
				n = x.Rank.Born.Compare(c.Rank.Born)
			}
			if n < 0 {
				continue
			}
		}
		c = x
	}
	switch {
	case c != nil:
		return c, Rank{Priority: c.Rank.Priority, Share: c.Rank.Share}
	case cs.queued < maxAlone:
		return nil, bar
	}
	return last, Rank{Priority: last.Rank.Priority}
}

// yields reports whether a claim gives its place to a task. Claim and bar are those of yielding.
//
// A higher priority always gets a place. Of one priority, an account with several claims gives up its youngest ones for
// an account that has none there and has used less of its share. It keeps its oldest one: that may be the one whose turn
// it is at the host. If it lost its place whenever standings change, a task that needs much might never start.
func (cs *Claims) yields(c *Claim, bar *Rank, who share.Account, r *Rank) bool {
	switch {
	case r.Compare(bar) >= 0:
		return false
	case r.Priority > c.Rank.Priority || c.Rank.Share == (share.Standing{}):
		return true
	}
	return !slices.ContainsFunc(cs.all, func(x *Claim) bool { return x.State == Queued && x.User == who.User && x.Project == who.Project })
}

// Displaced returns the queued claim whose place a task of an account takes; nil if none has to go.
func (cs *Claims) Displaced(who share.Account, r *Rank) *Claim {
	if c, bar := cs.yielding(); c != nil && cs.yields(c, &bar, who, r) {
		return c
	}
	return nil
}

// several reports whether the account of a queued claim has an older one that is queued, too.
func (cs *Claims) several(c *Claim) bool {
	return slices.ContainsFunc(cs.all, func(x *Claim) bool {
		return x != c && x.State == Queued && x.User == c.User && x.Project == c.Project && x.Rank.Born.Before(c.Rank.Born)
	})
}

// None says whether there is no claim and no task waits for the host's lease.
func (cs *Claims) None() bool { return len(cs.all)+cs.unleased == 0 }

// full says whether there is no room for a further claim.
func (cs *Claims) full() bool { return len(cs.all)+cs.unleased >= maxClaims }
