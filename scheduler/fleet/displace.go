package fleet

// Which requests may queue at a full host, and in whose place.
// See docs/adr, ADR 90 and ADR 91.

import (
	"slices"

	"github.com/musterhq/muster/share"
)

// MayQueue says whether a task may queue at the host, if need be in place of another one that does.
func (t *Table) MayQueue(h *Host, r *Request) bool {
	if t.queue[h.row.slot] > r.Rank.Priority {
		return false
	}
	x := &h.row.last
	if i := slices.IndexFunc(h.row.kinds, func(k leaver) bool { return k.claim.alike(&r.Need, r.Limited) }); i >= 0 {
		x = &h.row.kinds[i]
	}
	return x.claim == nil || x.yields(&h.Claims, r)
}

// Displaced returns the queued claim whose place the request takes; nil if none has to go. If no more of its kind may queue,
// it is one of those.
func (h *Host) Displaced(r *Request) *Claim {
	cs := &h.Claims
	x := cs.leaverOfKind(&r.Need, r.Limited)
	if x.claim == nil {
		x = cs.leaverOfAll()
	}
	if x.claim != nil && x.yields(cs, r) {
		return x.claim
	}
	return nil
}

// yields reports whether the claim gives its place to a task.
//
// If what accounts have used counts, a higher priority always gets a place. Of one priority, an account with several claims
// gives up its youngest ones for an account that has none there and has used less of its share. It keeps its oldest one:
// that may be the one whose turn it is at the host. If it lost its place whenever standings change, a task that needs much
// might never start.
func (x *leaver) yields(cs *Claims, r *Request) bool {
	switch {
	case r.Rank.Compare(&x.bar) >= 0:
		return false
	case r.Rank.Priority > x.claim.Rank.Priority || x.claim.Rank.Share == (share.Standing{}):
		return true
	}
	return !slices.ContainsFunc(cs.all, func(c *Claim) bool {
		return c.State == Queued && c.User == r.User && c.Project == r.Project && (!x.kind || c.alike(&r.Need, r.Limited))
	})
}
