package upload

// The store: the chunks and trees that a daemon keeps.

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// minAge is how long unused chunks and trees are kept after their last use. An upload may still be in progress,
	// or its job not yet submitted.
	minAge = time.Hour
	// touchAfter is the age of a file's time stamp from which the next use updates it.
	touchAfter = 10 * time.Minute
)

// Config is the configuration of a store.
type Config struct {
	Dir string
	// Most bounds the store, in bytes. 0: a tenth of its file system.
	Most int64
	// Live returns the trees that jobs and tasks here still need; they are never removed. May be nil.
	Live func() (map[Hash]bool, error)
}

// Store keeps chunks and trees in files:
//
//	packs/NAME.pack  chunks, then their hashes and lengths, then their number
//	trees/HASH       the encoding of a tree
//	tmp/             files that are being written
//
// A file is moved to its place when it is complete, and never changes afterwards. The index of chunks is held in
// memory; it is read from the ends of the packs when the store is first used.
//
// When the store is full, it is pruned: the least recently used trees are removed, and chunks that no tree uses. Its
// methods are safe for concurrent use.
type Store struct {
	cfg   Config
	log   *slog.Logger
	quota *quota
	packs *packs
	trees *trees
	// doubles are chunks that users have uploaded, and that the store already had from someone else
	doubles doubles

	opening sync.Once
	opened  error

	pruning sync.Mutex
	pruned  time.Time // guarded by pruning; when it was last pruned without freeing enough
}

// NewStore makes a store. It does not touch the disk before its first use.
func NewStore(cfg Config, log *slog.Logger) *Store {
	q := &quota{most: cfg.Most, usage: map[userID]int64{}}
	return &Store{
		cfg: cfg, log: log, quota: q,
		packs: &packs{dir: filepath.Join(cfg.Dir, "packs"), quota: q, log: log, all: map[string]*pack{}, index: map[Hash]indexEntry{}},
		trees: &trees{dir: filepath.Join(cfg.Dir, "trees"), quota: q, known: map[Hash]treeInfo{}},
	}
}

// open makes the directories and reads the index.
func (s *Store) open() error {
	s.opening.Do(func() {
		s.opened = errors.Join(
			os.RemoveAll(filepath.Join(s.cfg.Dir, "tmp")), os.MkdirAll(filepath.Join(s.cfg.Dir, "tmp"), 0o700),
			os.MkdirAll(s.packs.dir, 0o700), os.MkdirAll(s.trees.dir, 0o700))
		if s.opened == nil && s.cfg.Most == 0 {
			var disk unix.Statfs_t
			s.opened = unix.Statfs(s.cfg.Dir, &disk)
			s.cfg.Most = int64(disk.Blocks) * disk.Bsize / keepShare //nolint:gosec // no disk has 2^63 blocks
		}
		if s.opened == nil {
			s.quota.most = s.cfg.Most
			s.opened = s.load()
		}
	})
	if s.opened != nil {
		return fmt.Errorf("blob: open store: %w", s.opened)
	}
	return nil
}

// load reads the index of every pack. It removes a pack that a power cut has left broken.
func (s *Store) load() error {
	entries, err := os.ReadDir(s.packs.dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !isPack(e.Name()) {
			continue
		}
		p, err := readPack(s.packs.path(e.Name()))
		if err != nil {
			s.log.Warn("pack of uploads is broken, removed", "pack", e.Name(), "error", err)
			if err := os.Remove(s.packs.path(e.Name())); err != nil {
				return err
			}
			continue
		}
		s.quota.count(p.user, p.size)
		s.packs.add(p)
	}
	all, err := s.trees.list()
	for _, t := range all {
		s.trees.add(t.hash, treeInfo{size: t.size})
		s.quota.count("", t.size)
	}
	return err
}

// Missing returns those of refs that are not in the store, in their order.
func (s *Store) Missing(refs []Ref) ([]Ref, error) {
	if err := s.open(); err != nil {
		return nil, err
	}
	var missing []Ref
	for _, r := range refs {
		if !s.packs.has(r) {
			missing = append(missing, r)
		}
	}
	return missing, nil
}

// MissingOf returns those of refs that the user has not uploaded, in their order. So it does not reveal what others
// have uploaded.
func (s *Store) MissingOf(user string, refs []Ref) ([]Ref, error) { return s.missing(idOf(user), refs) }

func (s *Store) missing(user userID, refs []Ref) ([]Ref, error) {
	if user == "" { // from another daemon
		return s.Missing(refs)
	}
	if err := s.open(); err != nil {
		return nil, err
	}
	var missing []Ref
	for _, r := range refs {
		has := s.packs.hasOf(user, r) || s.doubles.has(user, r.Hash) && s.packs.has(r)
		if !has {
			missing = append(missing, r)
		}
	}
	return missing, nil
}

// write writes a file and moves it to its place when it is complete.
func (s *Store) write(path string, data []byte) error {
	f, err := os.CreateTemp(filepath.Join(s.cfg.Dir, "tmp"), "")
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name()) // it is incomplete
	}
	return err
}

// PutTree stores a tree of a user who has uploaded all its chunks. If some are missing, it returns those and
// ErrMissing. Everything is on disk (synced) when PutTree returns.
func (s *Store) PutTree(text []byte, user string) (Hash, []Ref, error) {
	h := Sum(text)
	t, err := ParseTree(text)
	if err != nil {
		return h, nil, err
	}
	missing, err := s.storeTree(h, t, text, idOf(user))
	if err == nil {
		err = s.syncTree(h, t.Chunks())
	}
	return h, missing, err
}

// storeTree is like PutTree, for a tree that is checked already, and without the sync.
func (s *Store) storeTree(h Hash, t Tree, text []byte, user userID) ([]Ref, error) {
	missing, err := s.missing(user, t.Chunks())
	if err != nil {
		return nil, err
	}
	if len(missing) > 0 {
		return missing, fmt.Errorf("blob: tree %s: %d of its chunks: %w", h, len(missing), ErrMissing)
	}
	path := s.trees.path(h)
	if info, err := os.Lstat(path); err == nil {
		touch(path, info, time.Now())
		return nil, nil
	}
	n := int64(len(text))
	if err := s.reserve(user, n); err != nil {
		return nil, err
	}
	if err := s.write(path, text); err != nil {
		s.quota.count(user, -n)
		return nil, fmt.Errorf("blob: keep tree: %w", err)
	}
	s.trees.add(h, treeInfo{user, n})
	return nil, nil
}

// TreeText returns a tree's encoding, or ErrMissing.
func (s *Store) TreeText(h Hash) ([]byte, error) { return s.trees.text(h) }

// Size returns how many bytes the chunks and trees take.
func (s *Store) Size() (int64, error) {
	err := s.open()
	return s.quota.total(), err
}
