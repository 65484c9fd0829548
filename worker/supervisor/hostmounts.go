package supervisor

// The mounts that a runner and its tasks see. A systemd service may see other mounts than the host: with
// ProtectKernelTunables= it cannot write /proc/sys, and nothing else sees what is mounted there. Tasks must see what
// their users see, and container engines must see what a runner mounts.

import (
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// hostMounts is the mount namespace of the host's first process.
const hostMounts = "/proc/1/ns/mnt"

// inHostMounts calls start on a thread that sees the mounts of the host. So a process that start makes sees them, too. If
// this process sees them already, it just calls start.
func inHostMounts(start func() error) error {
	own, err := os.Readlink("/proc/self/ns/mnt")
	if err != nil {
		return fmt.Errorf("supervisor: own mounts: %w", err)
	}
	host, err := os.Readlink(hostMounts)
	if err != nil {
		return fmt.Errorf("supervisor: mounts of the host: %w", err)
	}
	if own == host {
		return start()
	}
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // without the unlock, the thread ends with this goroutine
		err := enterHostMounts()
		if err == nil {
			err = start()
		}
		done <- err
	}()
	return <-done
}

// enterHostMounts moves this thread to the mount namespace of the host, for ever.
func enterHostMounts() error {
	f, err := os.Open(hostMounts)
	if err != nil {
		return fmt.Errorf("supervisor: mounts of the host: %w", err)
	}
	defer f.Close()
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return fmt.Errorf("supervisor: a thread with mounts of its own: %w", err)
	}
	if err := unix.Setns(int(f.Fd()), unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("supervisor: enter the mounts of the host: %w", err)
	}
	return nil
}
