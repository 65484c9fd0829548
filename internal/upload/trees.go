package upload

// The trees of a store, and syncing a tree and its chunks to disk, before a job that names the tree is accepted.

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// trees are the trees of a store, as files.
type trees struct {
	dir   string
	quota *quota

	mu    sync.Mutex
	known map[Hash]treeInfo // guarded by mu
}

// treeInfo is what is known of a tree without reading it.
type treeInfo struct {
	user userID // empty if an earlier process wrote it
	size int64
}

type keptTree struct {
	hash Hash
	used time.Time
	size int64 // of its encoding
}

// path returns the path of a tree's file.
func (ts *trees) path(h Hash) string { return filepath.Join(ts.dir, h.String()) }

// add adds a tree whose bytes are counted already.
func (ts *trees) add(h Hash, l treeInfo) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if before, twice := ts.known[h]; twice { // another call has stored it meanwhile
		ts.quota.count(before.user, -before.size)
	}
	ts.known[h] = l
}

// remove removes a tree, whose file is gone, and its bytes.
func (ts *trees) remove(h Hash) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	l := ts.known[h]
	delete(ts.known, h)
	ts.quota.count(l.user, -l.size)
}

// touch marks a tree as used.
func touch(path string, info fs.FileInfo, now time.Time) {
	if now.Sub(info.ModTime()) > touchAfter {
		_ = os.Chtimes(path, now, now) // an error only lets it be pruned sooner
	}
}

// text returns a tree's encoding, or ErrMissing.
func (ts *trees) text(h Hash) ([]byte, error) {
	path := ts.path(h)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) || (err == nil && Sum(text) != h) {
		return nil, fmt.Errorf("blob: tree %s: %w", h, ErrMissing)
	}
	if err != nil {
		return nil, fmt.Errorf("blob: tree: %w", err)
	}
	if info, err := os.Lstat(path); err == nil {
		touch(path, info, time.Now())
	}
	return text, nil
}

// read reads a tree without marking it as used.
func (ts *trees) read(h Hash) (Tree, error) {
	text, err := os.ReadFile(ts.path(h))
	if err != nil {
		return Tree{}, err
	}
	return ParseTree(text)
}

// list lists the trees on disk.
func (ts *trees) list() ([]keptTree, error) {
	entries, err := os.ReadDir(ts.dir)
	if err != nil {
		return nil, err
	}
	var all []keptTree
	for _, e := range entries {
		h, err := ParseHash(e.Name())
		if err != nil {
			continue
		}
		if info, err := e.Info(); err == nil {
			all = append(all, keptTree{h, info.ModTime(), info.Size()})
		}
	}
	return all, nil
}

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
