package scheduler

// Placement: which waiting task is offered to which host, and why not.

import (
	"cmp"
	"slices"

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

// plan offers waiting tasks in their order. Requests that found no room are not
// looked at again before there may be more.
func (c *Core) plan() {
	c.again = false
	if !c.lead || c.outgoing >= maxOutgoing {
		return
	}
	version := c.version
	all := version != c.plannedAt
	if all {
		c.widen()
	}
	var full []*group
	for tries := 0; len(full) < blockedLimit; tries++ {
		g := c.nextGroup(all)
		if g == nil {
			break
		}
		if tries >= planLimit || c.outgoing >= maxOutgoing {
			c.again = tries >= planLimit
			break
		}
		if c.try(g.queue.first()) == blocked {
			g.put(nil)
			full = append(full, g)
		}
	}
	for _, g := range full {
		g.put(&c.parked)
		c.look(g.class, !slices.ContainsFunc(c.candidates(g), (*worker).open))
	}
	if !c.again {
		c.plannedAt = version
		c.again = c.version != version
	}
}

// nextGroup is the group with the first task among those to look at.
func (c *Core) nextGroup(all bool) *group {
	switch {
	case c.ready.Len() == 0 && (!all || c.parked.Len() == 0):
		return nil
	case c.ready.Len() == 0:
		return c.parked.groups[0]
	case !all || c.parked.Len() == 0:
		return c.ready.groups[0]
	}
	r, p := c.ready.groups[0], c.parked.groups[0]
	if rank(r.queue.first(), p.queue.first()) < 0 {
		return r
	}
	return p
}

// try offers the task where it fits now, else has it queue where it will.
func (c *Core) try(t *task) placing {
	g := t.group
	w, chosen := c.bestFit(t, c.sample(c.candidates(g)))
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
	until, why := c.soonest(t)
	if !until.IsZero() {
		c.dequeue(t)
		t.notBefore, t.why = until, why
		c.requeue(t)
		return paused
	}
	return blocked
}

// sample orders the hosts in which they are looked at: the local one, then, if
// there are many, others by chance, so that schedulers do not all meet at one.
func (c *Core) sample(able []*worker) []*worker {
	if len(able) <= sampleSize {
		return able
	}
	out := slices.Clone(able)
	first := 0
	if out[0].peer == c.cfg.Self {
		first = 1
	}
	rest := out[first:]
	c.rng.Shuffle(len(rest), func(i, j int) { rest[i], rest[j] = rest[j], rest[i] })
	return out
}

// choice is a host where a task fits, and how much it is liked.
type choice struct {
	worker  *worker
	host    policy.Host
	devices []string
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
// now.
func (c *Core) bestFit(t *task, able []*worker) (*worker, []string) {
	var best choice
	fitting := 0
	for _, w := range able {
		x, ok := c.fitsAt(t, w)
		if !ok {
			continue
		}
		if x.better(&best) {
			best = x
		}
		if fitting++; fitting >= sampleSize && !best.shunned {
			break
		}
	}
	return best.worker, best.devices
}

// fitsAt says whether the task fits at the host now, and how well.
func (c *Core) fitsAt(t *task, w *worker) (choice, bool) {
	if !w.open() || len(w.offers)+len(w.waiting) >= offersLimit {
		return choice{}, false
	}
	a, against := c.avoided(t, w.peer)
	if against && a.hard {
		return choice{}, false
	}
	free := w.roomFor(t)
	devices, lack := fits(t.group.need, &free, w.devices)
	if lack != "" {
		return choice{}, false
	}
	h := c.host(w, free)
	return choice{
		worker: w, host: h, devices: devices, score: c.policy.Score(t.group.need, h), shunned: against,
	}, true
}

// queueAt chooses the full hosts at which the task queues: those with the
// fewest queued tasks, the one where it has just failed last.
func (c *Core) queueAt(t *task) []*worker {
	type spot struct {
		w       *worker
		against bool
	}
	var spots []spot
	for _, w := range c.candidates(t.group) {
		a, against := c.avoided(t, w.peer)
		if !w.open() || against && a.hard || !c.hasSlot(w, t) {
			continue
		}
		spots = append(spots, spot{w, against})
		slices.SortStableFunc(spots, func(a, b spot) int {
			if a.against != b.against {
				if b.against {
					return -1
				}
				return 1
			}
			return cmp.Compare(a.w.standing, b.w.standing)
		})
		spots = spots[:min(len(spots), standingHosts)]
	}
	hosts := make([]*worker, 0, standingHosts)
	for _, s := range spots {
		hosts = append(hosts, s.w)
	}
	return hosts
}

// hasSlot says whether another offer may queue at the host, if need be instead
// of one of lower priority.
func (c *Core) hasSlot(w *worker, t *task) bool {
	if len(w.offers)+len(w.waiting) >= offersLimit {
		return false
	}
	return w.standing < standingLimit || lowest(w, t) != nil
}

// lowest is the queued offer of the lowest priority below the task's own.
func lowest(w *worker, t *task) *offer {
	var worst *offer
	for _, o := range w.offers {
		if !o.standing || o.flight.winner != nil || o.flight.task.e.job.Spec.Priority >= t.e.job.Spec.Priority {
			continue
		}
		if worst == nil || rank(worst.flight.task, o.flight.task) < 0 {
			worst = o
		}
	}
	return worst
}

// widen also offers tasks that queue somewhere to other hosts that have got
// room.
func (c *Core) widen() {
	roomier := c.roomier
	c.roomier = nil
	for _, w := range roomier {
		line := c.queued.tasks()
		for _, t := range line[:min(len(line), blockedLimit)] {
			if f := t.flight; f != nil && len(f.offers) <= standingHosts && c.couldAlso(t, w) {
				c.offer(f, w, true, nil)
			}
		}
	}
}

// couldAlso says whether a task that queues elsewhere fits at this host now.
func (c *Core) couldAlso(t *task, w *worker) bool {
	if !w.open() || w.standing >= standingLimit || len(w.offers)+len(w.waiting) >= offersLimit {
		return false
	}
	if slices.ContainsFunc(t.flight.offers, func(o *offer) bool { return o.worker == w }) {
		return false
	}
	if _, against := c.avoided(t, w.peer); against || !slices.Contains(c.candidates(t.group), w) {
		return false
	}
	free := w.roomFor(t)
	_, lack := fits(t.group.need, &free, w.devices)
	return lack == ""
}

// lacks counts by resource on how many hosts the task does not fit now.
func (c *Core) lacks(t *task) (fit []*worker, lack map[string]int, open int) {
	lack = map[string]int{}
	for _, w := range c.candidates(t.group) {
		if !w.open() {
			continue
		}
		open++
		if what := lackOf(t.group.need, w.free, w.devices); what != "" {
			lack[what]++
		} else {
			fit = append(fit, w)
		}
	}
	return fit, lack, open
}

func lackOf(need job.Resources, free lease.Free, devices map[string]gpu.Device) string {
	_, what := fits(need, &free, devices)
	return what
}
