package step

// The timers of a Core, in one heap.

import (
	"cmp"

	"github.com/musterhq/muster/internal/timers"
	"github.com/musterhq/muster/worker/leaseclock"
)

// Timer calls a function when it fires. By then there may be nothing to do any more, so the function checks that first.
// A timer that would usually fire in vain is stopped instead.
type Timer = timers.Timer[leaseclock.BootTime, func(now leaseclock.Moment)]

// Timers holds the timers that are set.
type Timers struct {
	heap *timers.Heap[leaseclock.BootTime, func(now leaseclock.Moment)]
}

func newTimers() Timers {
	return Timers{timers.New[leaseclock.BootTime, func(now leaseclock.Moment)](cmp.Compare[leaseclock.BootTime])}
}

// Set sets a timer.
func (a Timers) Set(at leaseclock.BootTime, do func(now leaseclock.Moment)) *Timer {
	t := &Timer{Value: do}
	a.heap.Set(t, at)
	return t
}

// Stop stops a timer. It does nothing if the timer is nil or has fired.
func (a Timers) Stop(t *Timer) { a.heap.Stop(t) }

// Next returns when the next timer fires; false if none is set.
func (a Timers) Next() (leaseclock.BootTime, bool) { return a.heap.Next() }

// Fire calls the functions of all timers that are due.
func (a Timers) Fire(now leaseclock.Moment) {
	for do, due := a.heap.Take(now.Boot); due; do, due = a.heap.Take(now.Boot) {
		do(now)
	}
}
