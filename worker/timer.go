package worker

// The timers of a Core, in one heap.

import (
	"cmp"

	"github.com/musterhq/muster/internal/timers"
)

// timer calls a function when it fires. By then there may be nothing to do any more, so the function checks that first.
// A timer that would usually fire in vain is stopped instead.
type timer = timers.Timer[BootTime, func(now Moment)]

// timerHeap holds the timers that are set.
type timerHeap struct {
	heap *timers.Heap[BootTime, func(now Moment)]
}

func newTimerHeap() timerHeap {
	return timerHeap{timers.New[BootTime, func(now Moment)](cmp.Compare[BootTime])}
}

func (a timerHeap) set(at BootTime, do func(now Moment)) *timer {
	t := &timer{Value: do}
	a.heap.Set(t, at)
	return t
}

// stop stops a timer. It does nothing if the timer is nil or has fired.
func (a timerHeap) stop(t *timer) { a.heap.Stop(t) }

// next returns when the next timer fires; false if none is set.
func (a timerHeap) next() (BootTime, bool) { return a.heap.Next() }

// fire calls the functions of all timers that are due.
func (a timerHeap) fire(now Moment) {
	for do, due := a.heap.Take(now.Boot); due; do, due = a.heap.Take(now.Boot) {
		do(now)
	}
}
