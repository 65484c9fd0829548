package worker

// Timers: one heap for all waits of a Core.

import (
	"cmp"

	"github.com/musterhq/muster/timers"
)

// timer is one wait. Its reason may be gone when it fires, so the function that it calls checks before it acts. Where
// that would be the usual case, the timer is stopped instead.
type timer = timers.Timer[BootTime, func(now Moment)]

// alarms are the timers that are set.
type alarms struct {
	heap *timers.Heap[BootTime, func(now Moment)]
}

func newAlarms() alarms { return alarms{timers.New[BootTime, func(now Moment)](cmp.Compare[BootTime])} }

func (a alarms) set(at BootTime, do func(now Moment)) *timer {
	t := &timer{Value: do}
	a.heap.Set(t, at)
	return t
}

// stop disarms a timer, if there is one that has not fired.
func (a alarms) stop(t *timer) { a.heap.Stop(t) }

// next is when a timer fires next; false if none is set.
func (a alarms) next() (BootTime, bool) { return a.heap.Next() }

// fire runs all that is due.
func (a alarms) fire(now Moment) {
	for do, due := a.heap.Take(now.Boot); due; do, due = a.heap.Take(now.Boot) {
		do(now)
	}
}
