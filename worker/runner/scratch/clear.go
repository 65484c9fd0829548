package scratch

// Clearing what an attempt leaves.

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker/runner/protocol"
)

// Clear removes the scratch directory of an attempt that has ended. Files to keep have to be copied before.
func Clear(d protocol.Dir, a job.Attempt) error {
	path := d.Scratch(a)
	if err := unix.Rmdir(path); err == nil || errors.Is(err, unix.ENOENT) {
		return nil // most tasks leave nothing
	}
	if err := Remove(path); err != nil {
		return fmt.Errorf("scratch: remove directory of %s: %w", a, err)
	}
	settle(d.Tasks())
	return nil
}

// settle waits until the space of removed files is free. Btrfs frees it with its next transaction, which may be half a
// minute away. It does nothing as long as there is space.
func settle(dir string) {
	var fs unix.Statfs_t
	if unix.Statfs(dir, &fs) != nil || fs.Type != unix.BTRFS_SUPER_MAGIC {
		return
	}
	if d, err := readDisk(dir); err != nil || !d.short() {
		return
	}
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	_ = unix.Syncfs(fd) // without it the space is free later
	_ = unix.Close(fd)
}
