package sim

// The virtual clock: one queue of all that is to happen; and the alarm of a core, which wakes it at the moment that it wants.

import (
	"math/rand/v2"
	"time"

	"github.com/musterhq/muster/job"
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

// maxStuck bounds the turns that a core may want at one moment.
const maxStuck = 10_000

// alarm wakes one core. If a later moment was replaced by an earlier one, it still rings, but then rang reports false.
type alarm struct {
	w        *World
	peer     job.Peer
	turn     func()        // gives the core a turn
	ring     func()        // called at the moment
	at       time.Duration // the moment; 0: none
	stuckAt  time.Duration // when the core last wanted a turn at once
	stuckFor int           // turns since then, at the same moment
}

// set makes the alarm ring at a moment, or gives the core its turn if the moment has come.
func (a *alarm) set(when time.Duration) {
	now := a.w.now
	if when <= now {
		if a.stuckAt == now {
			if a.stuckFor++; a.stuckFor > maxStuck {
				a.w.fail("the core of %s wants turns without end", a.peer)
				return
			}
		} else {
			a.stuckAt, a.stuckFor = now, 0
		}
		a.turn()
		return
	}
	if a.at > now && a.at <= when {
		return // the core will look again when that alarm rings
	}
	a.at = when
	a.w.at(when, a.ring)
}

// rang reports whether now is the moment that was set last, and unsets it.
func (a *alarm) rang() bool {
	if a.at != a.w.now {
		return false
	}
	a.at = 0
	return true
}
