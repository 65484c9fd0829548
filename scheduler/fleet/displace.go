package fleet

// Which requests may queue at a full host, and which queued claim they displace.
// See docs/adr, ADR 90, ADR 91 and ADR 93.

import (
	"slices"

	"github.com/musterhq/muster/internal/fairshare"
)

// MayQueue says whether a task may queue at the host. If there is no free place, it may be in place of another task.
func (t *Table) MayQueue(h *Host, r *Request) bool {
	if t.queue[h.row.slot] > r.Rank.Precedence() {
		return false
	}
	kind := leaver{}
	if i := slices.IndexFunc(h.row.kinds, func(k leaver) bool { return k.claim.alike(&r.Need, r.Limited, r.Gang) }); i >= 0 {
		kind = h.row.kinds[i]
	}
	_, ok := h.Claims.placeFor(r, &h.row.last, &kind)
	return ok
}

// Displaced returns the queued claim whose place the request takes; nil if none has to go.
func (h *Host) Displaced(r *Request) *Claim {
	cs := &h.Claims
	all, kind := cs.leaverOfAll(), cs.leaverOfKind(&r.Need, r.Limited, r.Gang)
	c, _ := cs.placeFor(r, &all, &kind)
	return c
}

// placeFor says whether a task may queue, and in place of which claim; nil if there is a free place. If no more tasks
// of its kind may queue, the claim is one of that kind. If usage counts and the account of the task has no claim of
// that kind, it is one of any kind.
func (cs *Claims) placeFor(r *Request, all, kind *leaver) (c *Claim, ok bool) {
	x := all
	if kind.claim != nil && (kind.claim.Rank.Share == (fairshare.Standing{}) || cs.youngest(r, true) != nil) {
		x = kind
	}
	switch {
	case x.claim == nil:
		return nil, true
	case x.yields(cs, r):
		return x.claim, true
	}
	if c = cs.youngest(r, x.kind); c != nil && r.Rank.CompareAge(&c.Rank) < 0 {
		return c, true
	}
	return nil, false
}

// yields reports whether the claim gives its place to a task.
//
// If usage counts, a higher priority always gets a place. Within a priority, an account with several claims gives up
// its youngest ones for an account that has none there and has used less of its share. It keeps its oldest one, because
// that may be the next to start at the host. If that claim lost its place whenever standings change, a task that needs
// much might never start. A gang that gathers gets the place of any claim that does not gather, and of a younger gang
// that gathers.
func (x *leaver) yields(cs *Claims, r *Request) bool {
	switch {
	case r.Gathers:
		return r.Rank.Precedence() > x.claim.Rank.Precedence() ||
			r.Rank.Precedence() == x.claim.Rank.Precedence() && (!x.claim.Gathers || r.Rank.CompareAge(&x.claim.Rank) < 0)
	case x.claim.Gathers:
		return r.Rank.Precedence() > x.claim.Rank.Precedence()
	case r.Rank.Compare(&x.bar) >= 0:
		return false
	case r.Rank.Precedence() > x.claim.Rank.Precedence() || x.claim.Rank.Share == (fairshare.Standing{}):
		return true
	}
	return cs.youngest(r, x.kind) == nil
}

// youngest returns the youngest queued claim of the account of a task, of the same kind or of any; nil if there is none
// that may lose its place to a task of the account.
func (cs *Claims) youngest(r *Request, kind bool) (last *Claim) {
	for _, c := range cs.all {
		if c.State == Queued && !c.Gathers && c.User == r.User && c.Project == r.Project && (!kind || c.alike(&r.Need, r.Limited, r.Gang)) &&
			(last == nil || last.Rank.CompareAge(&c.Rank) < 0) {
			last = c
		}
	}
	return last
}
