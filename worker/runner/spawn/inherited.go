package spawn

// Descriptors that a process of muster inherits from the program that started it. A shell, a cron job or a service
// manager may leave files open in what it starts. Nothing of muster uses them, and a task that got one could read or
// write a file that its user may not even open. So the daemon, the runners and the agent of the GPU driver begin without
// them, and so does the helper that executes a task's program.
// See docs/adr, ADR 118.

import (
	"fmt"
	"math"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// firstInherited is the first descriptor after the standard streams.
const firstInherited = 3

// CloseInherited closes the descriptors above 2 that this process has from its parent. Those that systemd passes by
// LISTEN_FDS stay open here, but no child gets them. A program calls it before it starts others.
//
// It finds them by the mark close-on-exec. An inherited descriptor never has it, because it would have been closed when
// the program was executed. All that the Go runtime and this module open has it, so nothing of this process is closed.
func CloseInherited() error {
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return fmt.Errorf("close inherited descriptors: %w", err)
	}
	first := firstInherited + passedBySystemd()
	for _, e := range open {
		fd, err := strconv.Atoi(e.Name())
		if err != nil || fd < first {
			continue
		}
		if mark, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && mark&unix.FD_CLOEXEC == 0 {
			_ = unix.Close(fd) // it is not ours, so nothing of ours can be lost
		}
	}
	// Those of systemd, and any that another thread opened meanwhile without the mark. Linux before 5.11 cannot; there
	// the loop above was all.
	_ = unix.CloseRange(firstInherited, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC)
	return nil
}

// passedBySystemd returns how many descriptors from 3 on systemd has passed to this process. See sd_listen_fds(3).
func passedBySystemd() int {
	if pid, err := strconv.Atoi(os.Getenv("LISTEN_PID")); err != nil || pid != os.Getpid() {
		return 0
	}
	n, err := strconv.Atoi(os.Getenv("LISTEN_FDS"))
	if err != nil || n < 0 {
		return 0
	}
	return n
}
