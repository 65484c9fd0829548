package spawn

// The directory of an attempt: a new one, or that of an ended attempt that wrote nothing. A file system renames a
// directory at less cost than it makes one: 0.02 ms instead of 0.1 to 0.25 ms. A later runner takes the directory as the
// sign that its attempt was started. So it cannot be made only with the first byte of output.

import (
	"os"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/job"
)

// makeDir gives an attempt its directory. If there is one already, it returns os.ErrExist.
func (s *Spawner) makeDir(o *Order) error {
	path := s.dir.Task(o.Attempt)
	if spare, err := job.ParseAttempt(o.Start.Spare); err == nil && s.takeDir(s.dir.Task(spare), path) {
		return nil
	}
	return os.Mkdir(path, s.Mode())
}

// takeDir renames a directory that is as good as new. It returns false if it is not, or if there is something at the
// new path. No user can change the directory meanwhile, unless tasks run as the runner's own user.
func (s *Spawner) takeDir(from, to string) bool {
	return asNew(from, Account{UID: os.Geteuid(), GID: os.Getegid()}, s.Mode()) &&
		unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, to, unix.RENAME_NOREPLACE) == nil
}
