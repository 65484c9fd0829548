// Package leaseclock detects that this host was paused, and keeps the clock by which a worker's leases are measured.
//
// A hypervisor that pauses a virtual machine also stops the machine's CLOCK_BOOTTIME, while the scheduler's clock
// runs on. After the pause the host would believe that its leases are younger than they are. When the wall clock is
// corrected afterwards, it jumps forward against CLOCK_BOOTTIME, and the jump is the length of the pause. A wall
// clock that a person sets forward looks the same and is treated the same. That is the safe mistake: leases only end
// earlier.
//
// See docs/adr, ADR 57.
package leaseclock

import (
	"fmt"
	"math"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// MaxSkew is how far the wall clock may run ahead of CLOCK_BOOTTIME before the difference counts as a pause. It is
// larger than any leap second and than most steps of an NTP client that starts.
const MaxSkew = 5 * time.Second

// drift limits how fast the wall clock may gain on CLOCK_BOOTTIME without a jump: 1/drift of the time passed. NTP
// slews at most half as fast, and R4 allows for ten times as much between two hosts.
const drift = 1000

// Reading is both clocks of this host at one moment.
type Reading struct {
	Boot time.Duration // CLOCK_BOOTTIME: since boot, including time asleep
	Wall time.Duration // CLOCK_REALTIME: since 1970
}

// Skew returns the wall clock minus CLOCK_BOOTTIME.
func (r Reading) Skew() time.Duration { return r.Wall - r.Boot }

// Watch tells jumps of the wall clock from its drift. It is pure. The zero value is ready to use.
//
// It compares each reading with a reference skew. The reference falls with the skew at once, but rises by at most
// 1/drift of the time passed. A simpler rule, a new reference every minute, would miss a jump that is spread over two
// minutes, and take a day's slewing for a jump if nobody looked for a day.
type Watch struct {
	ref   time.Duration
	at    time.Duration // CLOCK_BOOTTIME of the last look
	begun bool
}

// Look takes a reading and returns a jump: above MaxSkew if this host was paused or its wall clock was set forward,
// below -MaxSkew if the wall clock was set back, otherwise 0. Each jump is returned once. Several shorter pauses add
// up to one jump.
func (w *Watch) Look(r Reading) time.Duration {
	skew := r.Skew()
	if !w.begun {
		w.ref, w.at, w.begun = skew, r.Boot, true
		return 0
	}
	slow := max(0, r.Boot-w.at) / drift
	w.at = r.Boot
	jump := minus(skew, w.ref)
	if jump > MaxSkew+slow || jump < -MaxSkew {
		w.ref = skew
		return jump
	}
	w.ref += min(jump, slow)
	return 0
}

// Skew returns the reference skew. A deadline that is computed now is right as long as the reference stays the same.
func (w *Watch) Skew() time.Duration { return w.ref }

// Since returns for how long this host was paused since the reference skew was the given one, which may come from
// another process. The result is above MaxSkew, or 0.
func (w *Watch) Since(skew time.Duration) time.Duration {
	if d := minus(w.ref, skew); d > MaxSkew {
		return d
	}
	return 0
}

// minus returns a - b, limited to the range of a Duration.
func minus(a, b time.Duration) time.Duration {
	switch d := a - b; {
	case a > b && d < 0:
		return math.MaxInt64
	case a < b && d > 0:
		return math.MinInt64
	default:
		return d
	}
}

// maxMissed bounds the sum of all pauses, so that adding it to a clock does not overflow. Hosts without a battery
// boot in 1970, so a sum of half a century is possible.
const maxMissed = 1<<62 - 1

// Clock is CLOCK_BOOTTIME plus the sum of all pauses of this host. It never goes back. Pauses count as time that has
// passed.
type Clock struct {
	read   func() Reading
	mu     sync.Mutex
	watch  Watch         // guarded by mu
	missed time.Duration // guarded by mu
}

// New returns a clock that uses read; Reader returns a function that reads the clocks of this host.
func New(read func() Reading) *Clock { return &Clock{read: read} }

// Now reads the clock.
func (c *Clock) Now() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lookLocked() + c.missed
}

// lookLocked looks for a jump and returns CLOCK_BOOTTIME.
func (c *Clock) lookLocked() time.Duration {
	r := c.read()
	if jump := c.watch.Look(r); jump > 0 {
		c.missed = min(c.missed+min(jump, maxMissed), maxMissed)
	}
	return r.Boot
}

// Missed returns the sum of all pauses that this clock has seen.
func (c *Clock) Missed() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.missed
}

// OnHost converts a reading of this clock to one of CLOCK_BOOTTIME, at least 1 ns. It also returns the skew for which
// the result is right: a process that has seen a later pause has to subtract that.
func (c *Clock) OnHost(at time.Duration) (boot, skew time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lookLocked()
	return max(1, at-c.missed), c.watch.Skew()
}

const (
	// apart is how far apart two readings of one clock may be so that a reading of the other clock between them
	// belongs to them.
	apart = time.Millisecond
	// tries bounds the readings if the process is interrupted every time.
	tries = 16
)

// Reader returns a function that reads both clocks of this host. The function is not safe for concurrent use. It
// panics if the system lacks one of the clocks, because no lease can be kept then.
func Reader() func() Reading { return reader(clock) }

// reader reads each clock once as long as the skew does not change.
func reader(clock func(id int32) time.Duration) func() Reading {
	last, known := time.Duration(0), false
	return func() Reading {
		r := Reading{Wall: clock(unix.CLOCK_REALTIME), Boot: clock(unix.CLOCK_BOOTTIME)}
		if known && minus(r.Skew(), last).Abs() <= apart {
			return r
		}
		r = together(clock)
		last, known = r.Skew(), true
		return r
	}
}

// together reads both clocks again if the process was interrupted between the two readings. The time that passed
// there would look like a jump.
func together(clock func(id int32) time.Duration) Reading {
	best, closest := Reading{}, time.Duration(math.MaxInt64)
	for range tries {
		r := Reading{Wall: clock(unix.CLOCK_REALTIME), Boot: clock(unix.CLOCK_BOOTTIME)}
		if d := minus(clock(unix.CLOCK_REALTIME), r.Wall).Abs(); d < closest {
			best, closest = r, d
		}
		if closest <= apart {
			break
		}
	}
	return best
}

func clock(id int32) time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(id, &ts); err != nil {
		panic(fmt.Sprintf("leaseclock: read clock %d: %v", id, err))
	}
	return time.Duration(ts.Nano())
}
