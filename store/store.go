// Package store keeps on one disk what a daemon must know after it was killed:
// the journal of the jobs that it answers for, the rows that the journal has
// led to, the ledger of the attempts that its worker holds, and a few keys of
// the daemon itself. All of it lies in one Pebble database in the data
// directory.
//
// # Keys
//
//	m/store            the store's id: 128 random bits, drawn with the directory
//	r/GROUP/h          Raft: term, vote, commit index
//	r/GROUP/c          Raft: the voters
//	r/GROUP/g          generation of the group's owner
//	r/GROUP/t          where the kept log begins
//	r/GROUP/l/INDEX    entry of the log
//	r/GROUP/a          index of the last entry that the rows below reflect
//	s/GROUP/j/JOB      job and its tasks
//	w/a/ATTEMPT        what the worker knows of an attempt
//	w/e/GROUP          newest epoch that the worker has seen of a group (R2)
//	n/KEY              the daemon's own
//
// # What a crash leaves
//
// Every write, synced or not, goes through one write-ahead log, in order. A
// crash keeps a prefix of that log, at least up to the last write that was
// synced, and a batch is in the prefix as a whole or not at all.
//
//   - An entry is synced before it counts as committed, so before it is
//     delivered: what was delivered is delivered again after any crash.
//   - Rows are written with the index that they reflect in one batch and are not
//     synced. If a crash takes that batch, the rows are those of an earlier
//     index, and the entries after that index, all synced before the batch was
//     written, are delivered again: nothing is lost. If the batch survives, the
//     entries up to its index are not delivered again: nothing is doubled.
//   - The log is cut only up to an index that was saved, by a batch that follows
//     the rows in the write-ahead log: no prefix holds the cut but not the rows.
//   - The commit index is written with whatever is written next. A crash may take
//     it; that of an index that was saved is known to be committed, and the rest
//     the group commits again, in the same order.
//   - The ledger and the daemon's own keys are synced before Save and Put return.
//
// # A full disk
//
// A database that cannot write its log cannot go on: the process ends. So that
// this does not happen, new work (Submit, Assign, reservations, starts) is
// refused with ErrNoRoom while the file system has less free than a reserve,
// and the reserve is left to what ends work: results, cancellations, records
// that are given back.
package store

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/musterhq/muster/job"
)

var (
	// ErrInUse says that another process works on the data directory. Give the
	// daemon another, or end that process.
	ErrInUse = errors.New("the data directory is in use by another daemon")
	// ErrNoRoom says that the disk is nearly full: work that is new is refused,
	// work that ends is not. Try again when there is room.
	ErrNoRoom = errors.New("the disk of the data directory is nearly full")
	// ErrFull says that more waits than a bound allows. Try again after a pause.
	ErrFull = errors.New("the store is behind")
	// ErrTooLarge says that a record, key or value is beyond its bound. Do not
	// try again.
	ErrTooLarge = errors.New("too large to be kept")
	// ErrClosed says that the store or its journal has ended, as its daemon does.
	ErrClosed = errors.New("the store is closed")
)

// Config says where a store is and what it does when the disk ends.
type Config struct {
	// Dir is the data directory; the database is in its folder db.
	Dir string
	// Reserve is the free space below which new work is refused; of a small file
	// system it is only 2 %, but never less than 8 MiB.
	Reserve int64
	// OnFatal is told why the store can go on no longer. The process ends when it
	// returns, or after a moment if it does not. May be nil.
	OnFatal func(error)
	// FS is the file system; the real one if nil.
	FS vfs.FS
}

// DefaultConfig is a store that lacks only its directory.
func DefaultConfig() Config { return Config{Reserve: defaultReserve} }

// Validate says what is wrong with the configuration.
func (c Config) Validate() error {
	switch {
	case c.Dir == "":
		return errors.New("store: no data directory")
	case c.Reserve < 0:
		return fmt.Errorf("store: reserve %s: not below 0", job.Size(c.Reserve))
	}
	return nil
}

// The memory of the database: a daemon is small, its open jobs are in memory
// anyway, and what is read here is read at start, or for people who ask for jobs
// that ended.
const (
	cacheBytes    = 2 << 20
	memTableBytes = 1 << 20
	maxOpenFiles  = 64
	idBytes       = 16
)

// diskFormat is the layout of the database's files. A newer one is taken up by
// a release that says so: older releases cannot read it.
const diskFormat = pebble.FormatWALSyncChunks

var keyStore = []byte("m/store")

// Store is the database of one daemon. Its methods may be called from any
// goroutine.
type Store struct {
	db    *pebble.DB
	log   *slog.Logger
	id    string
	room  room
	own   keyCount
	fatal *fatality

	complained atomic.Pointer[time.Time] // when background last said something
}

// Open opens the database of a data directory, and makes it if there is none.
func Open(cfg Config, log *slog.Logger) (*Store, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	fs, dir := cfg.FS, filepath.Join(cfg.Dir, "db")
	if fs == nil {
		fs = vfs.Default
	}
	if err := makeDir(fs, dir); err != nil {
		return nil, fmt.Errorf("store: make %s: %w", dir, err)
	}
	lock, err := pebble.LockDirectory(dir, fs)
	if err != nil {
		return nil, lockError(dir, err)
	}
	s := &Store{log: log, room: room{fs: fs, dir: cfg.Dir, most: cfg.Reserve}, fatal: newFatality(cfg.OnFatal, log)}
	if s.db, err = s.open(dir, fs, lock); err != nil {
		return nil, errors.Join(fmt.Errorf("store: open %s: %w", dir, err), lock.Close())
	}
	// The database holds the lock from here on.
	if err := errors.Join(lock.Close(), s.identify(), s.countOwn()); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// makeDir makes a directory that a power cut does not take: each directory above
// it is synced, for any of them may be as new. Those that may not be read were
// not made for us.
func makeDir(fs vfs.FS, dir string) error {
	if err := fs.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	for at, up := dir, filepath.Dir(dir); up != at; at, up = up, filepath.Dir(up) {
		d, err := fs.OpenDir(up)
		if errors.Is(err, os.ErrPermission) {
			continue
		}
		if err != nil {
			return err
		}
		if err := errors.Join(d.Sync(), d.Close()); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) open(dir string, fs vfs.FS, lock *pebble.Lock) (*pebble.DB, error) {
	cache := pebble.NewCache(cacheBytes)
	defer cache.Unref()
	logger := engineLog{s.fatal}
	ours := &logFS{FS: fs, end: s.fatal.end}
	opts := &pebble.Options{
		Cache: cache, MemTableSize: memTableBytes, MaxOpenFiles: maxOpenFiles,
		FS: ours, Lock: lock, Logger: logger, FormatMajorVersion: diskFormat,
		EventListener: &pebble.EventListener{BackgroundError: s.background},
	}
	opts.Experimental.FileCacheShards = 1
	opts.Experimental.CompactionScheduler = newOneCompaction()
	db, err := pebble.Open(dir, opts)
	ours.open.Store(err == nil)
	return db, err
}

const (
	// complainEvery bounds how often one line says that the database is in trouble.
	complainEvery = 10 * time.Second
	// backgroundPause is between two tries of the database at what failed. It
	// makes none itself, and a disk stays full for longer than a write takes.
	backgroundPause = 100 * time.Millisecond
)

// background hears of what the database failed to do for itself. It is called
// while no other work of that kind can begin.
func (s *Store) background(err error) {
	now := time.Now()
	if last := s.complained.Load(); last == nil || now.Sub(*last) >= complainEvery {
		s.complained.Store(&now)
		s.log.Error("database could not work in the background, it tries again", "error", err.Error()) // its text: the whole has a stack
	}
	time.Sleep(backgroundPause)
}

// lockError says in one sentence what stands in the way of a lock.
func lockError(dir string, err error) error {
	if errors.Is(err, syscall.EAGAIN) || strings.Contains(err.Error(), "held by current process") {
		return fmt.Errorf("store: %s: %w", dir, ErrInUse)
	}
	return fmt.Errorf("store: lock %s: %w", dir, err)
}

// identify reads the id of the store, or draws it for a new one.
func (s *Store) identify() error {
	id, err := s.get(keyStore)
	if err != nil {
		return fmt.Errorf("store: read the store's id: %w", err)
	}
	if id == nil {
		id = make([]byte, idBytes)
		_, _ = rand.Read(id) // never fails: it ends the program rather than return less
		if err := s.write(pebble.Sync, func(b *pebble.Batch) error { return b.Set(keyStore, id, nil) }); err != nil {
			return fmt.Errorf("store: write the store's id: %w", err)
		}
	}
	if len(id) != idBytes {
		return fmt.Errorf("store: the store's id has %d bytes, want %d", len(id), idBytes)
	}
	s.id = hex.EncodeToString(id)
	return nil
}

// ID is the store's own name, drawn with the directory: a wiped disk is another
// store.
func (s *Store) ID() string { return s.id }

// Group is the journal group that this store founds.
func (s *Store) Group() job.Group { return job.Group(s.hash("group", 1)) }

// voter is the store's name among the voters of a Raft group. The top bit is
// clear and the lowest set, for Raft keeps 0 and the highest numbers for itself.
func (s *Store) voter() uint64 { return s.hash("voter", 0)>>1 | 1 }

func (s *Store) hash(what string, seq uint64) uint64 {
	sum := sha256.Sum256(fmt.Appendf(nil, "muster %s %s %d", what, s.id, seq))
	return binary.BigEndian.Uint64(sum[:])
}

// Close ends the database. Nothing may be asked of the store after it.
func (s *Store) Close() error {
	if err := s.db.Close(); err != nil {
		return fmt.Errorf("store: close: %w", err)
	}
	return nil
}

// get reads a value of its own, or nil if there is none.
func (s *Store) get(key []byte) ([]byte, error) {
	v, closer, err := s.db.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	own := append([]byte{}, v...)
	return own, closer.Close()
}

// write commits what fill puts in a batch. A write-ahead log that cannot be
// written ends the process: some of the engine's ways out are panics under its
// locks, after which nothing could be trusted.
func (s *Store) write(opts *pebble.WriteOptions, fill func(*pebble.Batch) error) (err error) {
	b := s.db.NewBatch()
	if err := fill(b); err != nil {
		return errors.Join(err, b.Close())
	}
	defer func() {
		r := recover()
		if e, ok := r.(error); ok && errors.Is(e, pebble.ErrClosed) {
			err = ErrClosed
		} else if r != nil {
			s.fatal.end(fmt.Errorf("store: write: %v", r))
		}
	}()
	return errors.Join(b.Commit(opts), b.Close())
}

// scan calls f with each key and value under a prefix, in order. Both are only
// good until f returns.
func (s *Store) scan(prefix []byte, f func(key, val []byte) error) error {
	return s.scanRange(prefix, after(prefix), f)
}

// errEnough ends a scan early.
var errEnough = errors.New("enough")

// scanRange is scan from one key to before another.
func (s *Store) scanRange(from, to []byte, f func(key, val []byte) error) (err error) {
	it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: from, UpperBound: to})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	for ok := it.First(); ok; ok = it.Next() {
		v, err := it.ValueAndErr()
		if err != nil {
			return err
		}
		if err := f(it.Key(), v); err != nil {
			return fmt.Errorf("key %q: %w", it.Key(), err)
		}
	}
	return it.Error()
}

// after is the first key beyond all that begin with prefix, or nil if there is
// none.
func after(prefix []byte) []byte {
	end := append([]byte{}, prefix...)
	for i := len(end) - 1; i >= 0; i-- {
		if end[i]++; end[i] != 0 {
			return end[:i+1]
		}
	}
	return nil
}
