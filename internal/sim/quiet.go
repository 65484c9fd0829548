package sim

// Quiet time: the clock skips time in which there is no job and nothing is to happen soon. Idle daemons renew their
// sessions, so 159 quiet days of 32 hosts took 100 s. Daemons are not told: their timers are late, once each, as on hosts
// that were all suspended together. Shifting the timers with the clock would hide from them that time has passed, and
// shares would not decay. While a task runs nothing is skipped: its lease would end.

import (
	"container/heap"
	"time"
)

const (
	// restFor is how long nothing must have happened before time is skipped. It is also the shortest time that is
	// skipped.
	restFor = 10 * time.Minute
	// readyFor is how long before the next appointment the clock no longer skips time, so that sessions are renewed and
	// news spreads.
	readyFor = 5 * time.Minute
)

// quiet is what the world knows about quiet time. Daemons do not know that time is skipped: their timers are late, as
// if all hosts had been suspended together.
type quiet struct {
	appointments moments
	stirred      time.Duration // when something last happened, or a later time from which quiet is counted
	open         int           // jobs that users have come to submit and that have not ended
	skipped      time.Duration
	ticks        bool // never skip time
}

// moments is a heap of moments.
type moments []time.Duration

func (m moments) Len() int           { return len(m) }
func (m moments) Less(i, j int) bool { return m[i] < m[j] }
func (m moments) Swap(i, j int)      { m[i], m[j] = m[j], m[i] }
func (m *moments) Push(x any)        { *m = append(*m, x.(time.Duration)) }
func (m *moments) Pop() any {
	last := len(*m) - 1
	x := (*m)[last]
	*m = (*m)[:last]
	return x
}

// appoint schedules something that comes from outside: a user comes, or a fault happens or ends. Time is never skipped
// across it.
func (w *World) appoint(at time.Duration, do func()) {
	at = max(at, w.now)
	heap.Push(&w.appointments, at)
	w.at(at, do)
}

// skip skips quiet time, up to readyFor before the next appointment or the end of the run.
func (w *World) skip(end time.Duration) {
	if w.open > 0 || w.ticks || w.now < w.stirred+restFor {
		return
	}
	for len(w.appointments) > 0 && w.appointments[0] <= w.now {
		w.stirred = max(w.stirred, w.appointments[0])
		heap.Pop(&w.appointments)
	}
	if len(w.appointments) > 0 {
		end = min(end, w.appointments[0])
	}
	to := end - readyFor
	if w.now < w.stirred+restFor || to < w.now+restFor || end == endOfTime {
		return
	}
	if !settled(w) {
		w.stirred = w.now
		return
	}
	w.skipped += to - w.now
	w.now = to
}

// settled reports whether all schedulers know that their jobs have ended.
func settled(w *World) bool {
	for _, o := range w.owners {
		if !o.up {
			continue
		}
		for state, n := range o.core.View().Counts() {
			if n > 0 && !state.Ended() {
				return false
			}
		}
	}
	return true
}
