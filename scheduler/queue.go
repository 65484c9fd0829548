package scheduler

// A sorted queue.

import "slices"

// queue is a sorted queue. An element that is added or removed moves only the elements between it and the nearer end.
// That end is mostly near.
type queue[T any] struct {
	order func(a, b T) int
	all   []T // the elements from head on; those before are free
	head  int
}

func (q *queue[T]) items() []T { return q.all[q.head:] }

func (q *queue[T]) len() int { return len(q.all) - q.head }

func (q *queue[T]) first() T { return q.all[q.head] }

// place returns the index at which the element is or would be, and whether it is there.
func (q *queue[T]) place(t T) (int, bool) {
	return slices.BinarySearchFunc(q.items(), t, q.order)
}

func (q *queue[T]) add(t T) {
	i, there := q.place(t)
	if there {
		return
	}
	at := q.head + i
	if q.head > 0 && i < q.len()-i {
		copy(q.all[q.head-1:], q.all[q.head:at])
		q.head--
		q.all[at-1] = t
		return
	}
	q.all = slices.Insert(q.all, at, t)
}

func (q *queue[T]) remove(t T) {
	i, there := q.place(t)
	if !there {
		return
	}
	at := q.head + i
	if i < q.len()-i {
		copy(q.all[q.head+1:], q.all[q.head:at])
		var none T
		q.all[q.head] = none
		q.head++
	} else {
		q.all = slices.Delete(q.all, at, at+1)
	}
	if q.len() == 0 {
		q.all, q.head = nil, 0
	} else if q.head > 1024 && q.head > len(q.all)/2 {
		q.all, q.head = slices.Clone(q.items()), 0
	}
}
