package worker

// The clocks of a worker: leases are measured by the lease clock, people read the wall clock.

import (
	"time"

	"github.com/musterhq/muster/worker/leaseclock"
)

// BootTime is a reading of the lease clock: the time since this host booted,
// suspended time included, and also the time for which it was paused from
// outside, as far as its wall clock has told (package leaseclock). It means
// nothing on another host or to another process; OnHost turns it into a reading
// of CLOCK_BOOTTIME, which all processes of the host share.
type BootTime time.Duration

// Add is the reading d later.
func (t BootTime) Add(d time.Duration) BootTime { return t + BootTime(d) }

// Sub is the time from u to t.
func (t BootTime) Sub(u BootTime) time.Duration { return time.Duration(t - u) }

// OnHost returns the moment as CLOCK_BOOTTIME shows it, and the skew (wall clock less CLOCK_BOOTTIME) under which that is
// right. A process that has seen a later pause of this host has to subtract it.
func (t BootTime) OnHost() (boot, skew time.Duration) { return clock.OnHost(time.Duration(t)) }

// clock is the lease clock of this process: a host has one time.
var clock = leaseclock.New(leaseclock.Reader())

// Now reads the lease clock. It panics where the system has no CLOCK_BOOTTIME:
// without one no lease can be kept.
func Now() BootTime { return BootTime(clock.Now()) }

// Missed is the sum of all pauses of this host that Now has seen.
func Missed() time.Duration { return clock.Missed() }

// Moment is when an event is seen: Boot decides, Wall is for people to read.
type Moment struct {
	Boot BootTime
	Wall time.Time
}

// ReadClocks reads the lease clock and the wall clock of this host.
func ReadClocks() Moment { return Moment{Boot: Now(), Wall: time.Now()} }

// setSince returns by how much the wall clock was set forward between two moments of one boot.
func (m Moment) setSince(before Moment) time.Duration {
	return m.Wall.Sub(before.Wall) - m.Boot.Sub(before.Boot)
}
