package fleet

// Places in the queue of a full host: how many there are, and which claim gives up its place to another task.
// See docs/adr, ADR 90, ADR 91 and ADR 93.

import (
	"slices"

	"github.com/musterhq/muster/internal/fairshare"
	"github.com/musterhq/muster/job"
)

const (
	// MaxQueued bounds the tasks of one kind that are made to queue at one full host. Tasks of one kind have the same
	// need, and all or none of them have a time limit and are members of a gang. So jobs that wait for more than a host
	// has free leave places for those that could run there in the meantime. If usage counts, the first task of each
	// account does not count: otherwise an account whose older tasks find their kind full would run its younger tasks of
	// another kind, for as long as there are any.
	MaxQueued = 8
	// MaxQueuedAll bounds all tasks that are made to queue at one full host.
	MaxQueuedAll = 4 * MaxQueued
)

// alike reports whether a claim is of this kind. A host may have room for one kind, and none for another.
func (c *Claim) alike(need *job.Resources, limited, gang bool) bool {
	return c.Limited == limited && c.Gang == gang && c.Need == *need
}

// leaver is the queued claim that gives up its place to some tasks that rank before the bar; see yields.
type leaver struct {
	claim *Claim // nil: there is a place
	bar   Rank
	kind  bool // chosen among the claims of its kind, not among all
}

// leavers returns the claim that gives up its place among all queued ones, and one for each kind of which no more may
// queue.
func (cs *Claims) leavers(out []leaver) (all leaver, kinds []leaver) {
	kinds = out[:0]
	if cs.queued < MaxQueued {
		return leaver{}, kinds
	}
	for i, c := range cs.all {
		if c.State != Queued || slices.ContainsFunc(cs.all[:i], func(b *Claim) bool { return b.State == Queued && b.alike(&c.Need, c.Limited, c.Gang) }) {
			continue
		}
		if x := cs.leaverOfKind(&c.Need, c.Limited, c.Gang); x.claim != nil {
			kinds = append(kinds, x)
		}
	}
	return cs.leaverOfAll(), kinds
}

func (cs *Claims) leaverOfKind(need *job.Resources, limited, gang bool) leaver {
	if cs.queued < MaxQueued {
		return leaver{}
	}
	var buf [maxClaims]*Claim
	queued := buf[:0]
	for _, c := range cs.all {
		if c.State == Queued && c.alike(need, limited, gang) {
			queued = append(queued, c)
		}
	}
	x := leaverOf(queued, MaxQueued)
	x.kind = true
	if x.claim != nil && x.claim.Rank.Share != (fairshare.Standing{}) {
		x.bar = Rank{Priority: x.bar.Priority, Level: x.bar.Level} // an account without a claim of the kind needs none of these places
	}
	return x
}

func (cs *Claims) leaverOfAll() leaver {
	if cs.queued < MaxQueuedAll {
		return leaver{}
	}
	var buf [maxClaims]*Claim
	queued := buf[:0]
	for _, c := range cs.all {
		if c.State == Queued {
			queued = append(queued, c)
		}
	}
	return leaverOf(queued, MaxQueuedAll)
}

// leaverOf returns which of these queued claims gives up its place. There are places for n. It sorts the claims. Those
// behind the n-th stay: they were queued because they fitted at the host at the time. A gang that gathers gives up its
// place only if all claims of its priority and of higher ones gather.
func leaverOf(queued []*Claim, n int) leaver {
	if len(queued) < n {
		return leaver{}
	}
	slices.SortFunc(queued, (*Claim).compare)
	last := queued[n-1]
	if last.Rank.Share == (fairshare.Standing{}) || last.Gathers {
		return leaver{claim: last, bar: last.Rank}
	}
	for _, c := range slices.Backward(queued) { // the account with several that has used most gives up its youngest
		if c.Rank.Precedence() == last.Rank.Precedence() && !c.Gathers && several(queued, c) {
			return leaver{claim: c, bar: Rank{Priority: c.Rank.Priority, Level: c.Rank.Level, Share: c.Rank.Share}}
		}
	}
	return leaver{claim: last, bar: Rank{Priority: last.Rank.Priority, Level: last.Rank.Level}}
}

// compare orders claims by rank. Gangs that gather come before the other claims of their priority, the oldest first.
func (c *Claim) compare(d *Claim) int {
	switch {
	case c.Rank.Precedence() != d.Rank.Precedence() || !c.Gathers && !d.Gathers:
		return c.Rank.Compare(&d.Rank)
	case c.Gathers && d.Gathers:
		return c.Rank.CompareAge(&d.Rank)
	case c.Gathers:
		return -1
	}
	return 1
}

// several reports whether the account of a claim has an older claim among these.
func several(queued []*Claim, c *Claim) bool {
	return slices.ContainsFunc(queued, func(x *Claim) bool {
		return x != c && x.User == c.User && x.Project == c.Project && x.Rank.Born.Before(c.Rank.Born)
	})
}
