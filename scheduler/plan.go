package scheduler

// The plan of a step: which waiting tasks are placed, and in which order. It acts on what placement decides.

import (
	"slices"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/scheduler/fleet"
	"github.com/musterhq/muster/scheduler/place"
	"github.com/musterhq/muster/scheduler/search"
	"github.com/musterhq/muster/scheduler/step"
)

const lookLimit = 8192 // waiting tasks compared with hosts that got room in one step; each costs some 10 ns

// planner looks at the waiting tasks once a step.
type planner struct {
	*step.Turn
	hosts      *hosts
	search     *search.Search
	pending    *pending
	placement  *placement
	dispatches *dispatches
	gangs      *gangs
	allotments *allotments

	again bool // work is left for the next step
}

// budget bounds what one step tries. The rest is left to the next step.
type budget struct {
	tries int // placements
	looks int // parked and queued tasks that are compared with a host that got room
}

func (b *budget) spent(t *step.Turn) bool {
	return b.tries <= 0 || b.looks <= 0 || t.Outgoing >= step.MaxOutgoing
}

// plan offers waiting tasks to hosts. Tasks that are new or back since the last plan may go to any host. Tasks that
// found no room before may go to hosts where something was freed since. If several tasks could take the same room, the
// one that ranks first is tried first.
func (pn *planner) plan() {
	pn.again = false
	if !pn.Lead {
		return
	}
	defer pn.allotments.askAll()
	pn.allotments.look()
	pn.gangs.look()
	pn.dispatches.elections.lookAll()
	defer func() { pn.again = pn.again || len(pn.gangs.offers.due)+len(pn.gangs.offers.news) > 0 }()
	if pn.Outgoing >= step.MaxOutgoing {
		return
	}
	b := budget{tries: step.PlanLimit, looks: lookLimit}
	for len(pn.hosts.freed) > 0 && !b.spent(pn.Turn) {
		w := pn.hosts.freed[0]
		if !pn.fill(w, &b) {
			break // it goes on there with the next step
		}
		w.resume = resume{}
		if w.freedAgain {
			w.freedAgain = false
			continue
		}
		w.freed = false
		pn.hosts.freed[0] = nil
		pn.hosts.freed = pn.hosts.freed[1:]
	}
	if len(pn.hosts.freed) == 0 {
		pn.hosts.freed = nil
		for g := pn.pending.ready.first(); g != nil && !b.spent(pn.Turn); g = pn.pending.ready.first() {
			pn.tryFirst(g, &b)
		}
	}
	pn.again = (len(pn.hosts.freed) > 0 || pn.pending.ready.Len() > 0) && pn.Outgoing < step.MaxOutgoing
}

// tryFirst tries to place the first task of a shape. It parks the shape if that finds no room.
func (pn *planner) tryFirst(g *shape, b *budget) {
	b.tries--
	if pn.try(g.queue.first()) == place.Blocked {
		pn.pending.park(g)
		pn.search.Look(g.class, !pn.hosts.fleet.EnoughOpen(&g.Shape))
	}
}

// fill offers parked and queued tasks to a host where something was freed, by rank. It returns false if the budget was
// spent before the last of them.
func (pn *planner) fill(w *worker, b *budget) bool {
	for w.Open() && !b.spent(pn.Turn) {
		pn.hosts.fleet.Count(pn.Now)
		parked, stopped := pn.take(w, pn.placement.nextParked(w, &b.looks), &w.resume.parked)
		if stopped {
			return false
		}
		queued, stopped := pn.take(w, pn.placement.nextQueued(w, &b.looks), &w.resume.queued)
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
			if queued.dispatch.gang != nil {
				pn.gangs.seats.offerMore(queued.dispatch, w)
			} else {
				pn.dispatches.offer(queued.dispatch, w, fleet.Queued, nil, false)
			}
		default:
			p := placeOf(parked)
			w.resume.parked = &p
			b.tries--
			pn.try(parked)
		}
	}
	return !w.Open()
}

// take notes the result of a search for the host: when the host is compared with waiting tasks again, and where the next
// search goes on if this one found no task.
func (pn *planner) take(w *worker, found pick, resume **fleet.Rank) (t *task, stopped bool) {
	if !found.again.IsZero() {
		pn.hosts.askAgain(w, found.again)
	}
	if found.task == nil {
		*resume = found.stopped
	}
	return found.task, found.stopped != nil
}

// try decides where the task goes, and acts on the decision.
func (pn *planner) try(t *task) place.Verdict {
	if !pn.pending.mayGo(t.e, t.index) { // others of its job have gone since it was queued
		pn.pending.holdBack(t)
		return place.Pauses
	}
	if !pn.admits(t, t.shape.need()) {
		return place.Pauses
	}
	pn.hosts.fleet.Count(pn.Now)
	if t.e.job.Gang() > 1 {
		v := pn.gangs.begin(t)
		if v == place.Queues {
			pn.search.Look(t.shape.class, false)
		}
		return v
	}
	pn.gangs.neighbours.ofThisRack(t)
	d := pn.placement.decide(t, pn.hosts.anySlot())
	for _, a := range d.Again {
		pn.hosts.askAgain(pn.hosts.workers[a.Host.Peer], a.At)
	}
	if t.shape.Need.Exclusive && !pn.admits(t, mostOf(t, &d)) { // it holds all of its host
		return place.Pauses
	}
	switch d.Verdict {
	case place.Fits:
		pn.pending.dispatched(t)
		pn.pending.setWaiting(t, false)
		pn.dispatches.direct(t, pn.hosts.workers[d.Host.Peer], d.Devices, d.Why)
	case place.Queues:
		pn.pending.dispatched(t)
		pn.dispatches.offerQueued(t, d.Queue, d.Passed, d.Preempt, d.Why)
		pn.search.Look(t.shape.class, false)
	case place.Pauses:
		t.pause.placed = true
		pn.pending.pause(t, pauseForAvoided(pn.Turn, t, d.Until))
	case place.Blocked:
	}
	return d.Verdict
}

// mostOf returns the most that a task holds at any of the hosts where it is to go.
func mostOf(t *task, d *place.Decision) contract.Held {
	most := t.shape.need()
	for _, h := range append(d.Queue, d.Host) {
		most = most.Greatest(needAt(t, h))
	}
	return most
}

// admits reports whether the limits of its user in the cluster let the task hold this much. Tasks of the same user that
// rank after it, and only queue at hosts, make way for it. If it may not, its shape waits for an allotment.
func (pn *planner) admits(t *task, need contract.Held) bool {
	if pn.allotments.admits(t, need) || pn.makeWay(t, need) && pn.allotments.admits(t, need) {
		return true
	}
	pn.allotments.cap(t)
	return false
}

// makeWay takes back offers of other tasks of the user, until the task may go. It chooses tasks that only queue and rank
// after the task, the last one first. If all of them are not enough, it takes none back and returns false.
func (pn *planner) makeWay(t *task, need contract.Held) bool {
	room, _ := pn.allotments.room(t.e.job.User)
	room = room.Minus(pn.allotments.users[t.e.job.User].keptFrom(t))
	var back []*task
	for _, c := range slices.Backward(pn.pending.queued.chunks) {
		for _, w := range slices.Backward(c.waits) {
			x := w.task
			if x.e.holder != t.e.holder || rank(x, t) < 0 || !onlyQueues(x) {
				continue
			}
			back, room = append(back, x), room.Plus(x.holds)
			if room.Fits(need) > 0 {
				for _, x := range back {
					pn.dispatches.abandon(x.dispatch)
				}
				return true
			}
		}
	}
	return false
}

// onlyQueues reports whether no host holds anything for the task, or is about to.
func onlyQueues(t *task) bool {
	d := t.dispatch
	if d == nil || t.phase != offering || d.winner != nil {
		return false
	}
	if d.gang == nil {
		return true
	}
	n := d.seats()
	return n[seated]+n[promised] == 0
}
