package runner

// The clock that tells when a task has to end.

import (
	"time"

	"golang.org/x/sys/unix"
)

// bootTime reads CLOCK_BOOTTIME: it goes on while the host sleeps.
func bootTime() time.Duration { return clock(unix.CLOCK_BOOTTIME) }

func clock(id int32) time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(id, &ts); err != nil {
		return 0 // not on Linux
	}
	return time.Duration(ts.Nano())
}
