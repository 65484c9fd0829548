package blob

// The chunks and trees that a daemon keeps.

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
	// young is how long what nothing refers to stays: an upload, or the way from
	// one to its job, may be under way.
	young = time.Hour
	// touchAfter is the age of a file's time stamp above which its use is noted.
	touchAfter = 10 * time.Minute
)

// Config says where a store lies.
type Config struct {
	Dir string
	// Most bounds the store, in bytes; 0: a tenth of its file system.
	Most int64
	// Live are the trees that jobs and tasks here have need of; they are not
	// dropped. May be nil.
	Live func() (map[Hash]bool, error)
}

// Store keeps chunks and trees in files:
//
//	packs/NAME.pack  chunks, then their names and lengths, then how many
//	trees/HASH
//	tmp/             what is being written
//
// A file appears once it is whole, and is not changed then. Which chunk lies
// where is held in memory, and read from the ends of the packs when the store
// is used first.
//
// What is not referred to by a tree, and the trees that were used least lately,
// go when there is no more room. Its methods may be called at the same time.
type Store struct {
	cfg  Config
	log  *slog.Logger
	size atomic.Int64 // bytes of all packs and trees, and of what is being written; changed under mu

	opening sync.Once
	opened  error

	sweeping sync.Mutex
	swept    time.Time // when room was made last that was not enough; guarded by sweeping

	mu     sync.Mutex
	packs  map[string]*pack // by name; guarded by mu, as all of them
	shares map[by]int64     // of the size, by who uploaded it
	lists  map[Hash]list    // the trees
	chunks map[Hash]place   // guarded by mu
}

// place is where a chunk lies.
type place struct {
	pack *pack
	at   uint32 // in the pack's file
	size uint32
}

// list is what is known of a tree without reading it.
type list struct {
	by   by // empty if an earlier process wrote it
	size int64
}

// NewStore makes a store; the disk is not touched before its first use.
func NewStore(cfg Config, log *slog.Logger) *Store {
	return &Store{cfg: cfg, log: log, packs: map[string]*pack{}, shares: map[by]int64{}, lists: map[Hash]list{}, chunks: map[Hash]place{}}
}

func (s *Store) pack(name string) string { return filepath.Join(s.cfg.Dir, "packs", name) }

func (s *Store) tree(h Hash) string { return filepath.Join(s.cfg.Dir, "trees", h.String()) }

// open makes the directories and reads what is there.
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

// load finds the packs. One that a power cut has left broken is of no use.
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
			s.log.Warn("chunks of uploads cannot be read, dropped", "pack", e.Name(), "error", err)
			if err := os.Remove(s.pack(e.Name())); err != nil {
				return err
			}
			continue
		}
		s.count(p.by, p.size)
		s.enter(p)
	}
	trees, err := s.trees()
	for _, t := range trees {
		s.list(t.hash, list{size: t.size})
		s.count("", t.size)
	}
	return err
}

// list makes a tree known, unlist forgets it.
func (s *Store) list(h Hash, l list) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lists[h] = l
}

func (s *Store) unlist(h Hash) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.lists[h]
	delete(s.lists, h)
	s.countLocked(l.by, -l.size)
}

// enter makes the chunks of a pack known.
func (s *Store) enter(p *pack) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.packs[p.name] = p
	at := uint32(0)
	for _, r := range p.refs {
		s.chunks[r.Hash] = place{p, at, r.Size}
		at += r.Size
	}
}

// has says whether a chunk is here, and notes that it is of use.
func (s *Store) has(r Ref) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	there := s.chunks[r.Hash]
	if there.pack == nil || there.size != r.Size {
		return false
	}
	if now := time.Now(); now.Sub(there.pack.used) > touchAfter {
		there.pack.used = now
		_ = os.Chtimes(s.pack(there.pack.name), now, now) // at worst it goes sooner
	}
	return true
}

// Missing lists those of refs that are not here, in their order.
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

// touch notes that a tree is of use.
func touch(path string, info fs.FileInfo, now time.Time) {
	if now.Sub(info.ModTime()) > touchAfter {
		_ = os.Chtimes(path, now, now) // at worst it goes sooner
	}
}

// write makes a file appear whole.
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
		_ = os.Remove(f.Name()) // what cannot be written need not be kept
	}
	return err
}

// drop removes a pack, unless that is done.
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
		if s.chunks[r.Hash].pack == p {
			delete(s.chunks, r.Hash)
		}
	}
	s.countLocked(p.by, -p.size)
	if err := os.Remove(s.pack(p.name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.log.Warn("chunks of uploads not removed", "pack", p.name, "error", err)
	}
}

// PutTree keeps a tree of a user whose chunks are all here; else it gives those
// that are not, and ErrMissing. All of it is on disk when PutTree returns.
func (s *Store) PutTree(text []byte, user string) (Hash, []Ref, error) {
	h := Sum(text)
	t, err := ParseTree(text)
	if err != nil {
		return h, nil, err
	}
	missing, err := s.keepTree(h, t, text, uploader(user))
	if err == nil {
		err = s.syncTree(h, t.Chunks())
	}
	return h, missing, err
}

// keepTree is PutTree of a tree that was checked, without the sync.
func (s *Store) keepTree(h Hash, t Tree, text []byte, whose by) ([]Ref, error) {
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
	if err := s.reserve(whose, n); err != nil {
		return nil, err
	}
	if err := s.write(path, text); err != nil {
		s.count(whose, -n)
		return nil, fmt.Errorf("blob: keep tree: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if before, twice := s.lists[h]; twice { // two brought it at once
		s.countLocked(before.by, -before.size)
	}
	s.lists[h] = list{whose, n}
	return nil, nil
}

// TreeText is a tree's encoding, or ErrMissing.
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

// Size is how many bytes the chunks and trees take.
func (s *Store) Size() (int64, error) {
	err := s.open()
	return s.size.Load(), err
}
