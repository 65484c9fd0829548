// Package scratch measures and removes the scratch directories of tasks.
//
// A task may have made directories as deep and as wide as the disk allows, and its user may still change them while
// they are measured or removed.
package scratch

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	// removeDepth is how deep Remove descends before it moves deeper directories to the top. Each level costs a
	// descriptor and a few KiB.
	removeDepth = 32
	// removeNames bounds the names that are read at a time in each level.
	removeNames = 512
)

// Remove removes a directory with everything in it. os.RemoveAll needs a descriptor for each level, so a task could
// use up all descriptors of the process. Remove follows no links, enters no other file system, and touches nothing
// outside of the directory.
func Remove(path string) error {
	var r remover
	for again := true; again; { // directories that were moved to the top are removed in the next round
		top, err := openIn(unix.AT_FDCWD, path)
		if errors.Is(err, unix.ENOENT) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("scratch: remove %s: %w", path, err)
		}
		before := r.lifted
		r.top, r.failed = top, nil
		r.empty(top, top, 0)
		again = r.lifted > before
		_ = top.Close() // a directory
	}
	err := r.failed
	if err == nil {
		err = unix.Rmdir(path)
	}
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("scratch: remove %s: %w", path, err)
	}
	return nil
}

// remover removes what is in a directory.
type remover struct {
	top    *os.File
	lifted int   // directories that were moved to the top
	failed error // the first error of each round
}

// empty removes everything in a directory. Directories that are too deep are moved to the top directory, or to the top of
// their subvolume. Subvolumes below the top are moved to the top directory.
func (r *remover) empty(dir, top *os.File, depth int) {
	take(dir)
	for {
		names, err := dir.Readdirnames(removeNames)
		for _, name := range names {
			if err := r.one(dir, top, name, depth); err != nil && !errors.Is(err, unix.ENOENT) && r.failed == nil {
				r.failed = err
			}
		}
		if err == nil {
			continue
		}
		if !errors.Is(err, io.EOF) && r.failed == nil {
			r.failed = err
		}
		return
	}
}

// one removes one entry of a directory.
func (r *remover) one(dir, top *os.File, name string, depth int) error {
	at := int(dir.Fd())
	err := unlink(at, name)
	if !errors.Is(err, unix.EISDIR) && !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.EACCES) {
		return err
	}
	if gone := unix.Unlinkat(at, name, unix.AT_REMOVEDIR); gone == nil {
		return nil
	} else if errors.Is(gone, unix.ENOTDIR) {
		return err
	} else if errors.Is(gone, unix.EBUSY) {
		return fmt.Errorf("%s: %w: a file system is mounted there", name, gone)
	}
	below, err := openIn(at, name)
	if err != nil {
		return err
	}
	defer below.Close()
	is, in := placeOf(below), placeOf(dir)
	if is.mounted(in) {
		return fmt.Errorf("%s: %w: a file system is mounted there", name, unix.EBUSY)
	}
	if is.dev != in.dev { // a subvolume, which users may make
		writable(below)
		if depth > 0 {
			return r.lift(at, r.top, name, below)
		}
		top = below // nothing but whole subvolumes can be moved out of it
	}
	if depth == removeDepth {
		return r.lift(at, top, name, below)
	}
	r.empty(below, top, depth+1)
	err = unix.Unlinkat(at, name, unix.AT_REMOVEDIR)
	if errors.Is(err, unix.ENOTEMPTY) && r.failed != nil {
		return nil // r.failed is the cause
	}
	return err
}

// unlink removes a file. A full file system that writes changes to new blocks may have none left for the changed
// directory. Then unlink first empties the file, which frees some blocks.
func unlink(at int, name string) error {
	err := unix.Unlinkat(at, name, 0)
	if !errors.Is(err, unix.ENOSPC) && !errors.Is(err, unix.EDQUOT) {
		return err
	}
	fd, errOpen := unix.Openat(at, name, unix.O_WRONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if errOpen != nil {
		return err
	}
	defer unix.Close(fd) //nolint:errcheck // the next call shows whether it worked
	var s unix.Stat_t
	if unix.Fstat(fd, &s) != nil || s.Mode&unix.S_IFMT != unix.S_IFREG || s.Nlink != 1 {
		return err // another name of the file may be outside of the directory
	}
	_ = unix.Ftruncate(fd, 0)
	return unix.Unlinkat(at, name, 0)
}

// lift moves a directory to the top, under a name that is not used there.
func (r *remover) lift(at int, top *os.File, name string, dir *os.File) error {
	take(dir) // moving a directory changes its .. entry, which needs write permission
	for {
		r.lifted++
		err := unix.Renameat2(at, name, int(top.Fd()), ".muster-"+strconv.Itoa(r.lifted), unix.RENAME_NOREPLACE)
		if !errors.Is(err, unix.EEXIST) {
			return err
		}
	}
}

// openIn opens the directory name in the directory at. It follows no link.
func openIn(at int, name string) (*os.File, error) {
	fd, err := openBelow(at, name)
	if errors.Is(err, unix.EACCES) && os.Geteuid() != 0 { // as in take; a link would give another error
		_ = unix.Fchmodat(at, name, 0o700, 0) // the next call shows whether it worked
		fd, err = openBelow(at, name)
	}
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}

// openBelow opens the directory name in the directory at, or the path name if at is AT_FDCWD. It enters no file system
// that is mounted in the directory: its user may have mounted one that never answers.
func openBelow(at int, name string) (int, error) {
	const how = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC
	if at != unix.AT_FDCWD {
		fd, err := unix.Openat2(at, name, &unix.OpenHow{Flags: how, Resolve: unix.RESOLVE_NO_XDEV})
		if !errors.Is(err, unix.ENOSYS) && !errors.Is(err, unix.EPERM) { // older kernels and some containers do not have it
			return fd, err
		}
	}
	return unix.Openat(at, name, how, 0)
}

// take takes a directory from its user, so that no other process of the user, whatever it holds open, can put files into
// it while they are removed, or exchange them. Otherwise the removal might never end. It also makes a directory
// accessible that a task has closed to its own user. The next calls show whether it worked.
func take(dir *os.File) {
	if os.Geteuid() == 0 {
		_ = unix.Fchown(int(dir.Fd()), 0, 0)
	}
	_ = unix.Fchmod(int(dir.Fd()), 0o700)
}

// setSubvolumeFlags is BTRFS_IOC_SUBVOL_SETFLAGS of linux/btrfs.h.
const setSubvolumeFlags = 0x4008941a

// writable makes a subvolume of Btrfs writable. The next calls show whether it worked.
func writable(dir *os.File) {
	none := uint64(0)
	_, _, _ = unix.Syscall(unix.SYS_IOCTL, dir.Fd(), setSubvolumeFlags, uintptr(unsafe.Pointer(&none)))
}

// place says where a file lies.
type place struct {
	dev, mount uint64
	root       bool // of a mounted file system
	old        bool // the kernel says neither mount nor root: Linux before 5.8
}

// mounted reports whether something is mounted at a place in a directory. A subvolume of Btrfs also has a device of its
// own, but is not mounted.
func (p place) mounted(in place) bool { return p.root || p.old && p.dev != in.dev }

// placeOf returns where an open file lies.
func placeOf(f *os.File) place {
	var s unix.Statx_t
	if unix.Statx(int(f.Fd()), "", unix.AT_EMPTY_PATH|asIs, unix.STATX_BASIC_STATS|unix.STATX_MNT_ID, &s) != nil {
		return place{root: true} // so it is not entered
	}
	return placeIn(&s)
}

func placeIn(s *unix.Statx_t) place {
	return place{
		dev: unix.Mkdev(s.Dev_major, s.Dev_minor), mount: s.Mnt_id,
		root: s.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0, old: s.Attributes_mask&unix.STATX_ATTR_MOUNT_ROOT == 0,
	}
}

// asIs makes statx ask no file system that a user has mounted, because it may not answer.
const asIs = unix.AT_NO_AUTOMOUNT | unix.AT_STATX_DONT_SYNC
