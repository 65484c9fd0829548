package protocol

// Making the files of a living runner again after somebody has removed them.

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// MakeAgain makes the directory again, unless the data directory that it is in is gone too: that is not ours to make.
func MakeAgain(d Dir) error {
	if _, err := os.Stat(filepath.Dir(string(d))); err != nil {
		return fmt.Errorf("runner: make directory again: %w", err)
	}
	return d.Make()
}

// Relock makes the lock file of a living runner again if it is gone, and the directory if that is gone too. It returns
// the lock that the runner holds from now on. That is the lock that it had, if the lock's file is there or another runner
// has taken its place.
func Relock(d Dir, info Info, had *os.File) (*os.File, error) {
	path := d.Lock(info.Generation)
	was, err := had.Stat()
	if err != nil {
		return had, fmt.Errorf("runner: keep lock: %w", err)
	}
	switch now, err := os.Stat(path); {
	case err == nil && os.SameFile(was, now):
		return had, nil
	case err == nil:
		other, err := d.TryLock(info.Generation)
		if other == nil {
			return had, err
		}
		_ = other.Close() // it was nobody's
	case !errors.Is(err, os.ErrNotExist):
		return had, fmt.Errorf("runner: keep lock: %w", err)
	default:
		if err := MakeAgain(d); err != nil {
			return had, err
		}
	}
	f, err := newLock(path+".new", info)
	if err == nil {
		if err = os.Rename(path+".new", path); err == nil {
			return f, nil
		}
		_ = f.Close() // nobody has seen it
	}
	return had, fmt.Errorf("runner: keep lock: %w", err)
}

// newLock makes a lock file under another name, so that nobody finds it before it is locked.
func newLock(path string, info Info) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, err
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err == nil {
		err = WriteInfo(f, info)
	}
	if err != nil {
		_ = f.Close() // the error tells more
		return nil, err
	}
	return f, nil
}
