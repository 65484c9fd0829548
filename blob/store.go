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
	// keepShare is the part of the file system that the store may take: a tenth.
	keepShare = 10
	// young is how long what nothing refers to stays: an upload, or the way from
	// one to its job, may be under way.
	young = time.Hour
	// touchAfter is the age of a file's time stamp above which its use is noted.
	touchAfter = 10 * time.Minute
	// sweepAgain is the least time between two attempts to make room.
	sweepAgain = 10 * time.Second
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

// Store keeps chunks and trees as files named by their hashes:
//
//	chunks/XX/HASH   XX are the first two digits
//	trees/HASH
//	tmp/             what is being written
//
// What is not referred to by a tree, and the trees that were used least lately,
// go when there is no more room. Its methods may be called at the same time.
type Store struct {
	cfg  Config
	log  *slog.Logger
	size atomic.Int64 // bytes of all chunks

	opening sync.Once
	opened  error
	used    atomic.Bool // something was put since the last sync

	sweeping sync.Mutex
	swept    time.Time // guarded by sweeping
}

// NewStore makes a store; the disk is not touched before its first use.
func NewStore(cfg Config, log *slog.Logger) *Store { return &Store{cfg: cfg, log: log} }

func (s *Store) chunk(h Hash) string {
	name := h.String()
	return filepath.Join(s.cfg.Dir, "chunks", name[:2], name)
}

func (s *Store) tree(h Hash) string { return filepath.Join(s.cfg.Dir, "trees", h.String()) }

// open makes the directories and counts what is there.
func (s *Store) open() error {
	s.opening.Do(func() {
		for i := range 256 {
			if s.opened = os.MkdirAll(filepath.Join(s.cfg.Dir, "chunks", fmt.Sprintf("%02x", i)), 0o700); s.opened != nil {
				return
			}
		}
		s.opened = errors.Join(
			os.RemoveAll(filepath.Join(s.cfg.Dir, "tmp")), os.MkdirAll(filepath.Join(s.cfg.Dir, "tmp"), 0o700),
			os.MkdirAll(filepath.Join(s.cfg.Dir, "trees"), 0o700))
		if s.opened == nil && s.cfg.Most == 0 {
			var disk unix.Statfs_t
			s.opened = unix.Statfs(s.cfg.Dir, &disk)
			s.cfg.Most = int64(disk.Blocks) * disk.Bsize / keepShare //nolint:gosec // no disk has 2^63 blocks
		}
		if s.opened == nil {
			s.opened = s.eachChunk(func(_ Hash, info fs.FileInfo) { s.size.Add(info.Size()) })
		}
	})
	if s.opened != nil {
		return fmt.Errorf("blob: open store: %w", s.opened)
	}
	return nil
}

// Missing lists those of refs that are not here, in their order.
func (s *Store) Missing(refs []Ref) ([]Ref, error) {
	if err := s.open(); err != nil {
		return nil, err
	}
	now := time.Now()
	var missing []Ref
	for _, r := range refs {
		path := s.chunk(r.Hash)
		info, err := os.Lstat(path)
		if err != nil || info.Size() != int64(r.Size) {
			missing = append(missing, r)
			continue
		}
		touch(path, info, now)
	}
	return missing, nil
}

// touch notes that a file is of use.
func touch(path string, info fs.FileInfo, now time.Time) {
	if now.Sub(info.ModTime()) > touchAfter {
		_ = os.Chtimes(path, now, now) // at worst it goes sooner
	}
}

// Put keeps a chunk. With sync its bytes begin their way to the disk now, so
// that PutTree has little to wait for.
func (s *Store) Put(data []byte, sync bool) (Ref, error) {
	r := Ref{Hash: Sum(data), Size: uint32(len(data))} //nolint:gosec // at most MaxChunk
	if len(data) == 0 || len(data) > MaxChunk {
		return r, fmt.Errorf("blob: chunk of %d bytes: %w: from 1 to %d", len(data), ErrInvalid, MaxChunk)
	}
	if err := s.open(); err != nil {
		return r, err
	}
	path := s.chunk(r.Hash)
	if info, err := os.Lstat(path); err == nil && info.Size() == int64(len(data)) {
		touch(path, info, time.Now())
		return r, nil
	}
	if s.size.Load()+int64(len(data)) > s.cfg.Most {
		s.makeRoom()
	}
	if now := s.size.Load(); now+int64(len(data)) > s.cfg.Most {
		return r, fmt.Errorf("blob: %w: it has %d of at most %d bytes, all of live jobs or less than an hour old", ErrFull, now, s.cfg.Most)
	}
	if err := s.write(path, data, sync); err != nil {
		return r, fmt.Errorf("blob: keep chunk: %w", err)
	}
	s.size.Add(int64(len(data)))
	s.used.Store(true)
	return r, nil
}

// write makes a file appear whole.
func (s *Store) write(path string, data []byte, sync bool) error {
	f, err := os.CreateTemp(filepath.Join(s.cfg.Dir, "tmp"), "")
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil && sync {
		_ = unix.SyncFileRange(int(f.Fd()), 0, 0, unix.SYNC_FILE_RANGE_WRITE) // PutTree makes sure
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name()) // what cannot be written need not be kept
	}
	return err
}

// Get reads a chunk. One that is damaged is dropped, so that it can be sent
// again, and is ErrMissing.
func (s *Store) Get(r Ref) ([]byte, error) {
	if err := s.open(); err != nil {
		return nil, err
	}
	data, err := os.ReadFile(s.chunk(r.Hash))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("blob: chunk %s: %w", r.Hash, ErrMissing)
	}
	if err != nil {
		return nil, fmt.Errorf("blob: chunk: %w", err)
	}
	if len(data) == int(r.Size) && Sum(data) == r.Hash {
		return data, nil
	}
	s.log.Warn("chunk of an upload is damaged, dropped", "hash", r.Hash.String())
	if os.Remove(s.chunk(r.Hash)) == nil {
		s.size.Add(-int64(len(data)))
	}
	return nil, fmt.Errorf("blob: chunk %s: %w", r.Hash, ErrMissing)
}

// PutTree keeps a tree whose chunks are all here; else it gives those that are
// not, and ErrMissing. With sync all of it is on disk when PutTree returns.
func (s *Store) PutTree(text []byte, sync bool) (Hash, []Ref, error) {
	h := Sum(text)
	t, err := ParseTree(text)
	if err != nil {
		return h, nil, err
	}
	missing, err := s.Missing(t.Chunks())
	if err != nil {
		return h, nil, err
	}
	if len(missing) > 0 {
		return h, missing, fmt.Errorf("blob: tree %s: %d of its chunks: %w", h, len(missing), ErrMissing)
	}
	path := s.tree(h)
	if info, err := os.Lstat(path); err == nil {
		touch(path, info, time.Now())
	} else {
		if err := s.write(path, text, sync); err != nil {
			return h, nil, fmt.Errorf("blob: keep tree: %w", err)
		}
		s.used.Store(true)
	}
	if sync {
		err = s.sync()
	}
	return h, nil, err
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

// sync returns when all that was put is on the disk. One call for a whole
// upload costs less than one for each file.
func (s *Store) sync() error {
	if !s.used.Swap(false) {
		return nil
	}
	f, err := os.Open(s.cfg.Dir)
	if err != nil {
		return fmt.Errorf("blob: sync: %w", err)
	}
	defer f.Close()
	if err := unix.Syncfs(int(f.Fd())); err != nil {
		s.used.Store(true)
		return fmt.Errorf("blob: sync: %w", err)
	}
	return nil
}

// Size is how many bytes of chunks there are.
func (s *Store) Size() (int64, error) {
	err := s.open()
	return s.size.Load(), err
}
