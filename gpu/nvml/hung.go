package nvml

// Cards that hang, and cards that are lost. After a call that did not return, the next children leave its card out for a
// while, so that it does not hold up the others. Each card has a deadline of its own: with one for all of them eight
// sleeping cards took too long together, and the host had none. A new child cannot read the name of a card that was lost
// before it began. So the driver keeps what it listed of that card, as unknown, while the library still counts it: jobs
// that need it would otherwise be refused.

import (
	"maps"
	"slices"
	"time"

	"github.com/musterhq/muster/gpu"
)

const (
	// minSkip and maxSkip bound how long a card is left out. The time doubles with each further call that hangs.
	minSkip = 30 * time.Second
	maxSkip = 10 * time.Minute
)

// hung are the cards whose last call did not return, by index.
type hung map[int]skipped

type skipped struct {
	until time.Time
	pause time.Duration
}

// add records a call that did not return.
func (h hung) add(card int) {
	pause := min(max(2*h[card].pause, minSkip), maxSkip)
	h[card] = skipped{until: time.Now().Add(pause), pause: pause}
}

// skip returns the cards that are to be left out now.
func (h hung) skip() []int {
	var out []int
	for _, card := range slices.Sorted(maps.Keys(h)) {
		if time.Now().Before(h[card].until) {
			out = append(out, card)
		}
	}
	return out
}

// answered forgets the cards whose status was read. That a card was listed does not count.
func (h hung) answered(listed []gpu.Device, statuses []gpu.Status) {
	if len(h) == 0 {
		return
	}
	for _, dev := range listed {
		if slices.ContainsFunc(statuses, func(s gpu.Status) bool { return s.UUID == dev.UUID }) {
			delete(h, dev.Index)
		}
	}
}

// again says when another child is to look for a card that is lost. Only a new child finds it. The pause doubles with
// each try.
type again struct {
	is    bool
	at    time.Time
	pause time.Duration
}

// set notes that a card is lost, if lost is true.
func (a *again) set(lost bool) { a.is = a.is || lost }

// due reports whether to look for the card now. If so, it counts as the next try.
func (a *again) due() bool {
	if !a.is || time.Now().Before(a.at) {
		return false
	}
	a.pause = min(max(2*a.pause, minSkip), maxSkip)
	a.is, a.at = false, time.Now().Add(a.pause)
	return true
}
