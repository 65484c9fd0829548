// Package timers keeps timers in a heap. The earliest comes first; timers of the same moment come in the order in which
// they were set. The package has no clock and makes no callbacks: its user asks which timers are due.
//
// It does without container/heap: through that interface, Set and Stop were slower.
package timers

// Timer holds a value that is due at a moment. It can be set in one Heap at a time. The zero Timer is not set.
type Timer[T, V any] struct {
	Value V
	at    T
	seq   uint64
	place int // in the heap, from 1; 0 if it is not set
}

// Heap holds the timers that are set. T is the type of a moment, V that of a value. Set, Stop and Take cost O(log n).
// It is not safe for use by several goroutines.
type Heap[T, V any] struct {
	all     []*Timer[T, V] // no timer comes before its parent: that of i is (i-1)/2
	compare func(a, b T) int
	seq     uint64
}

// New makes an empty heap. Compare orders moments as cmp.Compare does.
func New[T, V any](compare func(a, b T) int) *Heap[T, V] {
	return &Heap[T, V]{compare: compare}
}

// Set sets a timer. If it is set already, Set moves it to the new moment. If the moment is the same, the timer keeps
// its place in the order.
func (h *Heap[T, V]) Set(t *Timer[T, V], at T) {
	if t.place == 0 {
		h.all = append(h.all, nil)
		h.put(t, len(h.all)-1)
	} else if h.compare(t.at, at) == 0 {
		return
	}
	h.seq++
	t.at, t.seq = at, h.seq
	h.order(t)
}

// Stop removes a timer from the heap. A nil timer and one that is not set are ignored.
func (h *Heap[T, V]) Stop(t *Timer[T, V]) {
	if t == nil || t.place == 0 {
		return
	}
	end := len(h.all) - 1
	last := h.all[end]
	h.all[end] = nil
	h.all = h.all[:end]
	if last != t {
		h.put(last, t.place-1)
		h.order(last)
	}
	t.place = 0
}

// Take removes the first timer that is due at a moment, and returns its value; false if none is due.
func (h *Heap[T, V]) Take(now T) (V, bool) {
	if at, ok := h.Next(); !ok || h.compare(at, now) > 0 {
		var none V
		return none, false
	}
	first := h.all[0]
	h.Stop(first)
	return first.Value, true
}

// Next returns the moment of the first timer; false if none is set.
func (h *Heap[T, V]) Next() (T, bool) {
	if len(h.all) == 0 {
		var none T
		return none, false
	}
	return h.all[0].at, true
}

// Len returns how many timers are set.
func (h *Heap[T, V]) Len() int { return len(h.all) }

// order moves a timer up or down until the heap is in order again. All others are in order.
func (h *Heap[T, V]) order(t *Timer[T, V]) {
	i := t.place - 1
	for i > 0 && h.before(t, h.all[(i-1)/2]) {
		h.put(h.all[(i-1)/2], i)
		i = (i - 1) / 2
	}
	if i == t.place-1 {
		i = h.sink(t, i)
	}
	h.put(t, i)
}

// sink moves up the children that come before a timer at i, and returns where the timer belongs then.
func (h *Heap[T, V]) sink(t *Timer[T, V], i int) int {
	for child := 2*i + 1; child < len(h.all); child = 2*i + 1 {
		if child+1 < len(h.all) && h.before(h.all[child+1], h.all[child]) {
			child++
		}
		if !h.before(h.all[child], t) {
			break
		}
		h.put(h.all[child], i)
		i = child
	}
	return i
}

func (h *Heap[T, V]) before(a, b *Timer[T, V]) bool {
	if n := h.compare(a.at, b.at); n != 0 {
		return n < 0
	}
	return a.seq < b.seq
}

func (h *Heap[T, V]) put(t *Timer[T, V], i int) {
	h.all[i] = t
	t.place = i + 1
}
