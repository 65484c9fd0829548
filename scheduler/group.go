package scheduler

// Groups of waiting tasks with equal requests: if the first of a group finds no room, no other of it does, so that a
// thousand waiting tasks cost one search.

import (
	"fmt"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/lease"
	"github.com/musterhq/muster/scheduler/fleet"
)

// group is a request of one user, and the user's tasks that wait with this very request.
type group struct {
	fleet.Shape
	key   string
	class *class
	queue line
	ready bool // in Core.ready
	at    int  // there
	tasks int  // that have not ended

	// parked is the task that stands for the group in Core.parked; nil if none does.
	parked *task

	outlook   *fleet.Outlook // for people; true of the step outlookAt
	outlookAt uint64
	noMatch   string // why nobody can, for people
	noMatchAt uint64
}

func groupKey(user, pool string, r job.Resources) string {
	return fmt.Sprintf("%q %d %d %s", user, r.CPUs, r.Memory, pool)
}

// joinGroup finds the group of the task's request, or founds it.
func (c *Core) joinGroup(t *task) *group {
	if t.group != nil {
		return t.group
	}
	s := t.e.job.Spec
	inPool := fleet.PoolKey(s)
	key := groupKey(t.e.job.User, inPool, s.Resources)
	g := c.groups[key]
	if g == nil {
		clauses, err := fleet.ClausesOf(s)
		if err != nil { // a committed spec has been parsed before; one that cannot be meets no host
			text := err.Error()
			clauses = []fleet.Clause{{Text: "constraint", Test: func(*lease.Profile) string { return text }}}
		}
		need := s.Resources
		need.GPUModel = lease.ModelName(need.GPUModel) // once, not at each comparison
		g = &group{key: key, Shape: fleet.Shape{
			User: t.e.job.User, Need: need, Foot: fleet.FootprintOf(need), Pool: c.fleet.JoinPool(inPool, clauses),
		}}
		g.class = c.classOf(fleet.ClassFor(s))
		g.class.groups++
		c.groups[key] = g
	}
	g.tasks++
	t.group = g
	return g
}

func (c *Core) leaveGroup(t *task) {
	g := t.group
	if g == nil {
		return
	}
	c.dequeue(t)
	c.setWaiting(t, false)
	t.group = nil
	if g.tasks--; g.tasks > 0 {
		return
	}
	delete(c.groups, g.key)
	c.fleet.LeavePool(g.Pool)
	if g.class.groups--; g.class.groups == 0 {
		delete(c.classes, g.class.name)
	}
}

// requeue puts a task that may be placed into its line, or has it come back
// when its pause is over.
func (c *Core) requeue(t *task) {
	if !c.lead || t.queued || t.flight != nil || t.proposed != 0 || t.durable().State != job.Pending {
		return
	}
	g := c.joinGroup(t)
	if when := t.notBefore; when.After(c.now) {
		if !t.armed.Equal(when) {
			t.armed = when
			c.at(when, func() { c.requeue(t) })
		}
		return
	}
	c.setWaiting(t, true)
	t.queued = true
	first := g.queue.len() == 0 || rank(t, g.queue.first()) < 0
	if first {
		c.unlist(g)
	}
	g.queue.add(t)
	if first {
		c.ready.put(g)
	}
}

// dequeue takes a task out of its line.
func (c *Core) dequeue(t *task) {
	if !t.queued {
		return
	}
	t.queued = false
	g := t.group
	if g.queue.first() != t {
		g.queue.remove(t)
		return
	}
	ready := g.ready
	c.unlist(g)
	g.queue.remove(t)
	switch {
	case g.queue.len() == 0:
	case ready:
		c.ready.put(g)
	default:
		c.park(g)
	}
}

// park sets a group aside for which there is no room: it is tried again at hosts
// that get some.
func (c *Core) park(g *group) {
	c.unlist(g)
	g.parked = g.queue.first()
	c.parked.add(g.parked)
}

// unlist takes a group out of where it is listed.
func (c *Core) unlist(g *group) {
	c.ready.remove(g)
	if g.parked != nil {
		c.parked.remove(g.parked)
		g.parked = nil
	}
}

// setWaiting counts the task for its class while no host has taken it.
func (c *Core) setWaiting(t *task, waiting bool) {
	if t.waiting == waiting || t.group == nil {
		return
	}
	t.waiting = waiting
	k := t.group.class
	if waiting {
		k.waiting++
	} else if k.waiting--; k.waiting == 0 {
		k.looking = false
		c.announce = c.announce || k.announced
		k.announced = false
	}
}

// offeredTo names the host that a task is offered to, or has committed.
func (c *Core) offeredTo(f *flight) string {
	if f.target == "" && len(f.offers) > 0 {
		return f.offers[0].worker.Name()
	}
	return c.nameOf(f.target)
}

func (c *Core) nameOf(p job.Peer) string {
	if w := c.workers[p]; w != nil {
		return w.Name()
	}
	return p.Short()
}
