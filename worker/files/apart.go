package files

// Where on the disk the files of a task come to lie.

import (
	"os"

	"golang.org/x/sys/unix"
)

// topDir is the attribute T of chattr(1).
const topDir = 0x20000

// apart has ext4 put each directory that is made in dir, with what is in it,
// into a block group of its own choice, as it does at the root of a disk.
// Otherwise the files of one task follow those of the last, which were removed
// a moment ago: ext4 does not give their inodes again for minutes, and passes
// over all of them each time that it looks for a free one. Other file systems
// have no such attribute, and no need of it.
func apart(dir string) {
	f, err := os.Open(dir)
	if err != nil {
		return
	}
	defer f.Close()
	flags, err := unix.IoctlGetUint32(int(f.Fd()), unix.FS_IOC_GETFLAGS)
	if err == nil && flags&topDir == 0 {
		_ = unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, int(flags|topDir)) // at worst it is slow
	}
}
