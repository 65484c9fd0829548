package private

// The mounts of one task.

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// Mount gives the task its directories: dir becomes its /tmp, and its /dev/shm holds as many bytes as that of the host, but
// no more than memory; 0: the task has no limit. The calling thread must have entered the namespaces of the task.
//
// It returns the names that it has made in dir for what is kept. After an error, the task has the directories of the host.
func (k *Kept) Mount(dir string, memory int64) (made []string, err error) {
	var covered []string
	for i := range k.m.places {
		p := &k.m.places[i]
		if p.path == "" || k.shared[i] {
			continue
		}
		inside, err := k.cover(i, func() error {
			if i == tmp {
				return p.bind(dir)
			}
			return p.memory(memory)
		})
		if i == tmp {
			made = inside
		}
		if err == nil {
			covered = append(covered, p.path)
			continue
		}
		for _, path := range covered {
			err = errors.Join(err, unix.Unmount(path, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW))
		}
		return made, fmt.Errorf("private %s: %w", paths[i], err)
	}
	return made, nil
}

// bind mounts a directory at the place.
func (p *place) bind(dir string) error {
	if err := unix.Mount(dir, p.path, "", unix.MS_BIND, ""); err != nil {
		return err
	}
	err := unix.Mount("", p.path, "", unix.MS_REMOUNT|unix.MS_BIND|p.flags, "")
	if err != nil {
		err = errors.Join(err, unix.Unmount(p.path, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW))
	}
	return err
}

// memory mounts a new tmpfs at the place. It is as large as that of the host, but no larger than the memory of the task.
func (p *place) memory(most int64) error {
	size := p.size
	if most > 0 && (size == 0 || most < size) { // 0: no bound
		size = most
	}
	return unix.Mount("tmpfs", p.path, "tmpfs", p.flags, fmt.Sprintf("mode=1777,size=%d", size))
}

// found is something in a directory of the host that a task keeps.
type found struct {
	name   string
	tree   int // its mount, not attached to anything yet; -1: it is a link
	isDir  bool
	target string // of a link
}

// cover calls own, which mounts something at a place, and mounts in it what the task keeps of the host. It returns the
// names that it has made. After an error, nothing is mounted there.
func (k *Kept) cover(i int, own func() error) (made []string, err error) {
	path := k.m.places[i].path
	all, err := k.find(i)
	defer func() {
		for _, f := range all {
			if f.tree >= 0 {
				_ = unix.Close(f.tree) // its mount stays if it is attached
			}
		}
	}()
	if err != nil {
		return nil, err
	}
	if err := own(); err != nil {
		return nil, err
	}
	if len(all) == 0 {
		return nil, nil
	}
	in, err := openPath(unix.AT_FDCWD, path, unix.O_DIRECTORY)
	if err == nil {
		made, err = attach(in, all)
		_ = unix.Close(in) // nothing was written to it
	}
	if err != nil {
		err = errors.Join(err, unix.Unmount(path, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW))
	}
	return made, err
}

// find opens what the task keeps of a place. What is not there, or not the user's, is left out.
func (k *Kept) find(i int) (all []found, err error) {
	if len(k.names[i]) == 0 {
		return nil, nil
	}
	host, err := openPath(unix.AT_FDCWD, k.m.places[i].path, unix.O_DIRECTORY)
	if err != nil {
		return nil, err
	}
	defer unix.Close(host) //nolint:errcheck // nothing was written to it
	for _, n := range k.names[i] {
		f, err := k.open(host, n)
		if errors.Is(err, unix.ENOENT) {
			continue
		}
		if err != nil {
			return all, fmt.Errorf("keep %s: %w", n.name, err)
		}
		all = append(all, f)
	}
	return all, nil
}

// open opens one name in a directory of the host. The error is ENOENT also if the task does not keep it.
func (k *Kept) open(host int, n keptName) (found, error) {
	fd, err := openPath(host, n.name, unix.O_NOFOLLOW)
	if err != nil {
		return found{}, err
	}
	defer unix.Close(fd) //nolint:errcheck // nothing was written to it
	var is unix.Statx_t  // without a question to the file system: a user may have mounted it, and it may not answer
	if err := unix.Statx(fd, "", unix.AT_EMPTY_PATH|unix.AT_STATX_DONT_SYNC, unix.STATX_TYPE|unix.STATX_UID, &is); err != nil {
		return found{}, err
	}
	kind := uint32(is.Mode) & unix.S_IFMT
	mine := n.whoever || int(is.Uid) == k.uid || is.Uid == 0 && (kind == unix.S_IFDIR || kind == unix.S_IFSOCK)
	if !mine || n.name == displays && !n.whoever && isEmpty(host, n.name) {
		return found{}, unix.ENOENT
	}
	f := found{name: n.name, tree: -1, isDir: kind == unix.S_IFDIR}
	if kind == unix.S_IFLNK {
		buf := make([]byte, unix.PathMax)
		size, err := unix.Readlinkat(fd, "", buf)
		f.target = string(buf[:max(0, size)])
		return f, err
	}
	const clone = unix.OPEN_TREE_CLONE | unix.O_CLOEXEC | unix.AT_EMPTY_PATH | unix.AT_RECURSIVE
	f.tree, err = unix.OpenTree(fd, "", clone)
	return f, err
}

// attach mounts what was found in the directory in, and returns the names that it has made there.
func attach(in int, all []found) (made []string, err error) {
	for _, f := range all {
		switch {
		case f.tree < 0:
			err = unix.Symlinkat(f.target, in, f.name)
		case f.isDir:
			err = unix.Mkdirat(in, f.name, 0o700)
		default:
			err = unix.Mknodat(in, f.name, unix.S_IFREG|0o600, 0)
		}
		if err == nil {
			made = append(made, f.name)
			if f.tree >= 0 {
				err = unix.MoveMount(f.tree, "", in, f.name, unix.MOVE_MOUNT_F_EMPTY_PATH)
			}
		}
		if err != nil {
			return made, fmt.Errorf("keep %s: %w", f.name, err)
		}
	}
	return made, nil
}

// Clear removes what Mount has made in a directory. In the caller's mount namespace nothing may be mounted there any
// more. It removes empty directories, links and files that are no places of mounts, and so nothing of the host.
func Clear(dir string, made []string) error {
	in, err := openPath(unix.AT_FDCWD, dir, unix.O_DIRECTORY|unix.O_NOFOLLOW)
	if err != nil {
		return err
	}
	defer unix.Close(in) //nolint:errcheck // nothing was written to it
	for _, name := range made {
		gone := unix.Unlinkat(in, name, unix.AT_REMOVEDIR)
		if errors.Is(gone, unix.ENOTDIR) {
			gone = unix.Unlinkat(in, name, 0)
		}
		if gone != nil && !errors.Is(gone, unix.ENOENT) {
			err = errors.Join(err, fmt.Errorf("%s: %w", name, gone))
		}
	}
	return err
}

// isEmpty reports whether a directory has no files.
func isEmpty(at int, name string) bool {
	fd, err := unix.Openat(at, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return true
	}
	defer unix.Close(fd) //nolint:errcheck // nothing was written to it
	var buf [1024]byte
	n, err := unix.ReadDirent(fd, buf[:])
	if err != nil {
		return true
	}
	_, found, _ := unix.ParseDirent(buf[:n], 1, nil)
	return found == 0
}

func openPath(at int, path string, flags int) (int, error) {
	return unix.Openat(at, path, unix.O_PATH|unix.O_CLOEXEC|flags, 0)
}
