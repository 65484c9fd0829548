package view

// The ring: the latest events, for readers that come back.

import (
	"sync"
	"time"
)

// Ring keeps the latest events, within a number and a number of bytes. Readers share them. A reader that is too far behind
// misses some, and is told so.
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

// NewRing returns a ring for so many events and bytes.
func NewRing[E any](most, mostBytes int) *Ring[E] {
	return &Ring[E]{most: most, mostBytes: mostBytes, bell: make(chan struct{})}
}

// Add adds the event that encode returns for its number, with its size. Old ones make room.
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

// After returns at most so many events after the one with this number, and the number to go on with. missed says that
// events between are no longer here: the reader goes on with those that are.
func (r *Ring[E]) After(number uint64, most int) (events []E, next uint64, missed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.last - uint64(len(r.events)) // the newest that is gone
	if number > r.last {                     // of another ring
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

// Before returns the number of the newest event before a time. missed says that events since then may be gone: the ring
// was made at the time begun, or has dropped them.
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

// Changed returns a channel that is closed at the next event. It is taken before After, so that no event is missed.
func (r *Ring[E]) Changed() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.bell
}
