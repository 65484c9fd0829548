package nvml

// On Linux a file is known by its device and inode.

import (
	"io/fs"
	"syscall"
)

func inode(info fs.FileInfo) [2]uint64 {
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return [2]uint64{uint64(s.Dev), s.Ino} //nolint:unconvert // the type differs between architectures
	}
	return [2]uint64{}
}
