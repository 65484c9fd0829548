package central

// The queue: what waits, in the order of the yardstick.

import (
	"cmp"
	"math"
	"slices"

	"github.com/musterhq/muster/internal/sim/record"
)

// queue has a sorted queue for each shape: among tasks of the same shape, only the first can be next.
type queue struct {
	order  Order
	shapes []*shape
	n      int
}

func (q *queue) len() int { return q.n }

// keyOf returns the sort key of a waiting task; a smaller key goes first.
func (q *queue) keyOf(x *item) float64 {
	switch q.order {
	case Shortest:
		return x.left.Seconds()
	case Centre, Preemptive:
		return -float64(x.priority)
	case Remaining:
		return workLeft(x)
	case LeastAttained:
		return level(x.attained)
	case FIFO, Greedy, EASY:
	}
	return 0
}

// level returns the level by which LeastAttained compares GPU-seconds. Jobs of the same level go in the order of their
// submission. Each level is twice as wide as the one before.
func level(attained float64) float64 { return math.Floor(math.Log2(1 + attained/3600)) }

// workLeft returns the key of the order Remaining: the remaining seconds times GPUs.
func workLeft(x *item) float64 { return x.left.Seconds() * float64(max(1, x.gpus())) }

// before reports whether x goes before y.
func before(x, y *item) bool { return compare(x, y) < 0 }

func compare(x, y *item) int {
	return cmp.Or(cmp.Compare(x.key, y.key), cmp.Compare(x.submit, y.submit), cmp.Compare(x.job, y.job), cmp.Compare(x.task, y.task))
}

func (q *queue) add(x *item) {
	x.key = q.keyOf(x)
	s := x.shape
	i, _ := slices.BinarySearchFunc(s.queue, x, compare)
	s.queue = slices.Insert(s.queue, i, x)
	s.blocked = s.blocked && i > 0
	q.n++
}

func (q *queue) remove(x *item) {
	s := x.shape
	q.n--
	if s.queue[0] == x {
		s.queue = s.queue[1:]
		return
	}
	i, _ := slices.BinarySearchFunc(s.queue, x, compare)
	s.queue = slices.Delete(s.queue, i, i+1)
}

// first returns the first task of the shapes that are not blocked; nil: there is none.
func (q *queue) first() *item {
	var least *item
	for _, s := range q.shapes {
		if !s.blocked && len(s.queue) > 0 && (least == nil || before(s.queue[0], least)) {
			least = s.queue[0]
		}
	}
	return least
}

// freed unblocks the shapes that may fit because something ended at these machines.
func (q *queue) freed(c *cluster, where []record.Alloc) {
	for _, s := range q.shapes {
		for _, a := range where {
			s.blocked = s.blocked && s.members == 1 && !c.machines[a.Machine].fits(s)
		}
	}
}

// unblock unblocks all shapes.
func (q *queue) unblock() {
	for _, s := range q.shapes {
		s.blocked = false
	}
}

// sorted returns up to n waiting tasks, in order.
func (q *queue) sorted(n int) []*item {
	var out []*item
	at := make([]int, len(q.shapes))
	for len(out) < n {
		best := -1
		for i, s := range q.shapes {
			if at[i] < len(s.queue) && (best < 0 || before(s.queue[at[i]], q.shapes[best].queue[at[best]])) {
				best = i
			}
		}
		if best < 0 {
			break
		}
		out = append(out, q.shapes[best].queue[at[best]])
		at[best]++
	}
	return out
}
