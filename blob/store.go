package blob

// The store: the chunks and trees that a daemon keeps.

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
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
// A file is moved to its place when it is complete, and never changes then. The index of chunks is held in memory; it
// is read from the ends of the packs when the store is first used.
//
// When the store is full, it is pruned: the least recently used trees are removed, and chunks that no tree uses. Its
// methods are safe for concurrent use.
type Store struct {
	cfg  Config
	log  *slog.Logger
	size atomic.Int64 // bytes of all packs and trees, written or reserved; changed under mu

	opening sync.Once
	opened  error

	pruning sync.Mutex
	pruned  time.Time // guarded by pruning; when it was last pruned without freeing enough

	mu    sync.Mutex
	packs map[string]*pack    // guarded by mu; by name
	usage map[userID]int64    // guarded by mu; bytes by the user who uploaded them
	trees map[Hash]treeInfo   // guarded by mu
	index map[Hash]indexEntry // guarded by mu; of chunks
}

// indexEntry says where a chunk lies.
type indexEntry struct {
	pack *pack
	at   uint32 // offset in the pack
	size uint32
}

// treeInfo is what is known of a tree without reading it.
type treeInfo struct {
	user userID // empty if an earlier process wrote it
	size int64
}

// NewStore makes a store. It does not touch the disk before its first use.
func NewStore(cfg Config, log *slog.Logger) *Store {
	return &Store{cfg: cfg, log: log, packs: map[string]*pack{}, usage: map[userID]int64{}, trees: map[Hash]treeInfo{}, index: map[Hash]indexEntry{}}
}

func (s *Store) pack(name string) string { return filepath.Join(s.cfg.Dir, "packs", name) }

func (s *Store) tree(h Hash) string { return filepath.Join(s.cfg.Dir, "trees", h.String()) }

// open makes the directories and reads the index.
func (s *Store) open() error {
	s.opening.Do(func() {
		s.opened = errors.Join(
			os.RemoveAll(filepath.Join(s.cfg.Dir, "tmp")), os.MkdirAll(filepath.Join(s.cfg.Dir, "tmp"), 0o700),
			os.MkdirAll(filepath.Join(s.cfg.Dir, "packs"), 0o700), os.MkdirAll(filepath.Join(s.cfg.Dir, "trees"), 0o700))
		if s.opened == nil && s.cfg.Most == 0 {
			var disk unix.Statfs_t
			s.opened = unix.Statfs(s.cfg.Dir, &disk)
			s.cfg.Most = int64(disk.Blocks) * disk.Bsize / keepShare //nolint:gosec // no disk has 2^63 blocks
		}
		if s.opened == nil {
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
	entries, err := os.ReadDir(filepath.Join(s.cfg.Dir, "packs"))
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !isPack(e.Name()) {
			continue
		}
		p, err := readPack(s.pack(e.Name()))
		if err != nil {
			s.log.Warn("pack of uploads is broken, removed", "pack", e.Name(), "error", err)
			if err := os.Remove(s.pack(e.Name())); err != nil {
				return err
			}
			continue
		}
		s.count(p.user, p.size)
		s.addPack(p)
	}
	trees, err := s.listTrees()
	for _, t := range trees {
		s.addTree(t.hash, treeInfo{size: t.size})
		s.count("", t.size)
	}
	return err
}

// addTree adds a tree to those that the store knows; removeTree removes it.
func (s *Store) addTree(h Hash, l treeInfo) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.trees[h] = l
}

func (s *Store) removeTree(h Hash) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.trees[h]
	delete(s.trees, h)
	s.countLocked(l.user, -l.size)
}

// addPack adds a pack and its chunks to the index.
func (s *Store) addPack(p *pack) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.packs[p.name] = p
	at := uint32(0)
	for _, r := range p.refs {
		s.index[r.Hash] = indexEntry{p, at, r.Size}
		at += r.Size
	}
}

// has reports whether a chunk is in the store, and marks its pack as used.
func (s *Store) has(r Ref) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	there := s.index[r.Hash]
	if there.pack == nil || there.size != r.Size {
		return false
	}
	if now := time.Now(); now.Sub(there.pack.used) > touchAfter {
		there.pack.used = now
		_ = os.Chtimes(s.pack(there.pack.name), now, now) // an error only lets it be pruned sooner
	}
	return true
}

// Missing returns those of refs that are not in the store, in their order.
func (s *Store) Missing(refs []Ref) ([]Ref, error) {
	if err := s.open(); err != nil {
		return nil, err
	}
	var missing []Ref
	for _, r := range refs {
		if !s.has(r) {
			missing = append(missing, r)
		}
	}
	return missing, nil
}

// touch marks a tree as used.
func touch(path string, info fs.FileInfo, now time.Time) {
	if now.Sub(info.ModTime()) > touchAfter {
		_ = os.Chtimes(path, now, now) // an error only lets it be pruned sooner
	}
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

// drop removes a pack, unless it was removed already.
func (s *Store) drop(p *pack) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dropLocked(p)
}

func (s *Store) dropLocked(p *pack) {
	if s.packs[p.name] != p {
		return
	}
	delete(s.packs, p.name)
	for _, r := range p.refs {
		if s.index[r.Hash].pack == p {
			delete(s.index, r.Hash)
		}
	}
	s.countLocked(p.user, -p.size)
	if err := os.Remove(s.pack(p.name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.log.Warn("pack of uploads not removed", "pack", p.name, "error", err)
	}
}

// PutTree stores a tree of a user whose chunks are all in the store. If some are not, it returns those and
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

// storeTree is PutTree for a tree that was checked, without the sync.
func (s *Store) storeTree(h Hash, t Tree, text []byte, user userID) ([]Ref, error) {
	missing, err := s.Missing(t.Chunks())
	if err != nil {
		return nil, err
	}
	if len(missing) > 0 {
		return missing, fmt.Errorf("blob: tree %s: %d of its chunks: %w", h, len(missing), ErrMissing)
	}
	path := s.tree(h)
	if info, err := os.Lstat(path); err == nil {
		touch(path, info, time.Now())
		return nil, nil
	}
	n := int64(len(text))
	if err := s.reserve(user, n); err != nil {
		return nil, err
	}
	if err := s.write(path, text); err != nil {
		s.count(user, -n)
		return nil, fmt.Errorf("blob: keep tree: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if before, twice := s.trees[h]; twice { // another call has stored it meanwhile
		s.countLocked(before.user, -before.size)
	}
	s.trees[h] = treeInfo{user, n}
	return nil, nil
}

// TreeText returns a tree's encoding, or ErrMissing.
func (s *Store) TreeText(h Hash) ([]byte, error) {
	path := s.tree(h)
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

// Size returns how many bytes the chunks and trees take.
func (s *Store) Size() (int64, error) {
	err := s.open()
	return s.size.Load(), err
}
