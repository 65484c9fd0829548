package scheduler

// The plan of a step: which waiting tasks are looked at, and in which order.

import "github.com/musterhq/muster/scheduler/fleet"

// planner looks at the waiting tasks once a step.
type planner struct {
	*turn
	hosts      *hosts
	search     *search
	pending    *pending
	placement  *placement
	dispatches *dispatches

	again bool // it stopped at a bound
}

// placing is what an attempt to place a task has led to.
type placing int

const (
	placed  placing = iota // an offer is under way
	paused                 // it is tried again after a pause
	blocked                // no host has room for it, nor for other tasks of its shape
)

// plan offers waiting tasks to hosts. Tasks that are new or back since the last plan may go to any host. Tasks that
// found no room before may go to hosts where something was freed since. Of several that could take the same room the
// first by rank is tried first.
func (pn *planner) plan() {
	pn.again = false
	if !pn.lead || pn.outgoing >= maxOutgoing {
		return
	}
	b := budget{tries: planLimit, looks: lookLimit}
	for len(pn.hosts.freed) > 0 && !b.spent(pn.turn) {
		w := pn.hosts.freed[0]
		if !pn.fill(w, &b) {
			break // it goes on there with the next step
		}
		w.resume = resume{}
		if w.again {
			w.again = false
			continue
		}
		w.freed = false
		pn.hosts.freed[0] = nil
		pn.hosts.freed = pn.hosts.freed[1:]
	}
	if len(pn.hosts.freed) == 0 {
		pn.hosts.freed = nil
		for g := pn.pending.ready.first(); g != nil && !b.spent(pn.turn); g = pn.pending.ready.first() {
			pn.tryFirst(g, &b)
		}
	}
	pn.again = (len(pn.hosts.freed) > 0 || pn.pending.ready.Len() > 0) && pn.outgoing < maxOutgoing
}

// tryFirst tries to place the first task of a shape, and parks the shape if that
// finds no room.
func (pn *planner) tryFirst(g *shape, b *budget) {
	b.tries--
	if pn.try(g.queue.first()) == blocked {
		pn.pending.park(g)
		pn.search.look(g.class, !pn.hosts.fleet.AnyOpen(&g.Shape))
	}
}

// fill offers parked and queued tasks to a host where something was freed, by rank. It is false if the budget was
// spent before the last of them.
func (pn *planner) fill(w *worker, b *budget) bool {
	for w.Open() && !b.spent(pn.turn) {
		parked, stopped := pn.placement.nextParked(w, b)
		if stopped {
			return false
		}
		queued, stopped := pn.placement.nextQueued(w, b)
		if stopped {
			return false
		}
		first := parked
		if first == nil || queued != nil && rank(queued, first) < 0 {
			first = queued
		}
		g := pn.pending.ready.first()
		switch {
		case first == nil:
			return true
		case g != nil && rank(g.queue.first(), first) < 0:
			pn.tryFirst(g, b)
		case first == queued:
			p := placeOf(queued)
			w.resume.queued = &p
			b.tries--
			pn.dispatches.offer(queued.dispatch, w, fleet.Queued, nil)
		default:
			p := placeOf(parked)
			w.resume.parked = &p
			b.tries--
			pn.try(parked)
		}
	}
	return !w.Open()
}

// try offers the task to a host where it fits now; if there is none, it has the task queue at full hosts.
func (pn *planner) try(t *task) placing {
	g := t.shape
	if until, all := t.avoid.full(pn.now); all {
		pn.pending.pause(t, until)
		return paused
	}
	pn.hosts.fleet.Count(pn.now)
	w, chosen := pn.placement.bestFit(t)
	if w != nil {
		pn.pending.dequeue(t)
		pn.pending.setWaiting(t, false)
		pn.dispatches.direct(t, w, chosen)
		return placed
	}
	if hosts := pn.placement.queueAt(t); len(hosts) > 0 {
		pn.pending.dequeue(t)
		pn.dispatches.offerQueued(t, hosts)
		pn.search.look(g.class, false)
		return placed
	}
	if until := pn.placement.soonest(t); !until.IsZero() {
		pn.pending.pause(t, until)
		return paused
	}
	return blocked
}
