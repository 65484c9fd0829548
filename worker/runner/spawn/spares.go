package spawn

// Scratch directories that ended tasks have left empty, for later tasks of the same users. A file system renames a
// directory at less cost than it makes and removes one: 0.14 ms of CPU time for the directories of a task instead of 0.42 ms.
// An ext4 without a journal looks at each inode that was deleted in the last minutes before it makes a directory.
//
// Only a directory that is as good as new is kept (see asNew), and only once its task has no process left and its exit is on
// disk. Nothing on disk depends on the spare directories: on an error a new one is made.

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
)

const (
	// maxSpares bounds the spare directories of a runner.
	maxSpares = 64
	// maxSpareBytes bounds the disk space of one. Some file systems keep the space of names that were removed.
	maxSpareBytes = 4 << 10
	// scratchMode is the mode of a scratch directory.
	scratchMode = 0o700
)

// spares holds spare scratch directories. A directory is given only to tasks of the user that had it: a process that
// has it open, or watches it, could see names of another user's files. Its methods are safe for concurrent use.
type spares struct {
	dir string

	mu   sync.Mutex
	all  []spare // guarded by mu
	last int     // guarded by mu; number of the newest
}

// spare is one directory, which belongs to the runner's own user until it is given to a task.
type spare struct {
	path string
	who  spareOwner
}

// spareOwner is the user that had a directory. Private is false for tasks of the runner's own user.
type spareOwner struct {
	private  bool
	uid, gid int
}

func (id Account) spareOwner() spareOwner {
	if id.cred == nil {
		return spareOwner{}
	}
	return spareOwner{private: true, uid: id.UID, gid: id.GID}
}

// newSpares keeps directories in dir, which it makes. It removes what a dead runner has left there.
func newSpares(dir string) (*spares, error) {
	err := os.RemoveAll(dir)
	if err == nil {
		err = os.Mkdir(dir, scratchMode)
	}
	if err != nil {
		return nil, fmt.Errorf("runner: directory of spare scratch directories: %w", err)
	}
	return &spares{dir: dir}, nil
}

// give moves a spare directory of the user to path. It returns false if there is none. The caller makes the user its
// owner.
func (s *spares) give(path string, who Account) bool {
	d, ok := s.pick(who.spareOwner())
	if !ok {
		return false
	}
	if err := unix.Renameat2(unix.AT_FDCWD, d.path, unix.AT_FDCWD, path, unix.RENAME_NOREPLACE); err != nil {
		_ = unix.Rmdir(d.path) // it is empty, or somebody has removed it
		return false
	}
	return true
}

// pick removes and returns the newest directory of a user.
func (s *spares) pick(who spareOwner) (spare, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, d := range slices.Backward(s.all) {
		if d.who == who {
			s.all = slices.Delete(s.all, i, i+1)
			return d, true
		}
	}
	return spare{}, false
}

// Spare keeps the scratch directory of an ended task of a user for another task, and returns true, if it is as good as
// new. Otherwise the caller removes it.
func (s *Spawner) Spare(scratch string, who Account) bool { return s.spares.keep(scratch, who) }

// keep moves the scratch directory of an ended task to the spare ones. It returns false if the directory is not as
// good as new, or if there are enough. The caller then removes it.
func (s *spares) keep(path string, who Account) bool {
	to, ok := s.room(who.spareOwner())
	if !ok || !asNew(path, who, scratchMode) {
		return false
	}
	if err := unix.Renameat2(unix.AT_FDCWD, path, unix.AT_FDCWD, to, unix.RENAME_NOREPLACE); err != nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, spare{path: to, who: who.spareOwner()})
	return true
}

// room returns an unused name. If there are enough directories, it removes the oldest one of another user.
func (s *spares) room(who spareOwner) (string, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.all) >= maxSpares {
		old := s.all[0]
		if old.who == who {
			return "", false
		}
		s.all = slices.Delete(s.all, 0, 1)
		_ = unix.Rmdir(old.path) // it is empty
	}
	s.last++
	return filepath.Join(s.dir, strconv.Itoa(s.last)), true
}

// asNew reports whether a directory is empty and has the attributes of a new one with this mode. It first takes the
// directory from its user, so that no process of the user can put a file into it.
func asNew(path string, who Account, mode os.FileMode) bool {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd) //nolint:errcheck // nothing was written to it
	var is unix.Stat_t
	if unix.Fstat(fd, &is) != nil || is.Mode&0o7777 != uint32(mode) || is.Size > maxSpareBytes || is.Blocks*512 > maxSpareBytes ||
		int(is.Uid) != who.UID || int(is.Gid) != who.GID {
		return false
	}
	if who.cred != nil && unix.Fchown(fd, os.Geteuid(), os.Getegid()) != nil {
		return false
	}
	if n, err := unix.Flistxattr(fd, nil); n > 0 || err != nil && !errors.Is(err, unix.ENOTSUP) {
		return false // for instance an access control list
	}
	var names [1024]byte
	for {
		n, err := unix.ReadDirent(fd, names[:])
		if err != nil || n == 0 {
			return err == nil
		}
		if _, found, _ := unix.ParseDirent(names[:n], 1, nil); found > 0 {
			return false
		}
	}
}
