package scheduler

// Which tasks of a user wait for an allotment, in which order they start, and what is kept for them.

import (
	"slices"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
)

// capped are the shapes of a user whose tasks wait for an allotment.
type capped struct {
	hosts  *hosts
	user   string
	shapes map[*shape]struct{} // some of them may no longer wait; see awaits
	head   *shape              // the first one when it was last looked up; see first
}

func newCapped(hs *hosts, user string) capped {
	return capped{hosts: hs, user: user, shapes: map[*shape]struct{}{}}
}

// add makes a shape wait.
func (x *capped) add(g *shape) {
	g.capped = true
	x.shapes[g] = struct{}{}
	if h := x.first(); h == nil || byFirst(g, h) < 0 {
		x.head = g
	}
}

// need is what a task of the shape holds, with the other members of its gang.
func (g *shape) need() (h contract.Held) {
	h.Add(g.Need, max(1, g.Gang))
	return h
}

// keptFrom returns what is kept from a task for another one of the user, which has a higher priority.
func (x *capped) keptFrom(t *task) contract.Held {
	if g := x.goesFirst(t.shape, t.priority()); g != nil {
		return g.need()
	}
	return contract.Held{}
}

// goesFirst returns the shape that waits for an allotment and goes before tasks of shape g with this priority; nil if
// there is none.
func (x *capped) goesFirst(g *shape, priority int) *shape {
	if h := x.first(); h != nil && h != g && h.queue.first().priority() > priority && x.startable(h) {
		return h
	}
	return nil
}

// first returns the first of the shapes that wait for an allotment; nil if there is none.
func (x *capped) first() *shape {
	if len(x.shapes) == 0 {
		return nil
	}
	if x.head == nil || !x.head.awaits() || !x.possible(x.head) {
		x.head = nil
		if all := x.waiting(1); len(all) > 0 {
			x.head = all[0]
		}
	}
	return x.head
}

// awaits reports whether tasks of the shape wait for an allotment.
func (g *shape) awaits() bool { return g.capped && g.queue.len() > 0 }

// possible reports whether the limits can ever allow a task of the shape. They may have been lowered.
func (x *capped) possible(g *shape) bool {
	most, _ := x.hosts.Config.Limits.InCluster(x.user)
	return most.Fits(g.need()) > 0
}

// startable reports whether hosts that can run the shape take tasks now. If not, nothing is kept for it.
func (x *capped) startable(g *shape) bool { return x.hosts.fleet.EnoughOpen(&g.Shape) }

// mostWaiting bounds the shapes of a user that are looked at.
const mostWaiting = 64

// waiting returns the shapes of the user that wait for an allotment, by the rank of their first tasks; at most n.
func (x *capped) waiting(n int) (first []*shape) {
	most, _ := x.hosts.Config.Limits.InCluster(x.user)
	for g := range x.shapes {
		switch {
		case !g.awaits():
			delete(x.shapes, g)
			continue
		case most.Fits(g.need()) == 0, len(first) == n && byFirst(g, first[n-1]) > 0:
			continue
		}
		at, _ := slices.BinarySearchFunc(first, g, byFirst)
		first = slices.Insert(first, at, g)
		first = first[:min(len(first), n)]
	}
	return first
}

// byFirst orders shapes by the rank of their first tasks.
func byFirst(g, h *shape) int { return rank(g.queue.first(), h.queue.first()) }

// elements counts the elements of jobs that wait in the queue of the shape, up to most.
func (g *shape) elements(most int) (n int) {
	if most <= 0 {
		return 0
	}
	for _, t := range g.queue.items() {
		if n += max(1, t.waiting/t.e.job.Gang()); n >= most {
			return most
		}
	}
	return n
}

// parts divides room among the waiting shapes of the user, by their rank. It returns how many elements of each may
// start, and what that takes. A task that is too large for what is left does not delay others of its own priority. But
// what it needs is kept from those of a lower priority, and counts as taken.
func (x *capped) parts(room contract.Held) (counts map[*shape]int, sum contract.Held) {
	counts = map[*shape]int{}
	level, kept := job.MaxPriority, contract.Held{}
	keep := func() {
		sum = sum.Plus(kept.Least(room).Greatest(contract.Held{}))
		room, kept = room.Minus(kept), contract.Held{}
	}
	for _, g := range x.waiting(mostWaiting) {
		if p := g.queue.first().priority(); p < level {
			keep()
			level = p
		}
		need := g.need()
		most := room.Fits(need)
		if !x.startable(g) { // to be tried, so that it waits for hosts
			counts[g] = min(most, 1)
			continue
		}
		n := g.elements(most)
		counts[g], room, sum = n, room.Minus(need.Times(n)), sum.Plus(need.Times(n))
		if g.elements(n+1) > n {
			kept = kept.Greatest(need)
		}
	}
	keep()
	return counts, sum
}

// fitting returns how much of the room the waiting tasks of the user can use, including what is kept for them.
func (x *capped) fitting(room contract.Held) contract.Held {
	_, sum := x.parts(room)
	return sum
}
