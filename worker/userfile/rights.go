// Package userfile opens the files that users name: output files, working directories, programs, mounts, and files to
// copy.
//
// A daemon of root must not open such a path with root's rights. Part of these rights is in the uid of files, part in
// the effective uid (files in /proc/sys), and part in the capabilities (links such as /proc/PID/cwd, disk quotas). So a
// Thread takes all of them from the user, and only a Thread can open a path. Some files are refused to everybody; see
// Thread.Open.
//
// See docs/adr, ADR 151.
package userfile

// Threads with the rights of a user.

import (
	"fmt"
	"os"
	"runtime"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Rights are the user and the groups with whose rights files are opened. Nil are those of this process.
type Rights = *syscall.Credential

// Thread is the current thread while it has the rights of a user. As makes one.
type Thread struct{ entered bool }

const (
	// unchanged leaves an id as it is in setresuid and setresgid.
	unchanged = ^uintptr(0)
	// retryPause is the pause before the kernel is asked again for the thread's own rights, which it refuses only for
	// want of memory.
	retryPause = 10 * time.Millisecond
)

// ownUID and ownGID are the effective ids of this process. Those of a thread may be a user's.
var ownUID, ownGID = os.Geteuid(), os.Getegid()

// As calls f with the rights of a user on this thread, which then gets its own back. It costs 4 µs. Calls must not nest.
//
// The real and the saved uid stay root's, and the permitted capabilities stay. So the user can neither signal nor trace
// nor reschedule the thread, and it can go back.
func As(r Rights, f func(Thread) error) error {
	if r == nil {
		return f(Thread{entered: true})
	}
	own, err := groupsOfProcess()
	if err != nil {
		return err
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer leave(own)
	if err := enter(r); err != nil {
		return err
	}
	return f(Thread{entered: true})
}

// enter takes the user's groups and effective ids. With the effective uid 0 the kernel takes away all effective
// capabilities, too; see CheckKernel.
func enter(r Rights) error {
	if err := setGroups(r.Groups); err != nil {
		return err
	}
	if errno := setIDs(unix.SYS_SETRESGID, uintptr(r.Gid)); errno != 0 {
		return fmt.Errorf("userfile: set group of a thread: %w", errno)
	}
	if errno := setIDs(unix.SYS_SETRESUID, uintptr(r.Uid)); errno != 0 {
		return fmt.Errorf("userfile: set user of a thread: %w", errno)
	}
	return nil
}

// leave gives the thread the rights of the process again, and returns only then.
func leave(groups []uint32) {
	for setIDs(unix.SYS_SETRESUID, uintptr(ownUID)) != 0 ||
		setIDs(unix.SYS_SETRESGID, uintptr(ownGID)) != 0 ||
		setGroups(groups) != nil {
		time.Sleep(retryPause)
	}
}

// setIDs sets the effective id of this thread. The functions of the libraries set those of all threads.
func setIDs(call, effective uintptr) syscall.Errno {
	_, _, errno := unix.RawSyscall(call, unchanged, effective, unchanged)
	return errno
}

// setGroups sets the supplementary groups of this thread, as setIDs does its ids.
func setGroups(groups []uint32) error {
	first := unsafe.Pointer(nil)
	if len(groups) > 0 {
		first = unsafe.Pointer(&groups[0])
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_SETGROUPS, uintptr(len(groups)), uintptr(first), 0); errno != 0 {
		return fmt.Errorf("userfile: set groups of a thread: %w", errno)
	}
	return nil
}

// groupsOfProcess returns the supplementary groups that this process was started with.
var groupsOfProcess = sync.OnceValues(func() ([]uint32, error) {
	all, err := unix.Getgroups()
	if err != nil {
		return nil, fmt.Errorf("userfile: own groups: %w", err)
	}
	out := make([]uint32, len(all))
	for i, g := range all {
		out[i] = uint32(g) //nolint:gosec // the kernel's gid_t
	}
	return out, nil
})

// noFixup is the securebit with which a thread keeps its capabilities when its effective uid changes.
const noFixup = 1 << 2

// CheckKernel returns an error if this process was started so that its threads would keep root's capabilities.
func CheckKernel() error {
	bits, err := unix.PrctlRetInt(unix.PR_GET_SECUREBITS, 0, 0, 0, 0)
	if err != nil {
		return fmt.Errorf("securebits: %w", err)
	}
	if bits&noFixup != 0 {
		return fmt.Errorf("securebits are %#x: with no-setuid-fixup the files that users name would be opened with root's capabilities", bits)
	}
	return nil
}
