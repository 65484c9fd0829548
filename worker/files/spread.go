package files

// How ext4 places staged files on the disk.

import (
	"os"

	"golang.org/x/sys/unix"
)

// topDir is the attribute that chattr(1) calls T.
const topDir = 0x20000

// spreadDirs sets the top-directory attribute on dir. Then ext4 places each new directory in dir, with its files,
// into a block group of its own. Without it ext4 places the files of a task behind those of the previous task, which
// were just removed. For one to five minutes ext4 does not reuse their inodes, and it skips all of them each time that it
// looks for a free one: to create 10,000 files took 2 to 5 s of CPU there, and 0.16 s in another group. Where others delete
// as many files, the next group may be no better. Other file systems ignore the attribute and do not need it.
func spreadDirs(dir string) {
	f, err := os.Open(dir)
	if err != nil {
		return
	}
	defer f.Close()
	flags, err := unix.IoctlGetUint32(int(f.Fd()), unix.FS_IOC_GETFLAGS)
	if err == nil && flags&topDir == 0 {
		_ = unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, int(flags|topDir)) // an error only makes it slower
	}
}
