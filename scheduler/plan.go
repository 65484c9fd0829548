package scheduler

// Placement: which waiting task is offered to which host, and why not.

import (
	"cmp"
	"slices"
	"time"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/lease"
	"github.com/musterhq/muster/scheduler/policy"
)

// placing is what became of a try to place a task.
type placing int

const (
	placed  placing = iota // an offer is under way
	paused                 // it comes back after a pause
	blocked                // no room for it, nor for its like
)

// plan offers waiting tasks: those that came or came back since the last plan at
// any host, those that found no room then at hosts that have got some since. Of
// several that could have the same room the first by rank is tried first.
func (c *Core) plan() {
	c.again = false
	if !c.lead || c.outgoing >= maxOutgoing {
		return
	}
	b := budget{tries: planLimit, looks: lookLimit}
	for len(c.roomy) > 0 && !b.spent(c) {
		w := c.roomy[0]
		if !c.fill(w, &b) {
			break // it goes on there with the next step
		}
		w.resume = resume{}
		if w.again {
			w.again = false
			continue
		}
		w.roomy = false
		c.roomy[0] = nil
		c.roomy = c.roomy[1:]
	}
	if len(c.roomy) == 0 {
		c.roomy = nil
		for g := c.ready.first(); g != nil && !b.spent(c); g = c.ready.first() {
			c.tryFirst(g, &b)
		}
	}
	c.again = (len(c.roomy) > 0 || c.ready.Len() > 0) && c.outgoing < maxOutgoing
}

// budget bounds what one step tries; the rest is for the next.
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
		c.look(g.class, !c.hosts.anyOpen(g))
	}
}

// resume is where a look at the waiting tasks goes on that was not finished.
type resume struct{ parked, queued *place }

// fill has the parked and the queued tasks try a host that may have got room, by
// rank; false if it stopped before the last of them.
func (c *Core) fill(w *worker, b *budget) bool {
	for w.open() && !b.spent(c) {
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
			c.offer(queued.flight, w, true, nil)
		default:
			p := placeOf(parked)
			w.resume.parked = &p
			b.tries--
			c.try(parked)
		}
	}
	return !w.open()
}

// nextParked is the first parked task beyond those that were looked at that
// fits at the host now or may queue there.
func (c *Core) nextParked(w *worker, b *budget) (t *task, stopped bool) {
	c.hosts.count(c.now)
	lim := limits{left: c.hosts.left[w.slot], most: c.hosts.most[w.slot], queues: c.hosts.queue[w.slot] < nobody}
	if o := w.lastOut; lim.queues && o != nil {
		p := placeOf(o.flight.task)
		lim.before = &p
	}
	t, at := c.parked.next(w.resume.parked, lim, &b.looks, func(t *task) bool { return c.mayTry(t, w) })
	if t == nil {
		w.resume.parked = at
	}
	return t, at != nil
}

// mayTry says whether the parked task would find room or a place to queue at the
// host.
func (c *Core) mayTry(t *task, w *worker) bool {
	if !c.hosts.could(t.group, w) || w.overQuota(t) != "" {
		return false
	}
	if a, against := c.avoided(t, w.peer); against && a.hard {
		c.askAgain(w, a.until)
		return false
	}
	if c.hosts.mayQueue(w, t) {
		return true
	}
	if a, against := c.avoided(t, w.peer); against && a.kept {
		return false
	}
	return t.group.foot.within(c.hosts.left[w.slot]) && w.fitsNow(t)
}

// nextQueued is the first task beyond those that were looked at that queues at
// other hosts and fits at this one now.
func (c *Core) nextQueued(w *worker, b *budget) (t *task, stopped bool) {
	c.hosts.count(c.now)
	t, at := c.queued.next(w.resume.queued, limits{left: c.hosts.left[w.slot]}, &b.looks, func(t *task) bool {
		return len(t.flight.offers) < spreadMost && c.couldAlso(t, w)
	})
	if t == nil {
		w.resume.queued = at
	}
	return t, at != nil
}

// couldAlso says whether a task that queues elsewhere fits at this host now.
func (c *Core) couldAlso(t *task, w *worker) bool {
	if t.flight.at(w) {
		return false
	}
	if !c.hosts.could(t.group, w) || w.overQuota(t) != "" || !w.fitsNow(t) {
		return false
	}
	a, against := c.avoided(t, w.peer)
	if against && !a.kept {
		c.askAgain(w, a.until)
		return false
	}
	return true
}

// try offers the task where it fits now, else has it queue where it will.
func (c *Core) try(t *task) placing {
	g := t.group
	if until, all := c.avoidsAll(t); all {
		c.pause(t, until)
		return paused
	}
	c.hosts.count(c.now)
	w, chosen := c.bestFit(t)
	if w != nil {
		c.dequeue(t)
		c.setWaiting(t, false)
		c.direct(t, w, chosen)
		return placed
	}
	if hosts := c.queueAt(t); len(hosts) > 0 {
		c.dequeue(t)
		c.stand(t, hosts)
		c.look(g.class, false)
		return placed
	}
	if until := c.soonest(t); !until.IsZero() {
		c.pause(t, until)
		return paused
	}
	return blocked
}

// pause has the task come back then.
func (c *Core) pause(t *task, until time.Time) {
	c.dequeue(t)
	t.notBefore = until
	c.requeue(t)
}

// anySlot is where a search of the table of hosts begins: at a host by chance if
// there are many, so that schedulers do not all meet at one.
func (c *Core) anySlot() int {
	if n := len(c.hosts.all); n > sampleSize {
		return c.rng.IntN(n)
	}
	return 0
}

// choice is a host where a task fits, and how much it is liked.
type choice struct {
	worker  *worker
	host    policy.Host
	score   float64
	shunned bool // the task has just failed there
}

// better orders choices: those that are shunned last, else as the policy says.
func (a *choice) better(b *choice) bool {
	if b.worker == nil || a.shunned != b.shunned {
		return b.worker == nil || b.shunned
	}
	return policy.Compare(a.host, b.host, a.score, b.score) < 0
}

// bestFit is the host that the policy prefers among those where the task fits
// now: of this daemon's own and at most sampleSize others.
func (c *Core) bestFit(t *task) (*worker, []string) {
	var best choice
	fitting := 0
	consider := func(w *worker) {
		if x, ok := c.fitsAt(t, w); ok {
			fitting++
			if x.better(&best) {
				best = x
			}
		}
	}
	if own := c.workers[c.cfg.Self]; own != nil && c.hosts.could(t.group, own) {
		consider(own)
	}
	for w := range c.hosts.withRoom(t.group, c.anySlot()) {
		if w.peer != c.cfg.Self {
			consider(w)
		}
		if fitting >= sampleSize && !best.shunned {
			break
		}
	}
	if best.worker == nil {
		return nil, nil
	}
	devices, _ := fits(t.group.need, &best.host.Free, best.worker.devices)
	return best.worker, devices
}

// fitsAt says whether the task fits at the host now, and how well.
func (c *Core) fitsAt(t *task, w *worker) (choice, bool) {
	if !t.group.foot.within(c.hosts.left[w.slot]) {
		return choice{}, false
	}
	a, against := c.avoided(t, w.peer)
	if against && a.hard {
		c.askAgain(w, a.until)
	}
	if against && (a.hard || a.kept) || w.overQuota(t) != "" {
		return choice{}, false
	}
	free := w.roomFor(t)
	if !w.suffices(t.group.need, &free) {
		return choice{}, false
	}
	h := c.host(w, free)
	return choice{worker: w, host: h, score: c.policy.Score(t.group.need, h), shunned: against}, true
}

// queueAt chooses the full hosts at which the task queues, of sampleSize that it
// may queue at: those with the fewest queued tasks, the one where it has just
// failed last.
func (c *Core) queueAt(t *task) []*worker {
	type spot struct {
		w       *worker
		against bool
	}
	var spots []spot
	for w := range c.hosts.withQueue(t, c.anySlot()) {
		a, against := c.avoided(t, w.peer)
		if against && a.hard || w.overQuota(t) != "" || t.flight != nil && t.flight.at(w) {
			continue
		}
		if spots = append(spots, spot{w, against && !a.kept}); len(spots) >= sampleSize {
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
		return cmp.Compare(a.w.standing, b.w.standing)
	})
	hosts := make([]*worker, 0, standingHosts)
	for _, s := range spots[:min(len(spots), standingHosts)] {
		hosts = append(hosts, s.w)
	}
	return hosts
}

func lackOf(need job.Resources, free lease.Free, devices map[string]gpu.Device) string {
	_, what := fits(need, &free, devices)
	return what
}
