package proc

// What the kernel tells about this host.

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// MaxSmallFile bounds what is read of a file that we wrote ourselves: an exit
// record with its tail, each byte of it escaped, is well below.
const MaxSmallFile = 64 << 10

// ReadBounded reads a file of at most limit bytes; a longer one is an error.
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

// BootID is the kernel's name for the time since it was started.
func BootID() string {
	b, err := ReadBounded("/proc/sys/kernel/random/boot_id", MaxSmallFile)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// BootTime reads CLOCK_BOOTTIME, which goes on while the host sleeps; 0 where there is none.
func BootTime() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return 0 // not on Linux
	}
	return time.Duration(ts.Nano())
}
