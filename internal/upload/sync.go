package upload

// Syncing a tree and its chunks to disk, before a job that names the tree is accepted.

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// syncTree syncs a stored tree with all its chunks to disk. It syncs only its own files, because the rest of the file
// system may be busy with the output of tasks. syncfs would wait for that. It also reported no error of a pack when two
// uploads of one tree ended at the same time. The kernel begins to write each pack back as it arrives, so at the end of an
// upload 5 to 90 ms are left.
func (s *Store) syncTree(h Hash, chunks []Ref) error {
	if err := s.packs.sync(s.packs.unsynced(chunks)); err != nil {
		return err
	}
	err := errors.Join(syncPath(s.trees.path(h)), syncPath(s.trees.dir))
	if err != nil {
		return fmt.Errorf("blob: sync tree: %w", err)
	}
	return nil
}

// syncPath syncs a file or directory.
func syncPath(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return unix.Fdatasync(int(f.Fd()))
}
