package files

// Unpacking a task's files.

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/internal/upload"
	"github.com/musterhq/muster/job"
)

const (
	// unpacking bounds how many tasks' files are unpacked at the same time, to spare the disk.
	unpacking = 2
	// entryBytes is the disk space that a file or directory takes in addition to its content: one block.
	entryBytes = 4 << 10
)

// unpacker unpacks trees into staging directories.
type unpacker struct {
	cfg   Config
	store Unpacker
	slots chan struct{} // a semaphore: one token for each task whose files are being unpacked
}

func newUnpacker(cfg Config, store Unpacker) unpacker {
	return unpacker{cfg: cfg, store: store, slots: make(chan struct{}, unpacking)}
}

// unpack makes the directory that becomes the task's scratch directory. It says what it waits for.
func (u unpacker) unpack(ctx context.Context, tree upload.Tree, dir string, owner *upload.Owner, waitsFor func(text func() string)) error {
	waitsFor(fixedText("waiting until the files of other tasks are unpacked"))
	select {
	case u.slots <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-u.slots }()
	if err := u.checkSpace(tree); err != nil {
		return err
	}
	waitsFor(fixedText("unpacking its files: %s", megabytes(tree.Size())))
	if err := errors.Join(os.RemoveAll(dir), os.Mkdir(dir, 0o700)); err != nil {
		return fmt.Errorf("files: %w", err)
	}
	return u.store.Unpack(ctx, tree, dir, owner)
}

// checkSpace returns an error if the files of a tree exceed the limit or do not fit on the disk. It is called before
// the first file is written, because other tasks share the disk.
func (u unpacker) checkSpace(tree upload.Tree) error {
	size := job.Size(tree.Size()) + job.Size(len(tree.Entries))*entryBytes
	if u.cfg.Most > 0 && size > u.cfg.Most {
		return fmt.Errorf("%w: they take %s of a scratch quota of %s", upload.ErrTooLarge, size, u.cfg.Most)
	}
	var disk unix.Statfs_t
	if err := unix.Statfs(u.cfg.staging(), &disk); err != nil {
		return fmt.Errorf("files: free space: %w", err)
	}
	if room := job.Size(disk.Bavail) * job.Size(disk.Bsize) / 2; size > room { //nolint:gosec // no disk has 2^63 bytes
		return fmt.Errorf("they take %s, and this node has room for %s: %w", size, room, unix.ENOSPC)
	}
	return nil
}
