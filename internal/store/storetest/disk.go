// Package storetest holds helpers for the tests of stores and journals: disks in memory that can crash, and generators
// of random values that are stored on disk.
package storetest

// Disks in memory, and their state after a power cut.

import "github.com/cockroachdb/pebble/v2/vfs"

var plenty = vfs.DiskUsage{AvailBytes: 1 << 40, TotalBytes: 1 << 41}

// Disk returns a new disk in memory with 1 TiB free.
func Disk() *vfs.MemFS {
	fs := vfs.NewCrashableMem()
	fs.TestingSetDiskUsage(plenty)
	return fs
}

// Crash returns a copy of the disk in a state that a power cut could leave now.
func Crash(fs *vfs.MemFS, cfg vfs.CrashCloneCfg) *vfs.MemFS {
	after := fs.CrashClone(cfg)
	after.TestingSetDiskUsage(plenty)
	return after
}
