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
	return nil
}
