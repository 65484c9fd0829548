package scheduler

// Placement: which waiting task is offered to which host.

import (
	"cmp"
	"slices"
	"time"

	"github.com/musterhq/muster/scheduler/fleet"
	"github.com/musterhq/muster/scheduler/policy"
)

// placing is what an attempt to place a task has led to.
type placing int

const (
	placed  placing = iota // an offer is under way
	paused                 // it is tried again after a pause
	blocked                // no host has room for it, nor for other tasks of its group
)

// plan offers waiting tasks to hosts. Tasks that are new or back since the last plan may go to any host. Tasks that
// found no room before may go to hosts where something was freed since. Of several that could take the same room the
// first by rank is tried first.
func (c *Core) plan() {
	c.again = false
	if !c.lead || c.outgoing >= maxOutgoing {
		return
	}
	b := budget{tries: planLimit, looks: lookLimit}
	for len(c.freedHosts) > 0 && !b.spent(c) {
		w := c.freedHosts[0]
		if !c.fill(w, &b) {
			break // it goes on there with the next step
		}
		w.resume = resume{}
		if w.again {
			w.again = false
			continue
		}
		w.freed = false
		c.freedHosts[0] = nil
		c.freedHosts = c.freedHosts[1:]
	}
	if len(c.freedHosts) == 0 {
		c.freedHosts = nil
		for g := c.ready.first(); g != nil && !b.spent(c); g = c.ready.first() {
			c.tryFirst(g, &b)
		}
	}
	c.again = (len(c.freedHosts) > 0 || c.ready.Len() > 0) && c.outgoing < maxOutgoing
}

// budget bounds what one step tries. The rest is left to the next step.
type budget struct {
	tries int // placements
	looks int // parked and queued tasks that are compared with a host that got room
}

func (b *budget) spent(c *Core) bool {
	return b.tries <= 0 || b.looks <= 0 || c.outgoing >= maxOutgoing
}

// tryFirst tries to place the first task of a group, and parks the group if that
// finds no room.
func (c *Core) tryFirst(g *group, b *budget) {
	b.tries--
	if c.try(g.queue.first()) == blocked {
		c.park(g)
		c.look(g.class, !c.fleet.AnyOpen(&g.Shape))
	}
}

// resume is where a search of the waiting tasks goes on that one step did not finish.
type resume struct{ parked, queued *fleet.Rank }

// fill offers parked and queued tasks to a host where something was freed, by rank. It is false if the budget was
// spent before the last of them.
func (c *Core) fill(w *worker, b *budget) bool {
	for w.Open() && !b.spent(c) {
		parked, stopped := c.nextParked(w, b)
		if stopped {
			return false
		}
		queued, stopped := c.nextQueued(w, b)
		if stopped {
			return false
		}
		first := parked
		if first == nil || queued != nil && rank(queued, first) < 0 {
			first = queued
		}
		g := c.ready.first()
		switch {
		case first == nil:
			return true
		case g != nil && rank(g.queue.first(), first) < 0:
			c.tryFirst(g, b)
		case first == queued:
			p := placeOf(queued)
			w.resume.queued = &p
			b.tries--
			c.offer(queued.flight, w, fleet.Queued, nil)
		default:
			p := placeOf(parked)
			w.resume.parked = &p
			b.tries--
			c.try(parked)
		}
	}
	return !w.Open()
}

// nextParked is the first parked task, of those not looked at yet, that fits at the host now or may queue there.
func (c *Core) nextParked(w *worker, b *budget) (t *task, stopped bool) {
	c.fleet.Count(c.now)
	lim := limits{left: c.fleet.Left(w.Host), most: c.fleet.Most(w.Host)}
	lim.queues, lim.before = c.fleet.Queue(w.Host)
	t, at := c.parked.next(w.resume.parked, lim, &b.looks, func(t *task) bool { return c.mayTry(t, w) })
	if t == nil {
		w.resume.parked = at
	}
	return t, at != nil
}

// mayTry says whether the parked task would find room at the host, or a place in its queue.
func (c *Core) mayTry(t *task, w *worker) bool {
	if !c.fleet.Could(&t.group.Shape, w.Host) || t.group.OverQuota(w.Host) != "" {
		return false
	}
	if a, against := c.avoided(t, w.Peer); against && a.hard {
		c.askAgain(w, a.until)
		return false
	}
	r := t.request()
	if c.fleet.MayQueue(w.Host, &r.Rank) {
		return true
	}
	if a, against := c.avoided(t, w.Peer); against && a.kept {
		return false
	}
	return r.Foot.Within(c.fleet.Left(w.Host)) && r.FitsNow(w.Host)
}

// nextQueued is the first task, of those not looked at yet, that queues at other hosts and fits at this one now.
func (c *Core) nextQueued(w *worker, b *budget) (t *task, stopped bool) {
	c.fleet.Count(c.now)
	t, at := c.queued.next(w.resume.queued, limits{left: c.fleet.Left(w.Host)}, &b.looks, func(t *task) bool {
		return len(t.flight.offers) < spreadMost && c.couldAlso(t, w)
	})
	if t == nil {
		w.resume.queued = at
	}
	return t, at != nil
}

// couldAlso says whether a task that queues elsewhere fits at this host now.
func (c *Core) couldAlso(t *task, w *worker) bool {
	if t.flight.at(w.Host) {
		return false
	}
	r := t.request()
	if !c.fleet.Could(r.Shape, w.Host) || r.OverQuota(w.Host) != "" || !r.FitsNow(w.Host) {
		return false
	}
	a, against := c.avoided(t, w.Peer)
	if against && !a.kept {
		c.askAgain(w, a.until)
		return false
	}
	return true
}

// try offers the task to a host where it fits now; if there is none, it has the task queue at full hosts.
func (c *Core) try(t *task) placing {
	g := t.group
	if until, all := c.avoidsAll(t); all {
		c.pause(t, until)
		return paused
	}
	c.fleet.Count(c.now)
	w, chosen := c.bestFit(t)
	if w != nil {
		c.dequeue(t)
		c.setWaiting(t, false)
		c.direct(t, w, chosen)
		return placed
	}
	if hosts := c.queueAt(t); len(hosts) > 0 {
		c.dequeue(t)
		c.offerQueued(t, hosts)
		c.look(g.class, false)
		return placed
	}
	if until := c.soonest(t); !until.IsZero() {
		c.pause(t, until)
		return paused
	}
	return blocked
}

// pause has the task tried again at that time.
func (c *Core) pause(t *task, until time.Time) {
	c.dequeue(t)
	t.notBefore = until
	c.requeue(t)
}

// anySlot is where a search of the fleet begins: at a random slot if there are many hosts, so that schedulers do not
// all choose the same one.
func (c *Core) anySlot() int {
	if n := c.fleet.Slots(); n > sampleSize {
		return c.rng.IntN(n)
	}
	return 0
}

// choice is a host where a task fits, and its score.
type choice struct {
	host    *fleet.Host
	rated   policy.Host // the same, in the words of the policy
	score   float64
	shunned bool // the task avoids it while there is another
}

// better says whether a is to be taken rather than b: shunned hosts come last, others in the policy's order.
func (a *choice) better(b *choice) bool {
	if b.host == nil || a.shunned != b.shunned {
		return b.host == nil || b.shunned
	}
	return policy.Compare(a.rated, b.rated, a.score, b.score) < 0
}

// bestFit is the host that the policy prefers of those where the task fits now, and the devices that the task gets
// there; nil if it fits nowhere. It looks at this daemon's own host and at up to sampleSize others.
func (c *Core) bestFit(t *task) (*worker, []string) {
	r := t.request()
	var best choice
	fitting := 0
	consider := func(h *fleet.Host) {
		if x, ok := c.fitsAt(t, &r, h); ok {
			fitting++
			if x.better(&best) {
				best = x
			}
		}
	}
	if own := c.workers[c.cfg.Self]; own != nil && c.fleet.Could(r.Shape, own.Host) {
		consider(own.Host)
	}
	for h := range c.fleet.WithRoom(r.Shape, c.anySlot()) {
		if !h.Local {
			consider(h)
		}
		if fitting >= sampleSize && !best.shunned {
			break
		}
	}
	if best.host == nil {
		return nil, nil
	}
	devices, _ := best.host.Devices.Fit(r.Need, &best.rated.Free)
	return c.workers[best.host.Peer], devices
}

// fitsAt says whether the task, whose request is r, fits at the host now, and how well.
func (c *Core) fitsAt(t *task, r *fleet.Request, h *fleet.Host) (choice, bool) {
	if !r.Foot.Within(c.fleet.Left(h)) {
		return choice{}, false
	}
	against := false
	if len(t.avoid) > 0 {
		var a avoidance
		if a, against = c.avoided(t, h.Peer); against && a.hard {
			c.askAgain(c.workers[h.Peer], a.until)
		}
		if against && (a.hard || a.kept) {
			return choice{}, false
		}
	}
	free := h.LeftFor(&r.Rank)
	if r.OverQuota(h) != "" || !h.Devices.Suffices(r.Need, free) {
		return choice{}, false
	}
	x := policyHost(h, free)
	return choice{host: h, rated: x, score: c.policy.Score(r.Need, x), shunned: against}, true
}

// queueAt chooses the full hosts at which the task queues. Of up to sampleSize hosts it takes those with the fewest
// queued tasks; those where the task has just failed come last.
func (c *Core) queueAt(t *task) []*worker {
	type spot struct {
		host    *fleet.Host
		against bool
	}
	var spots []spot
	r := t.request()
	for h := range c.fleet.WithQueue(&r, c.anySlot()) {
		a, against := c.avoided(t, h.Peer)
		if against && a.hard || r.OverQuota(h) != "" || t.flight != nil && t.flight.at(h) {
			continue
		}
		if spots = append(spots, spot{h, against && !a.kept}); len(spots) >= sampleSize {
			break
		}
	}
	slices.SortStableFunc(spots, func(a, b spot) int {
		if a.against != b.against {
			if b.against {
				return -1
			}
			return 1
		}
		return cmp.Compare(a.host.Claims.Queued(), b.host.Claims.Queued())
	})
	hosts := make([]*worker, 0, queueHosts)
	for _, s := range spots[:min(len(spots), queueHosts)] {
		hosts = append(hosts, c.workers[s.host.Peer])
	}
	return hosts
}
