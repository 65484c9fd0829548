package central

// What each order does when something has happened.

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/musterhq/muster/internal/sim/record"
)

// quantum is how often LeastAttained compares what jobs have had. It is also how long a job runs at least before it is
// ended for another.
const quantum = 10 * time.Minute

// backfillDepth is how many waiting tasks EASY looks at behind the first one.
const backfillDepth = 2000

// whatFits starts tasks in order, and skips tasks that do not fit. For such a task it first calls makeRoom, if not nil.
func (r *run) whatFits(makeRoom func(*item) bool) {
	for x := r.waiting.first(); x != nil; x = r.waiting.first() {
		where := r.places.place(x)
		if where == nil && makeRoom != nil && makeRoom(x) {
			where = r.places.place(x)
		}
		if where == nil {
			x.shape.blocked = true
			continue
		}
		r.start(x, where)
	}
}

// inTurn starts tasks in order up to the first that does not fit, and backfills if the order is EASY.
func (r *run) inTurn() {
	r.waiting.unblock()
	for x := r.waiting.first(); x != nil; x = r.waiting.first() {
		where := r.places.place(x)
		if where == nil {
			if r.options.Order == EASY {
				r.backfill(x)
			}
			return
		}
		r.start(x, where)
	}
}

// backfill starts tasks behind the first one that do not delay it.
func (r *run) backfill(first *item) {
	later := r.cluster.clone()
	var at time.Duration
	ends := slices.Clone(r.ends.items)
	slices.SortFunc(ends, func(a, b *item) int { return cmp.Or(cmp.Compare(a.end, b.end), cmp.Compare(a.order, b.order)) })
	var where []record.Alloc
	for _, x := range ends {
		later.give(x.shape, x.where)
		at = x.end
		if where = later.bestFit(first.shape); where != nil {
			break
		}
	}
	if where == nil { // too many machines are out, so nothing can delay it
		at = math.MaxInt64
	} else {
		later.take(first.shape, where)
	}
	blocked := map[*shape]bool{} // shapes that do not fit now
	for _, x := range r.waiting.sorted(backfillDepth)[1:] {
		if blocked[x.shape] {
			continue
		}
		got := r.places.place(x)
		switch {
		case got == nil:
			blocked[x.shape] = true
		case at-r.now >= x.left+r.loss(x):
			r.start(x, got)
		case later.has(x.shape, got):
			later.take(x.shape, got)
			r.start(x, got)
		default:
			r.places.takeBack(x, got)
		}
	}
}

// loss returns what the next start of a task costs it.
func (r *run) loss(x *item) time.Duration {
	if x.resumes {
		return r.options.Restart
	}
	return 0
}

// preempt ends running tasks so that x fits, and reports whether it did. It ends those that should go last.
func (r *run) preempt(x *item) bool {
	if r.options.Order == Centre && r.preemptible == 0 {
		return false
	}
	var victims []*item
	for _, y := range r.running {
		if r.goesBefore(x, y) {
			victims = append(victims, y)
		}
	}
	if len(victims) == 0 {
		return false
	}
	slices.SortFunc(victims, func(a, b *item) int { return cmp.Or(cmp.Compare(r.rank(b), r.rank(a)), cmp.Compare(b.order, a.order)) })
	chosen := r.cluster.victims(x.shape, victims)
	for _, y := range chosen {
		r.stop(y)
	}
	return len(chosen) > 0
}

// rank returns the key that a running task would have now.
func (r *run) rank(y *item) float64 {
	switch r.options.Order {
	case Remaining:
		return (y.left - r.worked(y)).Seconds() * float64(max(1, y.gpus()))
	case LeastAttained:
		return level(y.attained + float64(y.gpus())*(r.now-y.since).Seconds())
	case FIFO, Greedy, Centre, EASY, Shortest, Preemptive:
	}
	return r.waiting.keyOf(y)
}

// goesBefore reports whether a waiting task may end a running one.
func (r *run) goesBefore(x, y *item) bool {
	switch r.options.Order {
	case Remaining:
		return x.key+2*r.options.Restart.Seconds()*float64(max(1, y.gpus())) < r.rank(y)
	case LeastAttained:
		return r.now-y.since >= quantum && x.key < r.rank(y)
	case Centre:
		return y.preemptible && x.priority > y.priority
	case FIFO, Greedy, EASY, Shortest, Preemptive:
	}
	return x.priority > y.priority
}
