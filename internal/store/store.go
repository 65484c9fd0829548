// Package store is the database on disk of one daemon. It keeps the rows of the jobs that this daemon owns, the ledger
// of the attempts on this host, and a few keys of the daemon itself. Package journal keeps its log here too. All of it
// is one Pebble database in the data directory.
//
// # Keys
//
//	m/store            the store's id: 128 random bits, drawn when the directory is made
//	m/founded/PEER     the number with which a daemon has founded its journal group: see job.Founding
//	m/founding/PEER    the same of the version before
//	r/GROUP/a          index of the last journal entry that the rows of the group reflect
//	r/GROUP/...        everything else under r/GROUP/ is the log of the group: see package journal
//	s/GROUP/j/JOB      row of a job: the job and its tasks
//	s/GROUP/f/JOB      large job file of a job
//	w/a/ATTEMPT        the worker's record of an attempt
//	w/e/GROUP          owner of a group, and its newest epoch that the worker has seen (R2)
//	n/KEY              keys of the daemon itself
//
// # What a crash leaves
//
// Every write, synced or not, goes through one write-ahead log, in order. A crash keeps a prefix of that log, at least
// up to the last synced write. A batch is in the prefix as a whole or not at all.
//
//   - Rows are not synced. They are written in one batch with the index of the entry that they reflect. If a crash
//     takes that batch, the rows are those of an earlier index, and the journal delivers the later entries again.
//   - The ledger and the daemon's own keys are synced before Put returns, and before Save returns if sync is set.
//
// # A full disk
//
// A database that cannot write its write-ahead log cannot go on: the process ends. To avoid that, new work (Submit,
// Assign, reservations, starts) is refused with ErrNoRoom while the file system has less free than a reserve. The
// reserve is left for what ends work: results, cancellations, and attempts that are given back. Other programs may use
// up the reserve, so the files in DIR/reserve hold disk space for the database: see reserve.go.
//
// # What depends on what
//
// Package journal imports this package, never the other way round. Only journal imports Raft; outside of tests only this
// package imports Pebble. There is no interface for the database: there is one implementation, and tests run it on
// a disk in memory.
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
	// ErrInUse says that another process uses the data directory. Give the daemon another directory, or end that
	// process.
	ErrInUse = errors.New("the data directory is in use by another daemon")
	// ErrNoRoom says that the disk is nearly full. Only new work is refused. Try again when space is free.
	ErrNoRoom = errors.New("the disk of the data directory is nearly full")
	// ErrFull says that a limit on what may wait or be kept is reached. Try again after a pause.
	ErrFull = errors.New("a limit of the store is reached")
	// ErrTooLarge says that a record, key or value exceeds its limit. Do not try again.
	ErrTooLarge = errors.New("too large to be stored")
	// ErrClosed says that the store or its journal has ended, because the daemon stops.
	ErrClosed = errors.New("the store is closed")
)

// Config says where a store is and what it does when the disk is full.
type Config struct {
	// Dir is the data directory; the database is in its subdirectory db.
	Dir string
	// Reserve is the free space, in bytes, below which new work is refused. On a small file system it is only 2 % of
	// its size, but never less than 8 MiB.
	Reserve int64
	// OnFatal is called with the reason when the store cannot go on. The process ends when OnFatal returns, or after
	// 2 s if it does not. May be nil.
	OnFatal func(error)
	// FS is the file system; the real one if nil.
	FS vfs.FS
}

// DefaultConfig returns a configuration that is valid except for Dir, which is empty.
func DefaultConfig() Config { return Config{Reserve: defaultReserve} }

// Validate returns an error that names the first bad value.
func (c Config) Validate() error {
	switch {
	case c.Dir == "":
		return errors.New("store: no data directory")
	case c.Reserve < 0:
		return fmt.Errorf("store: reserve %s: must be at least 0", job.Size(c.Reserve))
	}
	return nil
}

// The memory of the database is small: open jobs are in the scheduler's memory anyway. Rows are read at start, and when
// a person asks for a job that ended.
const (
	cacheBytes    = 2 << 20
	memTableBytes = 1 << 20
	maxOpenFiles  = 64
	idBytes       = 16
)

// diskFormat is the layout of Pebble's files. An older release of muster cannot read a newer layout, so the changelog
// announces every change of it.
const diskFormat = pebble.FormatWALSyncChunks

var keyStore = []byte("m/store")

// Store is the database of one daemon. Its methods may be called from any
// goroutine.
type Store struct {
	db    *pebble.DB
	log   *slog.Logger
	id    string
	space space
	// reserve is the database's file system.
	reserve *reserve
	own     keyCount
	fatal   *fatality

	lastLogged atomic.Pointer[time.Time] // when background last logged an error
}

// Open opens the database of a data directory, and makes it if there is none. The error is ErrInUse if another
// process has it open.
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
	s := &Store{log: log, space: space{fs: fs, dir: cfg.Dir, most: cfg.Reserve}, fatal: newFatality(cfg.OnFatal, log)}
	if s.reserve, err = openReserve(fs, &s.space, filepath.Join(cfg.Dir, "reserve")); err != nil {
		return nil, errors.Join(fmt.Errorf("store: open the reserve of %s: %w", cfg.Dir, err), lock.Close())
	}
	if s.db, err = s.open(dir, s.reserve, lock); err != nil {
		return nil, errors.Join(fmt.Errorf("store: open %s: %w", dir, err), lock.Close())
	}
	// The database holds the lock from here on.
	if err := errors.Join(lock.Close(), s.identify(), s.countOwn()); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// makeDir makes a directory so that it survives a power cut: it syncs each directory above it, because any of them may
// be new. A directory that may not be read was not made by us and is skipped.
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
		EventListener: &pebble.EventListener{BackgroundError: s.background, DataCorruption: logCorrupt(s.log)},
	}
	opts.Experimental.FileCacheShards = 1
	opts.Experimental.CompactionScheduler = newOneCompaction()
	if err := checkLogs(fs, dir); err != nil {
		return nil, damaged(err)
	}
	db, err := pebble.Open(dir, opts)
	ours.open.Store(err == nil)
	return db, damaged(err)
}

const (
	// logEvery is the shortest pause between two log lines about the same error.
	logEvery = 10 * time.Second
	// backgroundPause delays the next try of a failed flush or compaction. Pebble itself does not pause, and a disk
	// stays full for longer than a write takes.
	backgroundPause = 100 * time.Millisecond
)

// logCorrupt returns a hook that logs that Pebble has read a table which has changed since it was written. The read
// itself returns ErrDamaged.
func logCorrupt(log *slog.Logger) func(pebble.DataCorruptionInfo) {
	return func(info pebble.DataCorruptionInfo) {
		log.Error("a file of the database has changed since it was written", "file", info.Path)
	}
}

// background logs that Pebble could not flush or compact. Pebble calls it before it tries again, and waits for it.
func (s *Store) background(err error) {
	now := time.Now()
	if last := s.lastLogged.Load(); last == nil || now.Sub(*last) >= logEvery {
		s.lastLogged.Store(&now)
		s.log.Error("database could not flush or compact, trying again", "error", err.Error()) // only the text: the error itself would print a stack trace
	}
	time.Sleep(backgroundPause)
}

// lockError returns ErrInUse if another process holds the lock, otherwise the cause.
func lockError(dir string, err error) error {
	if errors.Is(err, syscall.EAGAIN) || strings.Contains(err.Error(), "held by current process") {
		return fmt.Errorf("store: %s: %w", dir, ErrInUse)
	}
	return fmt.Errorf("store: lock %s: %w", dir, err)
}

// identify reads the id of the store, or draws one for a new store.
func (s *Store) identify() error {
	id, err := s.Read(keyStore)
	if err != nil {
		return fmt.Errorf("store: read the store's id: %w", err)
	}
	if id == nil {
		id = make([]byte, idBytes)
		_, _ = rand.Read(id) // never fails: it ends the program if it has no random bytes
		if err := s.WriteSync(func(b Batch) error { return b.Set(keyStore, id) }); err != nil {
			return fmt.Errorf("store: write the store's id: %w", err)
		}
		// The first log of a new database does not record how much of it was synced; the next log does. See checkLogs.
		if err := s.db.Flush(); err != nil {
			return fmt.Errorf("store: begin a log: %w", err)
		}
	}
	if len(id) != idBytes {
		return fmt.Errorf("store: the store's id has %d bytes, want %d", len(id), idBytes)
	}
	s.id = hex.EncodeToString(id)
	return nil
}

// ID returns the id of the store, 32 hexadecimal digits. It is drawn when the data directory is made, so a daemon
// with a wiped disk has a new id.
func (s *Store) ID() string { return s.id }

// Derive returns a 64-bit number that depends on the arguments and the store's id.
func (s *Store) Derive(what string, seq uint64) uint64 {
	sum := sha256.Sum256(fmt.Appendf(nil, "muster %s %s %d", what, s.id, seq))
	return binary.BigEndian.Uint64(sum[:])
}

// Close closes the database. Do not use the store after it.
func (s *Store) Close() error {
	if err := s.db.Close(); err != nil {
		return fmt.Errorf("store: close: %w", err)
	}
	return nil
}
