//go:build !linux

package nvml

// On other systems size and time tell files apart.

import "io/fs"

func inode(fs.FileInfo) [2]uint64 { return [2]uint64{} }
