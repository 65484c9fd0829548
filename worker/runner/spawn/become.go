package spawn

// Programs that users can change are executed by a helper process.
// The kernel reads a program while it executes it, and Go starts a process with vfork: the runner's thread stands
// still until the program is executed. The Go scheduler does not notice that, and soon the whole runner stands still.
// A user with a FUSE file system could do that on purpose. So the runner first starts its own binary, which then
// executes the user's program.

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/worker/userfile"
)

const (
	// becomeName is argv[0] of the helper process.
	becomeName = "muster-become"
	// ownProgram is the binary of this process.
	ownProgram = "/proc/self/exe"
	// maxLinks is how many symbolic links the kernel follows in a path.
	maxLinks = 40
	// othersWrite are the mode bits that let others than the owner write. An access control list that lets anyone
	// write shows in the group bits.
	othersWrite = 0o022
)

// localDisks are the file systems that never hang while the kernel runs.
var localDisks = map[int64]bool{
	unix.EXT4_SUPER_MAGIC: true, unix.XFS_SUPER_MAGIC: true, unix.BTRFS_SUPER_MAGIC: true, unix.F2FS_SUPER_MAGIC: true,
	unix.TMPFS_MAGIC: true, unix.RAMFS_MAGIC: true, unix.OVERLAYFS_SUPER_MAGIC: true, unix.SQUASHFS_MAGIC: true,
	unix.EROFS_SUPER_MAGIC_V1: true, zfsMagic: true,
}

// zfsMagic is not defined by the kernel's headers.
const zfsMagic = 0x2fc12fc1

// Become executes the task's program if this process is a helper process, and then does not return. If it is one but
// the program cannot be executed, failed is true and code is the exit code. Main calls Become before all else.
func Become() (code int, failed bool) {
	if len(os.Args) < 3 || os.Args[0] != becomeName {
		return 0, false
	}
	path, argv := os.Args[1], os.Args[2:]
	err := CloseInherited()
	if err != nil {
		fmt.Fprintf(os.Stderr, "muster: cannot execute %s: %v\n", path, err)
		return CodeOurs, true
	}
	err = syscall.Exec(path, argv, os.Environ())
	if errors.Is(err, unix.ENOEXEC) { // a script without a #! line, which shells run with /bin/sh
		err = syscall.Exec(shell, append([]string{shell, path}, argv[1:]...), os.Environ())
	}
	if errors.Is(err, unix.ENOENT) { // the program itself was found before
		err = errNoLoader
	}
	fmt.Fprintf(os.Stderr, "muster: cannot execute %s: %v\n", path, err)
	return CodeNotExecutable, true
}

var errNoLoader = errors.New("its interpreter or loader does not exist")

// find finds the program of the command. The caller's thread has the rights of the task's user: as root it would reveal
// files that the user may not see.
func (l *launch) find(t userfile.Thread, env []string) (err error) {
	if l.path, err = program(t, l.argv[0], l.workdir, env); err != nil {
		return err
	}
	return l.look(t)
}

// look reads the beginning of the program, so that a hung file system blocks this thread and not the fork. It also
// decides whether a helper process executes the program. Tasks of the runner's own user need none: that user could
// stop the runner anyway.
//
// Not every program is executed by a helper, although the look would then not be needed: the helper takes 2.6 ms of CPU
// time, and the start of a task 2.0 to 3.5 ms in all. The rate of short tasks fell from about 420 to 165 a second.
func (l *launch) look(t userfile.Thread) error {
	l.programs = touch(t, l.path)
	l.becomes = l.who.cred != nil && !trusted(l.path)
	if l.becomes && errors.Is(unix.Faccessat(unix.AT_FDCWD, l.path, unix.X_OK, unix.AT_EACCESS), unix.EACCES) {
		return l.denied(l.path)
	}
	return nil
}

// denied turns EACCES into a StartError that people understand.
func (l *launch) denied(what string) error {
	return Refuse(CodeNotExecutable, "permission denied: user %s may not execute %s in %s", UserName(l.who), what, l.workdir.path)
}

// program returns the path and the arguments that a fork executes.
func (l *launch) program() (path string, argv []string) {
	if !l.becomes {
		return l.path, l.argv
	}
	return ownProgram, append([]string{becomeName, l.path}, l.argv...)
}

// trusted reports whether only root can change what path leads to, and whether the file lies on a local disk.
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
