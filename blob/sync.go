package blob

// Syncing a tree and its chunks to disk, before a job that names the tree is accepted.

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
)

// syncers is how many packs are synced at the same time. They share commits of the file system's journal.
const syncers = 8

// syncTree returns when a stored tree is on disk with all its chunks. It syncs only its own files, because the rest
// of the file system may be busy with the output of tasks.
func (s *Store) syncTree(h Hash, chunks []Ref) error {
	if err := s.syncPacks(s.unsynced(chunks)); err != nil {
		return err
	}
	err := errors.Join(syncPath(s.tree(h)), syncPath(filepath.Join(s.cfg.Dir, "trees")))
	if err != nil {
		return fmt.Errorf("blob: sync tree: %w", err)
	}
	return nil
}

// unsynced lists the packs that hold chunks and that this process has not synced yet.
func (s *Store) unsynced(chunks []Ref) []*pack {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []*pack
	seen := map[*pack]bool{}
	for _, c := range chunks {
		if p := s.index[c.Hash].pack; p != nil && !p.synced && !seen[p] {
			seen[p] = true
			all = append(all, p)
		}
	}
	return all
}

// syncPacks returns when packs and their directory entries are on disk.
func (s *Store) syncPacks(packs []*pack) error {
	if len(packs) == 0 {
		return nil
	}
	var g errgroup.Group
	g.SetLimit(syncers)
	for _, p := range packs {
		g.Go(func() error {
			err := syncPath(s.pack(p.name))
			if errors.Is(err, fs.ErrNotExist) {
				s.drop(p)
				err = ErrMissing
			}
			return err
		})
	}
	if err := errors.Join(g.Wait(), syncPath(filepath.Join(s.cfg.Dir, "packs"))); err != nil {
		return fmt.Errorf("blob: sync chunks: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range packs {
		p.synced = true
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
