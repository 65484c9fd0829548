package proc

// What the kernel says about this host.

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// MaxSmallFile bounds the files that muster itself writes, in bytes. The largest is an exit record with the last
// lines of stderr, in which JSON may escape each byte.
const MaxSmallFile = 64 << 10

// ReadBounded reads a file. A file of more than limit bytes is an error.
func ReadBounded(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(b)) > limit {
		err = fmt.Errorf("%s: over %d bytes", path, limit)
	}
	return b, err
}

// BootID returns the kernel's id of this boot, or "" if there is none.
func BootID() string {
	b, err := ReadBounded("/proc/sys/kernel/random/boot_id", MaxSmallFile)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// BootTime reads CLOCK_BOOTTIME, which runs on while the host sleeps; 0 on a system without it.
func BootTime() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return 0 // not on Linux
	}
	return time.Duration(ts.Nano())
}
