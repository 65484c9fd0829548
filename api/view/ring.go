package view

// The ring: the latest events, so that readers can go on after a break.

import (
	"sync"
	"time"
)

// Ring keeps the latest events; their number and their bytes are bounded. All readers share it. A reader that is too far
// behind misses events, and After tells it so.
type Ring[E any] struct {
	most, mostBytes int

	mu     sync.Mutex
	events []slot[E]     // guarded by mu, the oldest first
	last   uint64        // guarded by mu: number of the newest
	bytes  int           // guarded by mu
	bell   chan struct{} // guarded by mu: closed at the next event
}

type slot[E any] struct {
	event E
	at    time.Time
	bytes int
}

// NewRing returns a ring that keeps at most most events and mostBytes bytes.
func NewRing[E any](most, mostBytes int) *Ring[E] {
	return &Ring[E]{most: most, mostBytes: mostBytes, bell: make(chan struct{})}
}

// Add gives encode the number of a new event, and adds the event of the size that encode returns. Old events are dropped
// to stay within the bounds.
func (r *Ring[E]) Add(at time.Time, encode func(number uint64) (E, int)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last++
	e, n := encode(r.last)
	r.events = append(r.events, slot[E]{e, at, n})
	r.bytes += n
	drop := 0
	for len(r.events)-drop > 1 && (len(r.events)-drop > r.most || r.bytes > r.mostBytes) {
		r.bytes -= r.events[drop].bytes
		drop++
	}
	clear(r.events[:drop]) // append moves the rest when the slice is full
	r.events = r.events[drop:]
	close(r.bell)
	r.bell = make(chan struct{})
}

// After returns the events after the one with this number, most events at most. next is the number for the next call.
// missed is true if the ring has dropped events in between; the events after them are returned.
func (r *Ring[E]) After(number uint64, most int) (events []E, next uint64, missed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.last - uint64(len(r.events)) // the newest dropped event
	if number > r.last {                     // the number is from another ring
		return nil, r.last, true
	}
	missed = number < before
	number = max(number, before)
	for _, s := range r.events[number-before:] {
		if len(events) == most {
			break
		}
		events = append(events, s.event)
		number++
	}
	return events, number, missed
}

// Last returns the number of the newest event.
func (r *Ring[E]) Last() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.last
}

// Before returns the number of the newest event before the time t. missed is true if the ring may lack events since t,
// because it was made later, at the time begun, or has dropped them.
func (r *Ring[E]) Before(t, begun time.Time) (number uint64, missed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	number = r.last
	for i := len(r.events) - 1; i >= 0 && !r.events[i].at.Before(t); i-- {
		number--
	}
	all := uint64(len(r.events)) == r.last
	return number, all && t.Before(begun) || !all && number == r.last-uint64(len(r.events))
}

// Changed returns a channel that is closed at the next event. A reader calls Changed before After, so that it misses no
// event.
func (r *Ring[E]) Changed() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.bell
}
