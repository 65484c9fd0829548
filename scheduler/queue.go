package scheduler

// Orders: the waiting tasks of equal requests, and the requests among each other.

import (
	"cmp"
	"container/heap"
	"slices"
)

// rank orders tasks: priority, then age, then name. No two tasks are equal.
func rank(a, b *task) int {
	x, y := a.e, b.e
	if n := cmp.Or(cmp.Compare(y.priority, x.priority), x.born.Compare(y.born)); n != 0 {
		return n
	}
	return cmp.Or(cmp.Compare(x.job.ID, y.job.ID), cmp.Compare(a.index, b.index))
}

// line is a sorted line of tasks. What joins or leaves near either end, as
// nearly all do, moves only what stands between it and that end.
type line struct {
	all  []*task // the room before head is free
	head int
}

func (l *line) tasks() []*task { return l.all[l.head:] }

func (l *line) len() int { return len(l.all) - l.head }

func (l *line) first() *task { return l.all[l.head] }

// place is where the task stands or would stand, from 0.
func (l *line) place(t *task) (int, bool) {
	return slices.BinarySearchFunc(l.tasks(), t, rank)
}

func (l *line) add(t *task) {
	i, there := l.place(t)
	if there {
		return
	}
	at := l.head + i
	if l.head > 0 && i < l.len()-i {
		copy(l.all[l.head-1:], l.all[l.head:at])
		l.head--
		l.all[at-1] = t
		return
	}
	l.all = slices.Insert(l.all, at, t)
}

func (l *line) remove(t *task) {
	i, there := l.place(t)
	if !there {
		return
	}
	at := l.head + i
	if i < l.len()-i {
		copy(l.all[l.head+1:], l.all[l.head:at])
		l.all[l.head] = nil
		l.head++
	} else {
		l.all = slices.Delete(l.all, at, at+1)
	}
	if l.len() == 0 {
		l.all, l.head = nil, 0
	} else if l.head > 1024 && l.head > len(l.all)/2 {
		l.all, l.head = slices.Clone(l.tasks()), 0
	}
}

// groupHeap holds groups with waiting tasks, the one with the first task first.
type groupHeap struct{ groups []*group }

func (h *groupHeap) Len() int { return len(h.groups) }

func (h *groupHeap) Less(i, j int) bool {
	return rank(h.groups[i].queue.first(), h.groups[j].queue.first()) < 0
}

func (h *groupHeap) Swap(i, j int) {
	h.groups[i], h.groups[j] = h.groups[j], h.groups[i]
	h.groups[i].at, h.groups[j].at = i, j
}

// Push is for container/heap.
func (h *groupHeap) Push(x any) {
	g, _ := x.(*group)
	g.at = len(h.groups)
	h.groups = append(h.groups, g)
}

// Pop is for container/heap.
func (h *groupHeap) Pop() any {
	last := len(h.groups) - 1
	g := h.groups[last]
	h.groups[last] = nil
	h.groups = h.groups[:last]
	return g
}

// put adds a group, if it is not in.
func (h *groupHeap) put(g *group) {
	if !g.ready {
		g.ready = true
		heap.Push(h, g)
	}
}

// remove takes a group out, if it is in.
func (h *groupHeap) remove(g *group) {
	if g.ready {
		heap.Remove(h, g.at)
		g.ready = false
	}
}

// first is the group with the first task; nil if there is none.
func (h *groupHeap) first() *group {
	if len(h.groups) == 0 {
		return nil
	}
	return h.groups[0]
}
