package userfile

// Opening a path.

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

const (
	// always are the flags of each file that is opened. A FIFO without a reader must not block the thread, and a terminal
	// must not become that of the daemon.
	always = unix.O_CLOEXEC | unix.O_NONBLOCK | unix.O_NOCTTY
	// ofPath are the flags that O_PATH permits beside it.
	ofPath = unix.O_CLOEXEC | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_PATH
	// maxLinks is how many symbolic links the kernel follows in a path.
	maxLinks = 40
)

// errEntered says that a Thread was not made by As.
var errEntered = errors.New("userfile: a path is opened without the rights of its user")

// Open opens a path that a user named, as open(2) does, and returns the descriptor. A relative path begins at the open
// directory dir. The error is ErrLink if the path leads through a magic link, and ErrKernel if it leads to a file of the
// kernel. Such a file is not written, and not truncated with O_TRUNC.
//
// A magic link leads wherever the kernel says, past the directories above: to a closed directory, into the mounts of
// another process, to an open file of this one.
func (t Thread) Open(dir int, path string, flags int, mode uint32) (int, error) {
	if !t.entered {
		return -1, errEntered
	}
	how := (flags | always) &^ unix.O_TRUNC
	if flags&unix.O_PATH != 0 {
		how = (flags | unix.O_CLOEXEC) & ofPath
	}
	if flags&unix.O_CREAT == 0 {
		mode = 0
	}
	fd, err := follow(dir, path, how, mode)
	if err != nil {
		return -1, err
	}
	if err = check(fd); err == nil && flags&unix.O_TRUNC != 0 {
		err = truncate(fd)
	}
	if err != nil {
		_ = unix.Close(fd) // nothing was written
		return -1, err
	}
	return fd, nil
}

// truncate does what O_TRUNC does: a device or a FIFO has no length.
func truncate(fd int) error {
	var is unix.Stat_t
	if err := unix.Fstat(fd, &is); err != nil || is.Mode&unix.S_IFMT != unix.S_IFREG || is.Size == 0 {
		return err
	}
	return unix.Ftruncate(fd, 0)
}

// Directory opens a directory in which the user may look files up, as chdir(2) does.
func (t Thread) Directory(path string) (int, error) {
	fd, err := t.Open(unix.AT_FDCWD, path, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return -1, err
	}
	in, err := unix.Openat(fd, ".", unix.O_PATH|unix.O_CLOEXEC, 0) // a lookup needs the same right as chdir
	if err != nil {
		_ = unix.Close(fd) // nothing was written to it
		return -1, err
	}
	_ = unix.Close(in) // likewise
	return fd, nil
}

// OpenRoot opens a directory of which the user wants files. Nothing outside of it can be opened with the result.
func (t Thread) OpenRoot(path string) (*os.Root, error) {
	fd, err := t.Directory(path)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd) //nolint:errcheck // nothing was written to it
	return os.OpenRoot(Name(fd))
}

// Name returns a path that leads to an open file, whatever happens to the path by which it was opened. It is good in
// this process and in one that it forks, until that executes a program.
func Name(fd int) string { return fmt.Sprintf("/proc/self/fd/%d", fd) }

// PathOf returns the path of an open file, without symbolic links, or "" if the kernel does not tell.
func PathOf(fd int) string {
	path, err := os.Readlink(Name(fd))
	if err != nil {
		return ""
	}
	return path
}

// oldKernel is set once the kernel has said that it has no openat2: Linux before 5.6, or a filter of system calls.
var oldKernel atomic.Bool

// follow opens a path without magic links.
func follow(dir int, path string, flags int, mode uint32) (int, error) {
	if oldKernel.Load() {
		return walk(dir, path, flags, mode)
	}
	for {
		fd, err := unix.Openat2(dir, path, &unix.OpenHow{Flags: uint64(flags), Mode: uint64(mode), Resolve: unix.RESOLVE_NO_MAGICLINKS}) //nolint:gosec // flags are positive
		switch {
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.EAGAIN):
			continue
		case errors.Is(err, unix.ELOOP):
			return -1, ErrLink
		case errors.Is(err, unix.ENOSYS), errors.Is(err, unix.EPERM) && !hasOpenat2():
			oldKernel.Store(true)
			return walk(dir, path, flags, mode)
		}
		return fd, err
	}
}

// hasOpenat2 reports whether openat2 works at all. Some filters of system calls answer EPERM to what they do not know.
func hasOpenat2() bool {
	fd, err := unix.Openat2(unix.AT_FDCWD, "/", &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC})
	if err != nil {
		return false
	}
	_ = unix.Close(fd) // nothing was written
	return true
}

// walk is follow without openat2: it opens one name of the path after the other, and follows links by itself.
func walk(dir int, path string, flags int, mode uint32) (int, error) {
	if path == "" {
		return -1, unix.ENOENT
	}
	at, err := begin(dir, path)
	if err != nil {
		return -1, err
	}
	defer func() { _ = unix.Close(at) }() // nothing was written to it
	links := 0
	for rest := names(path); len(rest) > 0; {
		name, last := rest[0], len(rest) == 1
		rest = rest[1:]
		next, target, err := step(at, name, last, flags, mode)
		switch {
		case err != nil:
			return -1, err
		case target == "" && last:
			return next, nil
		case target != "":
			rest = append(names(target), rest...)
			if links++; links > maxLinks {
				return -1, ErrLink
			}
			if next, err = begin(at, target); err != nil {
				return -1, err
			}
		}
		_ = unix.Close(at) // nothing was written to it
		at = next
	}
	return unix.Openat(at, ".", flags&^unix.O_CREAT, 0)
}

// step opens one name in the directory at: with the flags if it is the last, and else as a directory. If the name is a
// link that is to be followed, its target is returned instead.
func step(at int, name string, last bool, flags int, mode uint32) (fd int, target string, err error) {
	fd, err = unix.Openat(at, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	isNew := last && flags&unix.O_CREAT != 0 && errors.Is(err, unix.ENOENT)
	if err != nil && !isNew {
		return -1, "", err
	}
	if !isNew && (!last || flags&unix.O_NOFOLLOW == 0) {
		target, err = linkAt(fd)
	}
	if !isNew && !last && target == "" && err == nil {
		return fd, "", nil
	}
	if !isNew {
		_ = unix.Close(fd) // nothing was written
		if err != nil || target != "" {
			return -1, target, err
		}
	}
	fd, err = unix.Openat(at, name, flags|unix.O_NOFOLLOW, mode)
	return fd, "", err
}

// begin opens the directory at which a path begins.
func begin(dir int, path string) (int, error) {
	from := "."
	if strings.HasPrefix(path, "/") {
		from = "/"
	}
	return unix.Openat(dir, from, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
}

// names returns the names in a path. The last is "." if the path has to lead to a directory.
func names(path string) []string {
	all := strings.FieldsFunc(path, func(r rune) bool { return r == '/' })
	if len(all) > 0 && strings.HasSuffix(path, "/") {
		all = append(all, ".")
	}
	return all
}

// linkAt returns the target of an open symbolic link, or "" if the file is none.
func linkAt(fd int) (string, error) {
	var is unix.Stat_t
	if err := unix.Fstat(fd, &is); err != nil || is.Mode&unix.S_IFMT != unix.S_IFLNK {
		return "", err
	}
	var disk unix.Statfs_t
	if err := unix.Fstatfs(fd, &disk); err != nil {
		return "", err
	}
	if kernels[uint32(disk.Type)] { //nolint:gosec // as in check
		return "", ErrLink
	}
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(fd, "", buf)
	switch {
	case err != nil:
		return "", err
	case n == 0:
		return "", unix.ENOENT
	}
	return string(buf[:n]), nil
}
