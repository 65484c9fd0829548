package worker

// Timers: one heap for all waits of a Core.

import "container/heap"

// timer is one wait. Its reason may be gone when it fires, so do checks before it acts. Where that would be the usual
// case, the timer is stopped instead.
type timer struct {
	at    BootTime
	seq   uint64 // timers of one moment fire in the order they were set
	do    func(now Moment)
	place int // in the heap; less than 0 once it has fired or was stopped
}

type timers struct {
	list []*timer
	seq  uint64
}

func (t *timers) Len() int { return len(t.list) }

func (t *timers) Less(i, j int) bool {
	if t.list[i].at != t.list[j].at {
		return t.list[i].at < t.list[j].at
	}
	return t.list[i].seq < t.list[j].seq
}

func (t *timers) Swap(i, j int) {
	t.list[i], t.list[j] = t.list[j], t.list[i]
	t.list[i].place, t.list[j].place = i, j
}

// Push is for package heap.
func (t *timers) Push(x any) {
	one := x.(*timer)
	one.place = len(t.list)
	t.list = append(t.list, one)
}

// Pop is for package heap.
func (t *timers) Pop() any {
	last := t.list[len(t.list)-1]
	t.list[len(t.list)-1] = nil
	t.list = t.list[:len(t.list)-1]
	last.place = -1
	return last
}

func (t *timers) set(at BootTime, do func(now Moment)) *timer {
	t.seq++
	one := &timer{at: at, seq: t.seq, do: do}
	heap.Push(t, one)
	return one
}

// stop disarms a timer, if there is one that has not fired.
func (t *timers) stop(one *timer) {
	if one != nil && one.place >= 0 {
		heap.Remove(t, one.place)
	}
}

// next is when a timer fires next; false if none is set.
func (t *timers) next() (BootTime, bool) {
	if len(t.list) == 0 {
		return 0, false
	}
	return t.list[0].at, true
}

// fire runs all that is due.
func (t *timers) fire(now Moment) {
	for len(t.list) > 0 && t.list[0].at <= now.Boot {
		heap.Pop(t).(*timer).do(now)
	}
}
