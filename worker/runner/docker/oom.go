package docker

// Whether the kernel ended a container's process for lack of memory.

import (
	"bytes"
	"errors"

	"golang.org/x/sys/unix"
)

const (
	kernelLog = "/dev/kmsg"
	// maxRecord is the most that one read of the kernel's log gives.
	maxRecord = 8192
	// maxRecords bounds one look: more than a log of 16 MiB holds.
	maxRecords = 1 << 18
)

// killedForMemory says whether the kernel's log names the container as one that
// was out of memory. The engine knows it only if it heard of it before the end
// of the container, which on a busy host it may not. The kernel of a host without
// the container does not know its name, which is never given twice.
func killedForMemory(container string) bool {
	fd, err := unix.Open(kernelLog, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return false // not for us to read
	}
	defer unix.Close(fd) //nolint:errcheck // nothing was written to it
	record := make([]byte, maxRecord)
	for range maxRecords {
		n, err := unix.Read(fd, record)
		switch {
		case errors.Is(err, unix.EPIPE), errors.Is(err, unix.EINTR), errors.Is(err, unix.EINVAL):
			continue // it was written over, or is too long to be of interest
		case err != nil || n <= 0:
			return false // the end, for now
		}
		if bytes.Contains(record[:n], []byte("oom-kill:")) && bytes.Contains(record[:n], []byte(container)) {
			return true
		}
	}
	return false
}
