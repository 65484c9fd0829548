package userfile

// Disk quotas.

import (
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

// Charge calls f, which gives files to a user, without the capability by which root exceeds disk quotas: f fails if the
// user has no room for them.
func Charge(f func() error) error {
	if ownUID != 0 {
		return f()
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3} // pid 0: this thread
	var before [2]unix.CapUserData
	if err := unix.Capget(&head, &before[0]); err != nil {
		return fmt.Errorf("capabilities of a thread: %w", err)
	}
	less := before
	less[0].Effective &^= 1 << unix.CAP_SYS_RESOURCE
	if err := unix.Capset(&head, &less[0]); err != nil {
		return fmt.Errorf("drop a capability of a thread: %w", err)
	}
	defer unix.Capset(&head, &before[0]) //nolint:errcheck // what is permitted can always be made effective
	return f()
}
