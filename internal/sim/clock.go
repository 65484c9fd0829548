package sim

// The virtual clock: one queue of all that is to happen.

import (
	"math/rand/v2"
	"time"
)

// Timeline is virtual time, counted from the beginning of the simulation. Now is negative before that, while the
// daemons find each other.
type Timeline interface {
	Now() time.Duration
	// At calls f at a moment, or now if the moment has passed. Calls for the same moment come in the order in which
	// they were requested.
	At(t time.Duration, f func())
}

// Clock is the Timeline of a World. One clock is for one World, and for the network that is given to it.
type Clock struct {
	now  time.Duration // since the daemons began, warmUp before the beginning of the simulation
	seq  uint64
	heap []event // each event comes before its children: those of i are 4i+1 to 4i+4
	ran  int     // events that have happened
}

var _ Timeline = (*Clock)(nil)

// warmUp is how long before the beginning of the simulation the daemons start.
const warmUp = 10 * time.Second

// Now returns the virtual time.
func (c *Clock) Now() time.Duration { return c.now - warmUp }

// At calls f at a moment.
func (c *Clock) At(t time.Duration, f func()) { c.at(t+warmUp, f) }

// event is something that happens at a virtual moment. Events of one moment happen in the order in which they were
// queued.
type event struct {
	at  time.Duration // by Clock.now
	seq uint64
	do  func()
}

func (e *event) before(f *event) bool { return e.at < f.at || e.at == f.at && e.seq < f.seq }

// at queues an event. Its moments are those of Clock.now, not of Now.
func (c *Clock) at(when time.Duration, do func()) {
	c.seq++
	e := event{max(when, c.now), c.seq, do}
	c.heap = append(c.heap, e)
	i := len(c.heap) - 1
	for i > 0 {
		up := (i - 1) / 4
		if !e.before(&c.heap[up]) {
			break
		}
		c.heap[i] = c.heap[up]
		i = up
	}
	c.heap[i] = e
}

func (c *Clock) after(d time.Duration, do func()) { c.at(c.now+d, do) }

// next runs the earliest event if it is due by until. It returns false if there is none.
func (c *Clock) next(until time.Duration) bool {
	if len(c.heap) == 0 || c.heap[0].at > until {
		return false
	}
	first := c.heap[0]
	c.remove()
	c.now = max(c.now, first.at) // it is late if time was skipped
	c.ran++
	first.do()
	return true
}

// remove takes the first event out of the heap.
func (c *Clock) remove() {
	end := len(c.heap) - 1
	last := c.heap[end]
	c.heap[end].do = nil
	c.heap = c.heap[:end]
	if end == 0 {
		return
	}
	i := 0
	for {
		least := 4*i + 1
		if least >= end {
			break
		}
		for child := least + 1; child < min(4*i+5, end); child++ {
			if c.heap[child].before(&c.heap[least]) {
				least = child
			}
		}
		if !c.heap[least].before(&last) {
			break
		}
		c.heap[i] = c.heap[least]
		i = least
	}
	c.heap[i] = last
}

// between draws a time evenly from least to most.
func between(r *rand.Rand, least, most time.Duration) time.Duration {
	if most <= least {
		return least
	}
	return least + time.Duration(r.Int64N(int64(most-least)))
}
