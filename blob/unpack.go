package blob

// A tree becomes files again: a private copy, of one user.

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
)

// unpackers is how many files are written at once.
const unpackers = 2

// Owner is whom unpacked files belong to.
type Owner struct{ UID, GID int }

// Unpack writes a tree below dir, which must exist and be empty. Nothing is
// shared with the store or with another copy, and nothing is written outside of
// dir, whatever the tree says. A nil owner leaves the files to this process's
// user. ErrMissing if a chunk has gone since the tree was fetched.
func (s *Store) Unpack(ctx context.Context, t Tree, dir string, owner *Owner) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fmt.Errorf("blob: unpack: %w", err)
	}
	defer root.Close() //nolint:errcheck // a directory, nothing was written to it
	u := unpacking{store: s, root: root, owner: owner}
	for _, e := range t.Entries {
		if e.Kind == Dir {
			if err := root.Mkdir(e.Path, 0o700); err != nil {
				return fmt.Errorf("blob: unpack: %w", err)
			}
		}
	}
	if err := u.files(ctx, t); err != nil {
		return err
	}
	for i := range t.Entries { // directories last, the deepest first: some may not be written to
		if e := t.Entries[len(t.Entries)-1-i]; e.Kind == Dir {
			if err := errors.Join(u.own(e.Path), root.Chmod(e.Path, fs.FileMode(e.Mode))); err != nil {
				return fmt.Errorf("blob: unpack: %w", err)
			}
		}
	}
	return u.own(".")
}

type unpacking struct {
	store *Store
	root  *os.Root
	owner *Owner
}

func (u unpacking) own(path string) error {
	if u.owner == nil {
		return nil
	}
	return u.root.Lchown(path, u.owner.UID, u.owner.GID)
}

func (u unpacking) files(ctx context.Context, t Tree) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	work := make(chan Entry)
	var running sync.WaitGroup
	for range unpackers {
		running.Go(func() {
			buf := make([]byte, 0, MaxChunk)
			for e := range work {
				if ctx.Err() != nil {
					continue
				}
				if err := u.one(e, buf); err != nil {
					cancel(err)
				}
			}
		})
	}
	for _, e := range t.Entries {
		if e.Kind != Dir {
			work <- e
		}
	}
	close(work)
	running.Wait()
	return context.Cause(ctx)
}

func (u unpacking) one(e Entry, buf []byte) error {
	if e.Kind == Link {
		if err := errors.Join(u.root.Symlink(e.Target, e.Path), u.own(e.Path)); err != nil {
			return fmt.Errorf("blob: unpack: %w", err)
		}
		return nil
	}
	f, err := u.root.OpenFile(e.Path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("blob: unpack: %w", err)
	}
	defer f.Close()
	for _, c := range e.Chunks {
		data, err := u.store.Append(buf[:0], c)
		if err != nil {
			return err
		}
		if _, err := f.Write(data); err != nil {
			return fmt.Errorf("blob: unpack %s: %w", e.Path, cause(err))
		}
	}
	if u.owner != nil {
		err = f.Chown(u.owner.UID, u.owner.GID)
	}
	err = errors.Join(err, f.Chmod(fs.FileMode(e.Mode)), u.root.Chtimes(e.Path, e.Modified(), e.Modified()))
	if err != nil {
		return fmt.Errorf("blob: unpack: %w", err)
	}
	return nil
}
