package scheduler

// Timers: the moments at which something is due.

import (
	"cmp"
	"time"
)

// timer is something to do at a moment, unless it is stopped before.
type timer struct {
	when time.Time
	seq  uint64
	do   func()
	at   int // in the heap; less than 0 once it has fired or was stopped
}

type timerHeap []*timer

func (h timerHeap) Len() int { return len(h) }

func (h timerHeap) Less(i, j int) bool {
	return cmp.Or(h[i].when.Compare(h[j].when), cmp.Compare(h[i].seq, h[j].seq)) < 0
}

func (h timerHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].at, h[j].at = i, j
}

// Push is for container/heap.
func (h *timerHeap) Push(x any) {
	t, _ := x.(*timer)
	t.at = len(*h)
	*h = append(*h, t)
}

// Pop is for container/heap.
func (h *timerHeap) Pop() any {
	old := *h
	t := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	t.at = -1
	return t
}
