package sim

// What each step around the cores costs in time.

import (
	"errors"
	"fmt"
	"time"
)

// Range is a time that is drawn evenly from Least to Most.
type Range struct{ Least, Most time.Duration }

// Costs are how long the steps around the cores take. The defaults come from docs/benchmarks.md: hosts with a virtual
// disk. Computing in a core costs no virtual time: it takes some 10 µs for a task.
type Costs struct {
	// Commit is from the proposal of records to their commit. Default: 640 to 850 µs, the journal with one in flight.
	Commit Range
	// Sync is the write of a worker that must be on disk before it goes on. Default: 610 to 680 µs, append and fdatasync.
	Sync Range
	// Confirm is the round in which a scheduler makes sure that it still leads. Default: 50 to 200 µs: the journal has
	// no other members that must be asked.
	Confirm Range
	// Start is from the order to start a task to its process. Default: 0.7 to 2.1 ms: what remains of the median from
	// submission to process after two commits and one sync.
	Start Range
	// End is how long a task takes to end when it is told to. Default: 1 to 10 ms, a program that ends at SIGTERM.
	End Range
	// Dial is the opening of a session, beyond two round trips. Default: 5 to 50 ms.
	Dial Range
	// Find is a search in the table of resource classes. Default: 20 to 900 ms; no search takes more than a second.
	Find Range
	// Lead is how long a starting daemon takes until it accepts jobs. Default: 10 ms to 1.5 s.
	Lead Range
	// Notice is how long a peer must be silent until a daemon ends the session with it. Default: 6 to 8 s: pings go out
	// every 2 s, and a session ends after 6 s without an answer.
	Notice Range
}

func (c *Costs) fields() []*Range {
	return []*Range{&c.Commit, &c.Sync, &c.Confirm, &c.Start, &c.End, &c.Dial, &c.Find, &c.Lead, &c.Notice}
}

// DefaultCosts returns the defaults.
func DefaultCosts() Costs {
	const us, ms = time.Microsecond, time.Millisecond
	return Costs{
		Commit: Range{640 * us, 850 * us}, Sync: Range{610 * us, 680 * us}, Confirm: Range{50 * us, 200 * us},
		Start: Range{700 * us, 2100 * us}, End: Range{1 * ms, 10 * ms}, Dial: Range{5 * ms, 50 * ms},
		Find: Range{20 * ms, 900 * ms}, Lead: Range{10 * ms, 1500 * ms}, Notice: Range{6000 * ms, 8000 * ms},
	}
}

// orDefault replaces each zero value by its default.
func (c Costs) orDefault() Costs {
	defaults := DefaultCosts()
	for i, d := range defaults.fields() {
		if f := c.fields()[i]; *f == (Range{}) {
			*f = *d
		}
	}
	return c
}

func (c Costs) check() error {
	for _, r := range c.fields() {
		if r.Least < 0 || r.Most < r.Least {
			return fmt.Errorf("sim: costs: from %s to %s: %w", r.Least, r.Most, errRange)
		}
	}
	return nil
}

var errRange = errors.New("not a range of times")

// draw draws from a range.
func (w *World) draw(r Range) time.Duration { return between(w.chance, r.Least, r.Most) }
