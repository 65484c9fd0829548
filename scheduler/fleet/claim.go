package fleet

// Claims: what this scheduler's offers take of a host, or wait for there.

import (
	"slices"

	"github.com/musterhq/muster/job"
)

const (
	// maxClaims bounds the claims on one host. It is below lease.MaxOffers, so that the host can hold further offers
	// that are about to be released.
	maxClaims = 48
	// MaxQueued bounds the tasks that are made to queue at one full host and ask for the same, those with and those
	// without a time limit apart. So jobs that wait for more than a host has free leave places for those that could run
	// there meanwhile.
	MaxQueued = 8
	// MaxQueuedAll bounds all tasks that are made to queue at one full host.
	MaxQueuedAll = 4 * MaxQueued
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
	Rank    Rank
	Need    job.Resources
	Devices []string // UUIDs of the devices that it takes; none while it is queued
	State   ClaimState
	Limited bool // the task has a time limit
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

// asked is what queued claims ask for. A host may have room for one kind, and keep none for another.
type asked struct {
	need    job.Resources
	limited bool
}

func (c *Claim) asked() asked { return asked{c.Need, c.Limited} }

// GivesWay returns the queued claim whose place a claim of this kind takes if it ranks before that: the MaxQueued-th of its
// kind by rank, or the MaxQueuedAll-th of all. It returns nil if there is a place. Claims behind that one stay: they were
// queued because they fitted at the host at the time.
func (cs *Claims) GivesWay(need job.Resources, limited bool) *Claim {
	k := asked{need, limited}
	if last := cs.lastOf(MaxQueued, func(c *Claim) bool { return c.asked() == k }); last != nil {
		return last
	}
	return cs.lastOf(MaxQueuedAll, func(*Claim) bool { return true })
}

// lastOf returns the n-th by rank of the queued claims that are chosen; nil if there are fewer.
func (cs *Claims) lastOf(n int, chosen func(*Claim) bool) *Claim {
	if cs.queued < n {
		return nil
	}
	queued := make([]*Claim, 0, cs.queued)
	for _, c := range cs.all {
		if c.State == Queued && chosen(c) {
			queued = append(queued, c)
		}
	}
	if len(queued) < n {
		return nil
	}
	slices.SortFunc(queued, func(a, b *Claim) int { return a.Rank.Compare(&b.Rank) })
	return queued[n-1]
}

// fullKinds returns for each kind with MaxQueued queued claims the one that gives way. They are at most MaxQueuedAll /
// MaxQueued and one or two.
func (cs *Claims) fullKinds(out []*Claim) []*Claim {
	out = out[:0]
	if cs.queued < MaxQueued {
		return out
	}
	for i, c := range cs.all {
		if c.State != Queued || slices.ContainsFunc(cs.all[:i], func(b *Claim) bool { return b.State == Queued && b.asked() == c.asked() }) {
			continue
		}
		if last := cs.lastOf(MaxQueued, func(b *Claim) bool { return b.asked() == c.asked() }); last != nil {
			out = append(out, last)
		}
	}
	return out
}

// None says whether there is no claim and no task waits for the host's lease.
func (cs *Claims) None() bool { return len(cs.all)+cs.unleased == 0 }

// full says whether there is no room for a further claim.
func (cs *Claims) full() bool { return len(cs.all)+cs.unleased >= maxClaims }
