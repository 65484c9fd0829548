package spawn

// Doing things with files with the rights of a task's user.

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// As calls f with the task's user and groups for all that it does with files,
// on this thread alone: root is not asked who may enter a directory, and on a
// file server it may see less than the user.
func (id Account) As(f func() error) error {
	if id.cred == nil {
		return f()
	}
	runtime.LockOSThread() // as often as it is unlocked
	defer runtime.UnlockOSThread()
	before, err := unix.Getgroups()
	if err != nil {
		return fmt.Errorf("runner: own groups: %w", err)
	}
	mine := make([]uint32, len(before))
	for i, g := range before {
		mine[i] = uint32(g) //nolint:gosec // the kernel's gid_t
	}
	if err := setGroups(id.cred.Groups); err != nil {
		return err
	}
	_ = unix.Setfsgid(id.GID) // tells nothing; root always may
	_ = unix.Setfsuid(id.UID)
	found := f()
	_ = unix.Setfsuid(os.Geteuid())
	_ = unix.Setfsgid(os.Getegid())
	return errors.Join(found, setGroups(mine))
}

// setGroups sets the groups of this thread; the function of the library sets
// those of all.
func setGroups(groups []uint32) error {
	first := unsafe.Pointer(nil)
	if len(groups) > 0 {
		first = unsafe.Pointer(&groups[0])
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_SETGROUPS, uintptr(len(groups)), uintptr(first), 0); errno != 0 {
		return fmt.Errorf("runner: set groups of a thread: %w", errno)
	}
	return nil
}

// enter says why the current user could not have a directory as working directory.
func enter(dir string) error {
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)                                           //nolint:errcheck // nothing was written to it
	in, err := unix.Openat(fd, ".", unix.O_PATH|unix.O_CLOEXEC, 0) // looking something up in it takes what entering takes
	if err != nil {
		return err
	}
	return unix.Close(in)
}

// mayStart says why a task cannot start in a directory.
func mayStart(who Account, dir string) error {
	return whyNotIn(who, dir, who.As(func() error { return enter(dir) }))
}

// whyNotIn says for people what the kernel's word on a working directory means.
func whyNotIn(who Account, dir string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.ENOENT):
		return Refuse(CodeNotExecutable, "workdir %s: no such directory on this node", dir)
	case errors.Is(err, unix.ENOTDIR):
		return Refuse(CodeNotExecutable, "workdir %s: not a directory on this node", dir)
	case errors.Is(err, unix.EACCES):
		return Refuse(CodeNotExecutable, "workdir %s: user %s may not enter it on this node", dir, UserName(who))
	}
	return Refuse(CodeNotExecutable, "workdir %s: %v", dir, err)
}
