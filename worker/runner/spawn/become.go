package spawn

// Programs that users can change are executed by a process of their own. The
// kernel reads a program when it is executed, and a process is made by vfork: the
// runner's thread stands still meanwhile, unknown to Go's scheduler, and soon the
// whole runner does. A user with a file system of his own could let it wait.

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	// becomeName is the name under which this program executes another.
	becomeName = "muster-become"
	// ownProgram is the file of the program that runs.
	ownProgram = "/proc/self/exe"
	// maxLinks is how many symbolic links the kernel follows in a path.
	maxLinks = 40
	// othersWrite are the bits of a mode with which others than the owner may
	// write; an access list that lets anyone shows in those of the group.
	othersWrite = 0o022
)

// localDisks are the file systems that answer as long as the kernel does.
var localDisks = map[int64]bool{
	unix.EXT4_SUPER_MAGIC: true, unix.XFS_SUPER_MAGIC: true, unix.BTRFS_SUPER_MAGIC: true, unix.F2FS_SUPER_MAGIC: true,
	unix.TMPFS_MAGIC: true, unix.RAMFS_MAGIC: true, unix.OVERLAYFS_SUPER_MAGIC: true, unix.SQUASHFS_MAGIC: true,
	unix.EROFS_SUPER_MAGIC_V1: true, zfsMagic: true,
}

// zfsMagic is not among the kernel's own.
const zfsMagic = 0x2fc12fc1

// Become executes the program that this process was started to become. If it
// was, and cannot, code is what to exit with. Main calls it before all else.
func Become() (code int, failed bool) {
	if len(os.Args) < 3 || os.Args[0] != becomeName {
		return 0, false
	}
	path, argv := os.Args[1], os.Args[2:]
	err := syscall.Exec(path, argv, os.Environ())
	if errors.Is(err, unix.ENOEXEC) { // a script without its #! line, as a shell would take it
		err = syscall.Exec(shell, append([]string{shell, path}, argv[1:]...), os.Environ())
	}
	if errors.Is(err, unix.ENOENT) { // it was there a moment ago
		err = errNoLoader
	}
	fmt.Fprintf(os.Stderr, "muster: cannot execute %s: %v\n", path, err)
	return CodeNotExecutable, true
}

var errNoLoader = errors.New("its interpreter or loader does not exist")

// look reads the beginning of the program, where it hangs if it does, and finds
// out whether it is executed by a process of its own. What the runner's own user
// lets hang is his.
func (l *launch) look() error {
	touch(l.path)
	l.becomes = l.who.cred != nil && !trusted(l.path)
	if l.becomes && errors.Is(unix.Faccessat(unix.AT_FDCWD, l.path, unix.X_OK, unix.AT_EACCESS), unix.EACCES) {
		return l.denied(l.path)
	}
	return nil
}

// denied is the kernel's EACCES for people.
func (l *launch) denied(what string) error {
	return Refuse(CodeNotExecutable, "permission denied: user %s may not execute %s in %s", UserName(l.who), what, l.where)
}

// program is what a fork executes, and its words.
func (l *launch) program() (path string, argv []string) {
	if !l.becomes {
		return l.path, l.argv
	}
	return ownProgram, append([]string{becomeName, l.path}, l.argv...)
}

// trusted says that nobody but root can change what a path leads to, and that it
// lies on a local disk.
func trusted(path string) bool {
	if !filepath.IsAbs(path) {
		return false
	}
	at, rest := "/", strings.Split(path, "/")
	for links := 0; len(rest) > 0; {
		name := rest[0]
		rest = rest[1:]
		switch name {
		case "", ".":
			continue
		case "..":
			at = filepath.Dir(at)
			continue
		}
		next := filepath.Join(at, name)
		var is unix.Stat_t
		if unix.Lstat(next, &is) != nil || is.Uid != 0 {
			return false
		}
		if is.Mode&unix.S_IFMT != unix.S_IFLNK {
			if is.Mode&othersWrite != 0 {
				return false
			}
			at = next
			continue
		}
		target, err := os.Readlink(next)
		if links++; err != nil || links > maxLinks {
			return false
		}
		if filepath.IsAbs(target) {
			at = "/"
		}
		rest = append(strings.Split(target, "/"), rest...)
	}
	var disk unix.Statfs_t
	return unix.Statfs(at, &disk) == nil && localDisks[int64(disk.Type)] //nolint:unconvert // an int32 on some machines
}
