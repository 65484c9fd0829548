package scratch

// The size of a directory on disk.

import (
	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/job"
)

// maxDepth is how deep directories in a scratch directory may be. No path can name deeper ones, and a directory that
// is not measured would not count.
const maxDepth = 1000

// sizeOf returns the disk space and the number of the files in a directory, and whether it is deeper than maxDepth. It
// never leaves the directory or its file system, even if the user replaces directories by links meanwhile.
func sizeOf(path string) (total job.Size, files int64, deep bool) {
	top, err := openIn(unix.AT_FDCWD, path)
	if err != nil {
		return 0, 0, false // it is gone
	}
	defer top.Close()
	m := measuring{top: placeOf(top)}
	m.below(int(top.Fd()), 0)
	return m.total, m.files, m.deep
}

// SizeOf returns the disk space of the files in a directory.
func SizeOf(path string) job.Size {
	total, _, _ := sizeOf(path)
	return total
}

type measuring struct {
	top   place
	total job.Size
	files int64
	deep  bool
	seen  map[inode]bool // those with several names
}

// below adds up what is in an open directory. Files that disappear meanwhile do not count.
func (m *measuring) below(dir, depth int) {
	buf := make([]byte, 4<<10)
	for {
		n, err := unix.ReadDirent(dir, buf)
		if err != nil || n <= 0 {
			return
		}
		_, _, names := unix.ParseDirent(buf[:n], -1, nil)
		for _, name := range names {
			m.one(dir, name, depth)
		}
	}
}

func (m *measuring) one(dir int, name string, depth int) {
	var s unix.Statx_t
	if unix.Statx(dir, name, unix.AT_SYMLINK_NOFOLLOW|asIs, unix.STATX_BASIC_STATS, &s) != nil || placeIn(&s).mounted(m.top) {
		return
	}
	if s.Nlink > 1 && s.Mode&unix.S_IFMT != unix.S_IFDIR && m.again(inode{placeIn(&s).dev, s.Ino}) {
		return
	}
	m.total += job.Size(s.Blocks) * 512 //nolint:gosec // no disk has 2^63 bytes
	m.files++
	if s.Mode&unix.S_IFMT != unix.S_IFDIR {
		return
	}
	if depth == maxDepth {
		m.deep = true
		return
	}
	fd, err := openBelow(dir, name)
	if err != nil {
		return
	}
	m.below(fd, depth+1)
	_ = unix.Close(fd) // a directory
}

// inode is one file. Each subvolume has its own numbers.
type inode struct{ dev, ino uint64 }

// maxSeen bounds the files that are remembered so that none counts twice. Beyond it they do.
const maxSeen = 1 << 16

// again reports whether a file was seen before, by another of its names.
func (m *measuring) again(file inode) bool {
	if m.seen[file] {
		return true
	}
	if m.seen == nil {
		m.seen = map[inode]bool{}
	}
	if len(m.seen) < maxSeen {
		m.seen[file] = true
	}
	return false
}

// filesIn returns the disk space of the files directly in a directory, such as the output of a task.
func filesIn(path string) (total job.Size) {
	dir, err := openIn(unix.AT_FDCWD, path)
	if err != nil {
		return 0 // it is gone
	}
	defer dir.Close()
	for {
		names, err := dir.Readdirnames(removeNames)
		for _, name := range names {
			var s unix.Stat_t
			if unix.Fstatat(int(dir.Fd()), name, &s, unix.AT_SYMLINK_NOFOLLOW) == nil && s.Mode&unix.S_IFMT == unix.S_IFREG {
				total += job.Size(s.Blocks) * 512
			}
		}
		if err != nil {
			return total
		}
	}
}
