// Package storetest is what the tests of a store and of a journal share: disks in memory that can crash, and random values
// of what is kept on them.
package storetest

// Disks in memory, and what a power cut leaves of them.

import "github.com/cockroachdb/pebble/v2/vfs"

var plenty = vfs.DiskUsage{AvailBytes: 1 << 40, TotalBytes: 1 << 41}

// Disk is a new disk in memory with 1 TiB free.
func Disk() *vfs.MemFS {
	fs := vfs.NewCrashableMem()
	fs.TestingSetDiskUsage(plenty)
	return fs
}

// Crash is a copy of the disk as a power cut would leave it now.
func Crash(fs *vfs.MemFS, cfg vfs.CrashCloneCfg) *vfs.MemFS {
	after := fs.CrashClone(cfg)
	after.TestingSetDiskUsage(plenty)
	return after
}
