package worker

// The clock that leases are measured by.

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// BootTime is a reading of CLOCK_BOOTTIME: the time since this host booted,
// suspended time included. It means nothing on another host.
type BootTime time.Duration

// Add is the reading d later.
func (t BootTime) Add(d time.Duration) BootTime { return t + BootTime(d) }

// Sub is the time from u to t.
func (t BootTime) Sub(u BootTime) time.Duration { return time.Duration(t - u) }

// Now reads CLOCK_BOOTTIME. It panics where the system has no such clock:
// without one no lease can be kept.
func Now() BootTime {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		panic(fmt.Sprintf("worker: read CLOCK_BOOTTIME: %v", err))
	}
	return BootTime(ts.Nano())
}

// Moment is when an event is seen: Boot decides, Wall is for people to read.
type Moment struct {
	Boot BootTime
	Wall time.Time
}

// setSince is how far the wall clock was set forward between two moments of one
// boot.
func (m Moment) setSince(before Moment) time.Duration {
	return m.Wall.Sub(before.Wall) - m.Boot.Sub(before.Boot)
}
