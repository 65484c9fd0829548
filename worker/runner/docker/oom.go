package docker

// Whether the OOM killer killed a process of a container.

import (
	"bytes"
	"errors"

	"golang.org/x/sys/unix"
)

const (
	kernelLog = "/dev/kmsg"
	// maxRecord is the largest record of the kernel's log.
	maxRecord = 8192
	// maxRecords bounds one search; a log of 16 MiB has fewer.
	maxRecords = 1 << 18
)

// killedForMemory reports whether the kernel's log has an OOM kill in this container. The engine learns of such a
// kill only if its notification arrives before the container exits, which may fail on a busy host. A container id is
// never reused, and the kernel of another host does not know it.
func killedForMemory(container string) bool {
	fd, err := unix.Open(kernelLog, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return false // no permission
	}
	defer unix.Close(fd) //nolint:errcheck // nothing was written to it
	record := make([]byte, maxRecord)
	for range maxRecords {
		n, err := unix.Read(fd, record)
		switch {
		case errors.Is(err, unix.EPIPE), errors.Is(err, unix.EINTR), errors.Is(err, unix.EINVAL):
			continue // the record was overwritten, or is too long
		case err != nil || n <= 0:
			return false // the end of the log
		}
		if bytes.Contains(record[:n], []byte("oom-kill:")) && bytes.Contains(record[:n], []byte(container)) {
			return true
		}
	}
	return false
}
