// Package leaseclock finds out that this host was paused, and keeps the clock
// that a worker's leases are measured by.
//
// A hypervisor that pauses a virtual machine stops CLOCK_BOOTTIME with it, while
// the owner's clock goes on: after the pause the host would take its leases for
// younger than they are. When the wall clock is set right afterwards it jumps
// forward against CLOCK_BOOTTIME; the jump is the time that the host missed. A
// wall clock that a person sets forward looks the same and is treated the same:
// that is the safe mistake.
package leaseclock

import (
	"fmt"
	"math"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// MaxSkew is how far the wall clock may run ahead of CLOCK_BOOTTIME before the
// difference counts as a pause. It is above any step of a leap second, and above
// most steps of an NTP client that starts.
const MaxSkew = 5 * time.Second

// drift is the share of the time passed by which the wall clock may gain on
// CLOCK_BOOTTIME without a jump: 1/1000. NTP slews by half of that at most, and
// R4 allows for ten times that between two hosts.
const drift = 1000

// Reading is both clocks of this host at one moment.
type Reading struct {
	Boot time.Duration // CLOCK_BOOTTIME: since the host booted, its own sleep included
	Wall time.Duration // CLOCK_REALTIME: since 1970
}

// Skew is the wall clock less the time since boot.
func (r Reading) Skew() time.Duration { return r.Wall - r.Boot }

// Watch tells jumps of the wall clock from its drift. It is pure; the zero value
// is ready.
//
// It compares each reading with a reference skew. The reference falls with the
// skew at once, and rises by at most 1/1000 of the time passed. A reference that
// is replaced once a minute would miss a jump that is spread over two minutes,
// and take a day's slewing for a jump if nobody looked for a day.
type Watch struct {
	ref   time.Duration
	at    time.Duration // CLOCK_BOOTTIME of the last look
	begun bool
}

// Look takes a reading and returns a jump: above MaxSkew if this host was paused
// or its wall clock set forward, below -MaxSkew if the wall clock was set back,
// else zero. Each jump is returned once. Shorter pauses add up to one.
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

// Skew is the reference skew: a deadline that is reckoned now is right as long
// as the skew stays there.
func (w *Watch) Skew() time.Duration { return w.ref }

// Since is how much time this host has missed since the reference skew was the
// given one, which may be another process's: above MaxSkew, or zero.
func (w *Watch) Since(skew time.Duration) time.Duration {
	if d := minus(w.ref, skew); d > MaxSkew {
		return d
	}
	return 0
}

// minus is a - b within what a Duration holds.
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

// maxMissed bounds the sum of all pauses, far from overflow when it is added to
// a clock. Hosts without a battery boot in 1970, so that a sum of half a century
// is possible.
const maxMissed = 1<<62 - 1

// Clock is CLOCK_BOOTTIME plus the time that this host has missed. It never goes
// back. For whoever goes by it a pause is time that passed.
type Clock struct {
	read   func() Reading
	mu     sync.Mutex
	watch  Watch         // guarded by mu
	missed time.Duration // guarded by mu
}

// New makes a clock of readings; Reader gives those of this host.
func New(read func() Reading) *Clock { return &Clock{read: read} }

// Now reads the clock.
func (c *Clock) Now() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lookLocked() + c.missed
}

// lookLocked gives CLOCK_BOOTTIME, after a look for a jump.
func (c *Clock) lookLocked() time.Duration {
	r := c.read()
	if jump := c.watch.Look(r); jump > 0 {
		c.missed = min(c.missed+min(jump, maxMissed), maxMissed)
	}
	return r.Boot
}

// Missed is the sum of all pauses that this clock has seen.
func (c *Clock) Missed() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.missed
}

// OnHost turns a reading of this clock into one of CLOCK_BOOTTIME, never below
// 1 ns, and gives the skew at which it is right: a process that has seen a later
// pause has to take that off.
func (c *Clock) OnHost(at time.Duration) (boot, skew time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lookLocked()
	return max(1, at-c.missed), c.watch.Skew()
}

const (
	// apart is how far two readings of one clock may lie apart for a reading of
	// the other between them to belong to them.
	apart = time.Millisecond
	// tries bounds the readings of a process that is interrupted each time.
	tries = 16
)

// Reader gives what reads both clocks of this host, for one goroutine at a time.
// It panics where the system has no such clocks: without them no lease can be
// kept.
func Reader() func() Reading { return reader(clock) }

// reader reads each clock once as long as the skew stays where it was.
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

// together reads again if it was interrupted between the two clocks: the time
// that passed there would look like a jump.
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
