package spawn

// Opening files and directories with the rights of a task's user.

import (
	"errors"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/worker/userfile"
)

// As calls f with the rights of the task's user; see userfile.As. Root's own rights are the wrong ones: they allow what
// the user may not do, and on a file server root may be allowed less than the user.
func (id Account) As(f func(userfile.Thread) error) error { return userfile.As(id.cred, f) }

// workdir is the directory in which a task starts.
type workdir struct {
	path string
	// fd is the directory, opened with the rights of the task's user; -1: it is the scratch directory, whose path no
	// user can change.
	fd int
}

// noWorkdir stands for a directory that was not opened.
var noWorkdir = workdir{fd: -1}

func (w workdir) close() {
	if w.fd >= 0 {
		_ = unix.Close(w.fd) // nothing was written to it
	}
}

// open opens a path that the task's user named. A relative one begins in the directory.
func (w workdir) open(t userfile.Thread, path string, flags int, mode uint32) (int, error) {
	if w.fd >= 0 || filepath.IsAbs(path) {
		return t.Open(w.fd, path, flags, mode)
	}
	return t.Open(unix.AT_FDCWD, filepath.Join(w.path, path), flags, mode)
}

// again changes into the directory by its path, in the mounts that this thread has now. By the descriptor the thread
// would get into the mounts in which the directory was opened, and the kernel could not say where that is. The path must
// still lead to the same directory.
func (w workdir) again(t userfile.Thread) error {
	fd, err := t.Directory(w.path)
	if err != nil {
		return err
	}
	defer unix.Close(fd) //nolint:errcheck // nothing was written to it
	var before, now unix.Stat_t
	if err := errors.Join(unix.Fstat(w.fd, &before), unix.Fstat(fd, &now)); err != nil {
		return err
	}
	if before.Dev != now.Dev || before.Ino != now.Ino {
		return errMoved
	}
	return unix.Fchdir(fd)
}

// errMoved says that a path leads to another directory than a moment ago.
var errMoved = errors.New("somebody has replaced it just now")

// abs returns an absolute path for people and programs.
func (w workdir) abs(path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(w.path, path)
}

// openWorkdir opens a working directory that a task's user named. The error is a StartError if the user cannot have it.
func openWorkdir(t userfile.Thread, who Account, dir string) (workdir, error) {
	fd, err := t.Directory(dir)
	switch {
	case err == nil:
		return workdir{dir, fd}, nil
	case errors.Is(err, unix.ENOENT):
		return noWorkdir, Refuse(CodeNotExecutable, "workdir %s: no such directory on this node", dir)
	case errors.Is(err, unix.ENOTDIR):
		return noWorkdir, Refuse(CodeNotExecutable, "workdir %s: not a directory on this node", dir)
	case errors.Is(err, unix.EACCES):
		return noWorkdir, Refuse(CodeNotExecutable, "workdir %s: user %s may not enter it on this node", dir, UserName(who))
	}
	return noWorkdir, refuseFor(err, "workdir %s: %v", dir, err)
}
