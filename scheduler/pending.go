package scheduler

// Pending tasks by shape of request: if the first task of a shape finds no room, no other task of it does, so a thousand
// waiting tasks cost one search.

import (
	"container/heap"
	"fmt"
	"time"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/lease"
	"github.com/musterhq/muster/scheduler/fleet"
)

// pending are the tasks that wait.
type pending struct {
	*turn
	hosts  *hosts
	search *search

	shapes map[string]*shape
	ready  shapeHeap // shapes to look at
	parked waitlist  // the first task of each shape that found no room when it was last looked at
	queued waitlist  // tasks whose offers queue at full hosts
}

// shapeHeap holds the shapes with waiting tasks, the one with the first task first.
type shapeHeap struct{ shapes []*shape }

func (h *shapeHeap) Len() int { return len(h.shapes) }

func (h *shapeHeap) Less(i, j int) bool {
	return rank(h.shapes[i].queue.first(), h.shapes[j].queue.first()) < 0
}

func (h *shapeHeap) Swap(i, j int) {
	h.shapes[i], h.shapes[j] = h.shapes[j], h.shapes[i]
	h.shapes[i].at, h.shapes[j].at = i, j
}

// Push is for container/heap.
func (h *shapeHeap) Push(x any) {
	g, _ := x.(*shape)
	g.at = len(h.shapes)
	h.shapes = append(h.shapes, g)
}

// Pop is for container/heap.
func (h *shapeHeap) Pop() any {
	last := len(h.shapes) - 1
	g := h.shapes[last]
	h.shapes[last] = nil
	h.shapes = h.shapes[:last]
	return g
}

// put adds a group, if it is not in.
func (h *shapeHeap) put(g *shape) {
	if !g.ready {
		g.ready = true
		heap.Push(h, g)
	}
}

// remove takes a shape out, if it is in.
func (h *shapeHeap) remove(g *shape) {
	if g.ready {
		heap.Remove(h, g.at)
		g.ready = false
	}
}

// first is the shape with the first task; nil if there is none.
func (h *shapeHeap) first() *shape {
	if len(h.shapes) == 0 {
		return nil
	}
	return h.shapes[0]
}

func shapeKey(user, pool string, r job.Resources) string {
	return fmt.Sprintf("%q %d %d %s", user, r.CPUs, r.Memory, pool)
}

// join returns the shape of the task's request. It makes the shape if the task is the first.
func (p *pending) join(t *task) *shape {
	if t.shape != nil {
		return t.shape
	}
	s := t.e.job.Spec
	inPool := fleet.PoolKey(s)
	key := shapeKey(t.e.job.User, inPool, s.Resources)
	g := p.shapes[key]
	if g == nil {
		clauses, err := fleet.ClausesOf(s)
		if err != nil { // a committed spec has been parsed before; one that cannot be meets no host
			text := err.Error()
			clauses = []fleet.Clause{{Text: "constraint", Test: func(*lease.Profile) string { return text }}}
		}
		need := s.Resources
		need.GPUModel = lease.ModelName(need.GPUModel) // once, not at each comparison
		g = &shape{key: key, queue: queue[*task]{order: rank}, Shape: fleet.Shape{
			User: t.e.job.User, Need: need, Foot: fleet.FootprintOf(need), Pool: p.hosts.fleet.JoinPool(inPool, clauses),
		}}
		g.class = p.search.class(fleet.ClassFor(s))
		g.class.shapes++
		p.shapes[key] = g
	}
	g.tasks++
	t.shape = g
	return g
}

// leave takes a task that has ended out of its shape. A shape without tasks is forgotten.
func (p *pending) leave(t *task) {
	g := t.shape
	if g == nil {
		return
	}
	p.dequeue(t)
	p.setWaiting(t, false)
	t.shape = nil
	if g.tasks--; g.tasks > 0 {
		return
	}
	delete(p.shapes, g.key)
	p.hosts.fleet.LeavePool(g.Pool)
	if g.class.shapes--; g.class.shapes == 0 {
		delete(p.search.classes, g.class.name)
	}
}

// requeue puts a task that may be placed into the queue of its shape, or has it come back
// when its pause is over.
func (p *pending) requeue(t *task) {
	if !p.lead || t.queued || t.phase != idle || t.durable().State != job.Pending {
		return
	}
	g := p.join(t)
	if when := t.pause.until; when.After(p.now) {
		if !t.pause.armed.Equal(when) {
			t.pause.armed = when
			p.at(when, func() { p.requeue(t) })
		}
		return
	}
	p.setWaiting(t, true)
	t.queued = true
	first := g.queue.len() == 0 || rank(t, g.queue.first()) < 0
	if first {
		p.unlist(g)
	}
	g.queue.add(t)
	if first {
		p.ready.put(g)
	}
}

// dequeue takes a task out of the queue of its shape.
func (p *pending) dequeue(t *task) {
	if !t.queued {
		return
	}
	t.queued = false
	g := t.shape
	if g.queue.first() != t {
		g.queue.remove(t)
		return
	}
	ready := g.ready
	p.unlist(g)
	g.queue.remove(t)
	switch {
	case g.queue.len() == 0:
	case ready:
		p.ready.put(g)
	default:
		p.park(g)
	}
}

// park sets a shape aside for which there is no room. It is tried again at hosts
// where something is freed.
func (p *pending) park(g *shape) {
	p.unlist(g)
	g.parked = g.queue.first()
	p.parked.add(g.parked)
}

// unlist takes a shape out of where it is listed.
func (p *pending) unlist(g *shape) {
	p.ready.remove(g)
	if g.parked != nil {
		p.parked.remove(g.parked)
		g.parked = nil
	}
}

// setWaiting counts the task for its class while no host has taken it.
func (p *pending) setWaiting(t *task, waiting bool) {
	if t.waiting == waiting || t.shape == nil {
		return
	}
	t.waiting = waiting
	k := t.shape.class
	if waiting {
		k.waiting++
	} else if k.waiting--; k.waiting == 0 {
		k.looking = false
		p.search.announce = p.search.announce || k.announced
		k.announced = false
	}
}

// pause has the task tried again at that time.
func (p *pending) pause(t *task, until time.Time) {
	p.dequeue(t)
	t.pause.until = until
	p.requeue(t)
}

// forgetHost forgets a known host, and what the shapes hold against it.
func (p *pending) forgetHost(w *worker) {
	delete(p.hosts.workers, w.Peer)
	p.hosts.fleet.Remove(w.Host)
	p.hosts.forgetQuotas(w)
	for _, g := range p.shapes {
		g.Forget(w.Host)
	}
	p.hosts.profiles++
}
