package runner

// Exits of children that are reaped before the loop knows that they were started.

import (
	"time"

	"golang.org/x/sys/unix"
)

// earlyDeaths holds, by pid, the children that were reaped before the loop knew of their start.
type earlyDeaths map[int]earlyDeath

type earlyDeath struct {
	status unix.WaitStatus
	usage  unix.Rusage
	at     time.Duration // CLOCK_BOOTTIME after the wait
}

// take returns and forgets the exit of a process that was started after from. An exit before from belongs to an older
// process with the same pid.
func (e earlyDeaths) take(pid int, from time.Duration) (earlyDeath, bool) {
	d, ok := e[pid]
	if !ok || d.at < from {
		return earlyDeath{}, false
	}
	delete(e, pid)
	return d, true
}
