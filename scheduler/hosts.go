package scheduler

// The table of known hosts: what a placement compares first lies together, so
// that a search over ten thousand hosts costs microseconds.

import (
	"slices"
	"time"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/lease"
)

// hosts is the table. A host keeps its slot for as long as it is known.
type hosts struct {
	all    []*worker   // by slot; nil where a host was forgotten
	left   []footprint // by slot: what is neither held nor promised; nothing if no offer may go there
	most   []footprint // by slot: what it could ever give
	queue  []int       // by slot: a task of this priority or above may queue there, if it ranks before the last that does
	vacant []int       // slots without a host
	stale  []*worker   // whose left and queue are to be counted again
	pools  map[string]*pool
}

func newHosts() hosts { return hosts{pools: map[string]*pool{}} }

// nobody is above every priority, anybody below.
const (
	nobody  = job.MaxPriority + 1
	anybody = -1
)

// add gives a host a slot.
func (h *hosts) add(w *worker) {
	w.table = h
	if n := len(h.vacant); n > 0 {
		w.slot = h.vacant[n-1]
		h.vacant = h.vacant[:n-1]
		h.all[w.slot] = w
	} else {
		w.slot = len(h.all)
		h.all = append(h.all, w)
		h.left = append(h.left, nothing)
		h.most = append(h.most, nothing)
		h.queue = append(h.queue, nobody)
	}
	h.profiled(w)
}

// remove forgets a host.
func (h *hosts) remove(w *worker) {
	h.all[w.slot] = nil
	h.left[w.slot], h.most[w.slot], h.queue[w.slot] = nothing, nothing, nobody
	h.vacant = append(h.vacant, w.slot)
	for _, p := range h.pools {
		p.has.set(w.slot, false)
	}
	w.table = nil
}

// profiled takes note of what a host could ever give.
func (h *hosts) profiled(w *worker) {
	h.most[w.slot] = footprintOfProfile(&w.profile)
	for _, p := range h.pools {
		p.has.set(w.slot, meets(p.clauses, &w.profile))
	}
	h.touch(w)
}

// touch says that what is left of a host has changed.
func (h *hosts) touch(w *worker) {
	w.room, w.rest = nil, nil
	if !w.stale {
		w.stale = true
		h.stale = append(h.stale, w)
	}
}

// count brings the table up to date.
func (h *hosts) count(now time.Time) {
	for _, w := range h.stale {
		w.stale = false
		if w.table != h {
			continue // forgotten
		}
		h.left[w.slot], h.queue[w.slot] = nothing, nobody
		if !w.open() || w.full() || w.leaseless || w.deafUntil.After(now) {
			continue
		}
		h.left[w.slot] = footprintOfFree(w.less())
		h.queue[w.slot] = anybody
		if w.lastOut = w.lastQueued(); w.lastOut != nil {
			h.queue[w.slot] = w.lastOut.flight.task.e.job.Spec.Priority
		}
	}
	h.stale = h.stale[:0]
}

// pool is the set of the hosts that meet a request's clauses, but for its
// numbers of CPUs and bytes of memory. Requests of the same clauses share one.
type pool struct {
	key     string
	clauses []clause
	has     bitset // slots
	groups  int    // that look for hosts in it
}

// pool finds the pool of the clauses, or makes it.
func (h *hosts) pool(key string, clauses []clause) *pool {
	p := h.pools[key]
	if p == nil {
		p = &pool{key: key, clauses: clauses}
		for slot, w := range h.all {
			if w != nil {
				p.has.set(slot, meets(clauses, &w.profile))
			}
		}
		h.pools[key] = p
	}
	return p
}

// could says whether the host could ever run the group's tasks, as far as it is
// known.
func (h *hosts) could(g *group, w *worker) bool {
	return g.pool.has.at(w.slot) && g.foot.within(h.most[w.slot]) && !g.refusedBy(w)
}

// candidates are the known hosts that could ever run the group's tasks.
func (h *hosts) candidates(g *group) func(yield func(*worker) bool) {
	return func(yield func(*worker) bool) {
		for _, w := range h.all {
			if w != nil && h.could(g, w) && !yield(w) {
				return
			}
		}
	}
}

// anyOpen says whether one of the hosts that could run the group's tasks takes
// tasks at all.
func (h *hosts) anyOpen(g *group) bool {
	for w := range h.candidates(g) {
		if w.open() {
			return true
		}
	}
	return false
}

// withRoom are the hosts in which the group's tasks may fit now, from the slot on
// and round.
func (h *hosts) withRoom(g *group, from int) func(yield func(*worker) bool) {
	return func(yield func(*worker) bool) {
		foot := g.foot
		for _, part := range [][2]int{{from, len(h.left)}, {0, from}} {
			for slot := part[0]; slot < part[1]; slot++ {
				if !foot.within(h.left[slot]) || !g.pool.has.at(slot) {
					continue
				}
				if w := h.all[slot]; !g.refusedBy(w) && !yield(w) {
					return
				}
			}
		}
	}
}

// queueLooks bounds the full hosts that are looked at for a place to queue: where
// so many have none, it is waited for.
const queueLooks = 256

// withQueue are the hosts at which the task may queue, likewise.
func (h *hosts) withQueue(t *task, from int) func(yield func(*worker) bool) {
	g, priority := t.group, t.e.job.Spec.Priority
	return func(yield func(*worker) bool) {
		looks := 0
		for _, part := range [][2]int{{from, len(h.queue)}, {0, from}} {
			for slot := part[0]; slot < part[1]; slot++ {
				if h.queue[slot] > priority || !g.pool.has.at(slot) {
					continue
				}
				w := h.all[slot]
				if h.mayQueue(w, t) && h.could(g, w) && !yield(w) {
					return
				}
				if looks++; looks >= queueLooks {
					return
				}
			}
		}
	}
}

// mayQueue says whether the task may queue at the host, if need be in place of the
// last that does.
func (h *hosts) mayQueue(w *worker, t *task) bool {
	switch queue := h.queue[w.slot]; {
	case queue == anybody:
		return true
	case queue > t.e.job.Spec.Priority:
		return false
	}
	return rank(t, w.lastOut.flight.task) < 0
}

// bitset is a set of small numbers.
type bitset []uint64

func (b bitset) at(i int) bool { return i>>6 < len(b) && b[i>>6]&(1<<(i&63)) != 0 }

func (b *bitset) set(i int, to bool) {
	if need := i>>6 + 1 - len(*b); need > 0 {
		if !to {
			return
		}
		*b = append(*b, slices.Repeat([]uint64{0}, need)...)
	}
	if to {
		(*b)[i>>6] |= 1 << (i & 63)
	} else {
		(*b)[i>>6] &^= 1 << (i & 63)
	}
}

// full says whether as many offers are under way to the host as may be.
func (w *worker) full() bool { return len(w.offers)+len(w.waiting) >= offersLimit }

// lastQueued is the last by rank of the offers that may queue at the host, where as
// many do; nil if there is a place. Those behind it queue as well: they were
// offered since they fitted.
func (w *worker) lastQueued() *offer {
	if w.standing < standingLimit {
		return nil
	}
	var queued []*offer
	for _, o := range w.offers {
		if o.standing && o.flight.winner == nil {
			queued = append(queued, o)
		}
	}
	if len(queued) < standingLimit {
		return nil
	}
	slices.SortFunc(queued, func(a, b *offer) int { return rank(a.flight.task, b.flight.task) })
	return queued[standingLimit-1]
}

// less is what is left of what the host has told, less what is committed and
// offered.
func (w *worker) less() *lease.Free {
	if w.room == nil {
		w.room = w.lessCommitted()
	}
	return w.room
}
