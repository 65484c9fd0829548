package scheduler

// Waitlists: tasks by rank. A search finds the first task that a host could take without a look at every task.
// See docs/adr, ADR 59.

import (
	"math"
	"slices"

	"github.com/musterhq/muster/scheduler/fleet"
	"github.com/musterhq/muster/scheduler/step"
)

// chunkMost bounds the tasks of a chunk. To add or remove a task moves half a chunk. To skip a chunk costs a search one
// comparison.
const chunkMost = 128

// waitlist holds tasks by rank, in chunks. Each chunk knows the least that its tasks need. The zero value is empty.
type waitlist struct {
	chunks []*chunk
	count  int
}

// chunk is a run of neighbouring tasks.
type chunk struct {
	waits []wait
	least fleet.Footprint // of each resource, the least that a task of the chunk needs
}

// wait is a task that waits, with what a search compares.
type wait struct {
	place fleet.Rank
	foot  fleet.Footprint
	task  *task
}

func compareWait(w wait, p fleet.Rank) int { return w.place.Compare(&p) }

// chunkOf returns the index of the chunk that holds the place or would hold it.
func (l *waitlist) chunkOf(p fleet.Rank) int {
	i, _ := slices.BinarySearchFunc(l.chunks, p, func(c *chunk, p fleet.Rank) int {
		return c.waits[len(c.waits)-1].place.Compare(&p)
	})
	return min(i, len(l.chunks)-1)
}

// add adds a task. It does nothing if the list holds the task.
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

// remove removes a task. It does nothing if the list does not hold the task.
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

// lowest returns the priority of the last task, or math.MaxInt if there is no task.
func (l *waitlist) lowest() int {
	if l.count == 0 {
		return math.MaxInt
	}
	last := l.chunks[len(l.chunks)-1]
	return last.waits[len(last.waits)-1].place.Priority
}

// sort puts the tasks into the order of their ranks as they are now.
func (l *waitlist) sort() {
	all := make([]wait, 0, l.count)
	for _, c := range l.chunks {
		for _, w := range c.waits {
			w.place = placeOf(w.task)
			all = append(all, w)
		}
	}
	slices.SortFunc(all, func(a, b wait) int { return a.place.Compare(&b.place) })
	l.chunks = l.chunks[:0]
	for part := range slices.Chunk(all, chunkMost/2) {
		c := &chunk{waits: slices.Clone(part)}
		c.measure()
		l.chunks = append(l.chunks, c)
	}
}

// measure works out the least that the tasks of the chunk need.
func (c *chunk) measure() {
	c.least = c.waits[0].foot
	for _, w := range c.waits[1:] {
		c.least = c.least.Least(w.foot)
	}
}

// limits are what a host has for the tasks of a waitlist.
type limits struct {
	left   fleet.Footprint // what is free, for tasks that may not queue there
	most   fleet.Footprint // what the host has at all, for tasks that may queue there
	queues bool            // some tasks may queue there
	before *fleet.Rank     // only those that rank before this may queue; nil: all may
}

// of returns the limit for a task of this rank.
func (l *limits) of(p *fleet.Rank) fleet.Footprint {
	if l.queues && (l.before == nil || p.Compare(l.before) < 0) {
		return l.most
	}
	return l.left
}

// next returns the first task behind the place after that is within the limits and for which suits returns true. If
// after is nil, the search begins with the first task. next subtracts the tasks that it looked at from budget. If the
// budget is spent before a task is found, next returns the last place that it looked at as stopped.
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
		if !c.least.Within(lim.of(&c.waits[0].place)) { // the first task of the chunk has the widest limit
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

// place notes that a task of the job was sent to a host. The first one ends the wait of the job.
func (s *milestones) place(tn *step.Turn) {
	if !s.placed {
		s.placed = true
		tn.Waited.Add(tn.Now, tn.Now.Sub(s.eligible))
	}
}
