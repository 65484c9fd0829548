package spawn

// When a process has started, in ticks since boot. The clock before and after the fork tells it in most cases, and costs
// a tenth of what reading /proc costs.

import (
	"sync/atomic"
	"time"

	"github.com/musterhq/muster/worker/runner/proc"
)

// tick is the unit of start times in /proc, on every architecture that Go supports.
const tick = 10 * time.Millisecond

// tickReader finds out when processes have started. The zero value is ready to use. Its methods are safe for concurrent
// use.
type tickReader struct {
	clock atomic.Int32 // what the first comparison has shown
}

// The values of tickReader.clock.
const (
	notCompared int32 = iota
	sameClock         // the kernel's start times are readings of CLOCK_BOOTTIME
	otherClock
)

// start returns the start of a process that was forked between two readings of CLOCK_BOOTTIME, or 0 if that is not
// known.
func (r *tickReader) start(pid int, before, after time.Duration) uint64 {
	n := before / tick
	known := r.clock.Load()
	if n != after/tick || known == otherClock {
		return proc.StartTicks(pid)
	}
	if known == sameClock {
		return uint64(n) //nolint:gosec // never below 0
	}
	ticks := proc.StartTicks(pid)
	switch ticks {
	case 0: // it was reaped already
	case uint64(n): //nolint:gosec // as above
		r.clock.Store(sameClock)
	default:
		r.clock.Store(otherClock)
	}
	return ticks
}
