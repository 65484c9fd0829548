package scheduler

// Waitlists: tasks by rank, searched for the first that a host could have without a look at each.
// See docs/adr, ADR 59.

import (
	"slices"

	"github.com/musterhq/muster/scheduler/fleet"
)

// chunkMost bounds a chunk: half of it is moved when one task comes or goes, and
// a search that passes over it costs one comparison.
const chunkMost = 128

// waitlist holds tasks by rank, in chunks that know the least that any of their
// tasks needs. The zero value is empty.
type waitlist struct {
	chunks []*chunk
	count  int
}

type chunk struct {
	waits []wait
	least fleet.Footprint // no task of the chunk needs less of anything
}

type wait struct {
	place fleet.Rank
	foot  fleet.Footprint
	task  *task
}

func compareWait(w wait, p fleet.Rank) int { return w.place.Compare(&p) }

// chunkOf is the chunk in which the place lies or would lie.
func (l *waitlist) chunkOf(p fleet.Rank) int {
	i, _ := slices.BinarySearchFunc(l.chunks, p, func(c *chunk, p fleet.Rank) int {
		return c.waits[len(c.waits)-1].place.Compare(&p)
	})
	return min(i, len(l.chunks)-1)
}

// add puts a task in; one that is there stays.
func (l *waitlist) add(t *task) {
	w := wait{placeOf(t), fleet.FootprintOf(t.shape.Need), t}
	if len(l.chunks) == 0 {
		l.chunks = []*chunk{{waits: []wait{w}, least: w.foot}}
		l.count = 1
		return
	}
	i := l.chunkOf(w.place)
	c := l.chunks[i]
	at, there := slices.BinarySearchFunc(c.waits, w.place, compareWait)
	if there {
		return
	}
	c.waits = slices.Insert(c.waits, at, w)
	c.least = c.least.Least(w.foot)
	l.count++
	if len(c.waits) > chunkMost {
		half := len(c.waits) / 2
		next := &chunk{waits: slices.Clone(c.waits[half:])}
		clear(c.waits[half:])
		c.waits = c.waits[:half]
		c.measure()
		next.measure()
		l.chunks = slices.Insert(l.chunks, i+1, next)
	}
}

// remove takes a task out, if it is in.
func (l *waitlist) remove(t *task) {
	if l.count == 0 {
		return
	}
	p := placeOf(t)
	i := l.chunkOf(p)
	c := l.chunks[i]
	at, there := slices.BinarySearchFunc(c.waits, p, compareWait)
	if !there {
		return
	}
	gone := c.waits[at].foot
	c.waits = slices.Delete(c.waits, at, at+1)
	l.count--
	switch {
	case len(c.waits) == 0:
		l.chunks = slices.Delete(l.chunks, i, i+1)
	case gone.CPUs == c.least.CPUs || gone.GPUs == c.least.GPUs || gone.Memory == c.least.Memory:
		c.measure()
	}
}

func (c *chunk) measure() {
	c.least = c.waits[0].foot
	for _, w := range c.waits[1:] {
		c.least = c.least.Least(w.foot)
	}
}

// limits are what a host has for the tasks of a waitlist.
type limits struct {
	left   fleet.Footprint // for tasks that would run now
	most   fleet.Footprint // no less, for those that may also queue there:
	queues bool            // some may,
	before *fleet.Rank     // those that rank before this one; nil: all
}

func (l *limits) of(p *fleet.Rank) fleet.Footprint {
	if l.queues && (l.before == nil || p.Compare(l.before) < 0) {
		return l.most
	}
	return l.left
}

// next is the first task beyond the place that is within the limits and that
// suits; a nil place is before all. budget is lessened by the tasks that were
// looked at; when it is used up, next says where it stopped.
func (l *waitlist) next(after *fleet.Rank, lim limits, budget *int, suits func(*task) bool) (t *task, stopped *fleet.Rank) {
	i, at := 0, 0
	if after != nil && len(l.chunks) > 0 {
		i = l.chunkOf(*after)
		var there bool
		if at, there = slices.BinarySearchFunc(l.chunks[i].waits, *after, compareWait); there {
			at++
		}
	}
	for ; i < len(l.chunks); i, at = i+1, 0 {
		c := l.chunks[i]
		if !c.least.Within(lim.of(&c.waits[0].place)) { // no task of the chunk ranks before
			continue
		}
		for ; at < len(c.waits); at++ {
			w := &c.waits[at]
			if *budget--; w.foot.Within(lim.of(&w.place)) && suits(w.task) {
				return w.task, nil
			}
		}
		if *budget <= 0 {
			p := c.waits[len(c.waits)-1].place
			return nil, &p
		}
	}
	return nil, nil
}
