// Package inplace has files written over in place on file systems that otherwise write each change to new blocks. There a
// change of a block whose space is allocated needs another block, which a full disk does not have.
package inplace

import "golang.org/x/sys/unix"

// noCopy is the kernel's FS_NOCOW_FL.
const noCopy = 0x00800000

// Set has an open, empty file written in place. Where it is not needed, or not supported, it does nothing.
func Set(fd uintptr) {
	var fs unix.Statfs_t
	if unix.Fstatfs(int(fd), &fs) != nil || fs.Type != unix.BTRFS_SUPER_MAGIC { //nolint:gosec // a descriptor
		return
	}
	flags, err := unix.IoctlGetInt(int(fd), unix.FS_IOC_GETFLAGS) //nolint:gosec // a descriptor
	if err == nil {
		_ = unix.IoctlSetPointerInt(int(fd), unix.FS_IOC_SETFLAGS, flags|noCopy) //nolint:gosec // without it only a full disk is worse
	}
}
