package upload

// The directory that files are extracted to. Each path is opened part by part from there, and no part may be a link, so that
// nothing is written elsewhere, whatever is in the directory or is put there meanwhile.

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// destination is an open directory.
type destination struct {
	root  *os.File
	fresh bool // it was empty when it was opened

	at   string   // path below root of the directory that was used last
	last *os.File // it; nil: none
	got  int64    // bytes since the free space was looked up
}

func openDestination(dir string) (*destination, error) {
	root, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	_, err = root.Readdirnames(1)
	return &destination{root: root, fresh: errors.Is(err, io.EOF), got: freeEach}, nil
}

func (d *destination) close() {
	_ = d.root.Close() // a directory
	d.forget()
}

func (d *destination) forget() {
	if d.last != nil {
		_ = d.last.Close() // a directory
	}
	d.at, d.last = "", nil
}

// dir opens a directory below the root. It makes directories that are missing.
func (d *destination) dir(name string) (int, error) {
	switch {
	case name == ".":
		return int(d.root.Fd()), nil
	case d.last != nil && d.at == name:
		return int(d.last.Fd()), nil
	}
	at, rest := d.root, name
	if d.last != nil && strings.HasPrefix(name, d.at+"/") {
		at, rest = d.last, name[len(d.at)+1:]
	}
	for part := range strings.SplitSeq(rest, "/") {
		next, err := openBelow(at, part, 0o755)
		if at != d.root && at != d.last {
			_ = at.Close() // a directory
		}
		if err != nil {
			return -1, err
		}
		at = next
	}
	d.forget()
	d.at, d.last = name, at
	return int(at.Fd()), nil
}

// openBelow opens a directory in an open one, and makes it with this mode if it is missing.
func openBelow(at *os.File, part string, mode fs.FileMode) (*os.File, error) {
	if err := unix.Mkdirat(int(at.Fd()), part, uint32(mode)); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	fd, err := unix.Openat(int(at.Fd()), part, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
		return nil, fmt.Errorf("%w: %.100q is here already, and is no directory; links are not followed", ErrArchive, part)
	}
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), part), nil
}

// makeDir makes a directory, unless it is there. Its user may always write to it.
func (d *destination) makeDir(name string, mode fs.FileMode) error {
	above, err := d.dir(path.Dir(name))
	if err != nil {
		return err
	}
	if err := unix.Mkdirat(above, path.Base(name), uint32(mode|0o700)); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	_, err = d.dir(name)
	return err
}

// stat returns what is at a path, without following a link.
func (d *destination) stat(name string) (fs.FileInfo, error) {
	above, err := d.dir(path.Dir(name))
	if err != nil {
		return nil, err
	}
	fd, err := unix.Openat(above, path.Base(name), unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	return f.Stat()
}

// target returns the target of a link, or "".
func (d *destination) target(name string) string {
	above, err := d.dir(path.Dir(name))
	if err != nil {
		return ""
	}
	buf := make([]byte, maxPath)
	n, err := unix.Readlinkat(above, path.Base(name), buf)
	if err != nil {
		return ""
	}
	return string(buf[:n])
}

// partName returns a new name for a file that is not complete.
func partName() string { return ".muster-" + rand.Text() + ".part" }

// link makes a link named part in the directory of a path.
func (d *destination) link(name, part, target string) error {
	above, err := d.dir(path.Dir(name))
	if err != nil {
		return err
	}
	return unix.Symlinkat(target, above, part)
}

// file writes a file named part in the directory of a path. The user's umask applies to its mode.
func (d *destination) file(name, part string, mode fs.FileMode, size int64, modified time.Time, data io.Reader) error {
	if err := d.room(size); err != nil {
		return err
	}
	above, err := d.dir(path.Dir(name))
	if err != nil {
		return err
	}
	fd, err := unix.Openat(above, part, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, uint32(mode))
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), name)
	_, err = io.Copy(f, data)
	err = errors.Join(err, f.Close())
	if err == nil {
		at := unix.NsecToTimespec(modified.UnixNano())
		err = unix.UtimesNanoAt(above, part, []unix.Timespec{at, at}, unix.AT_SYMLINK_NOFOLLOW)
	}
	if err != nil {
		_ = unix.Unlinkat(above, part, 0) // it is incomplete
	}
	return err
}

// freeEach is how much is written before the free space is looked up again.
const freeEach = 1 << 20

// room returns an error if a file would leave less than the spare part of the file system free.
func (d *destination) room(size int64) error {
	if d.got += size; d.got < freeEach {
		return nil
	}
	d.got = 0
	var s unix.Statfs_t
	if err := unix.Fstatfs(int(d.root.Fd()), &s); err != nil || s.Bsize <= 0 {
		return nil //nolint:nilerr // then the write itself fails when there is no room
	}
	const most = 1 << 40                                                                // blocks; the product stays below 1 << 63
	free, all := int64(min(s.Bavail, most))*s.Bsize, int64(min(s.Blocks, most))*s.Bsize //nolint:gosec // bounded
	if spare := min(all/spareParts, mostSpare); size > free-spare {
		return fmt.Errorf("%w: a file of %d bytes, and the disk has %d bytes free, of which %d stay free", ErrTooLarge, size, free, spare)
	}
	return nil
}

// rename gives the file named part its final name. Unless replaces is set, the error is fs.ErrExist if the name is
// taken.
func (d *destination) rename(name, part string, replaces bool) error {
	above, err := d.dir(path.Dir(name))
	if err != nil {
		return err
	}
	base := path.Base(name)
	if replaces {
		err = unix.Renameat(above, part, above, base)
	} else if err = unix.Renameat2(above, part, above, base, unix.RENAME_NOREPLACE); errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) {
		// this file system cannot do it at once: a file that somebody makes under that name between these calls is lost
		if err = unix.Faccessat(above, base, unix.F_OK, unix.AT_SYMLINK_NOFOLLOW); err == nil {
			err = fs.ErrExist
		} else if errors.Is(err, fs.ErrNotExist) {
			err = unix.Renameat(above, part, above, base)
		}
	}
	if err != nil {
		_ = unix.Unlinkat(above, part, 0) // an error does no harm
	}
	return err
}
