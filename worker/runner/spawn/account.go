package spawn

// File operations with the rights of a task's user.

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// As calls f with the file system rights of the task's user and groups, on this thread only. Root's own rights are
// the wrong ones: they allow what the user may not do, and on a file server root may be allowed less than the user.
func (id Account) As(f func() error) error {
	if id.cred == nil {
		return f()
	}
	runtime.LockOSThread() // calls nest
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
	_ = unix.Setfsgid(id.GID) // returns no error; root always may
	_ = unix.Setfsuid(id.UID)
	found := f()
	_ = unix.Setfsuid(os.Geteuid())
	_ = unix.Setfsgid(os.Getegid())
	return errors.Join(found, setGroups(mine))
}

// setGroups sets the supplementary groups of this thread. unix.Setgroups would set those of all threads.
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

// enter returns the reason why the current user cannot have dir as working directory, or nil.
func enter(dir string) error {
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)                                           //nolint:errcheck // nothing was written to it
	in, err := unix.Openat(fd, ".", unix.O_PATH|unix.O_CLOEXEC, 0) // a lookup needs the same right as chdir
	if err != nil {
		return err
	}
	return unix.Close(in)
}

// mayStart returns the reason why a task of this user cannot start in dir, or nil.
func mayStart(who Account, dir string) error {
	return whyNotIn(who, dir, who.As(func() error { return enter(dir) }))
}

// whyNotIn turns an error of chdir into a StartError that people understand.
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
