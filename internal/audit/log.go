package audit

// The log: entries are recorded in memory, and written by one goroutine.

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// Config configures a log.
type Config struct {
	Dir string
	// FileBytes bounds one file.
	FileBytes int64
	// Old is the number of older files that are kept.
	Old int
}

// DefaultConfig returns a configuration of 64 MiB in all: some 200,000 entries.
func DefaultConfig() Config { return Config{FileBytes: 8 << 20, Old: 7} }

// Validate returns an error that names a wrong setting.
func (c Config) Validate() error {
	if c.Dir == "" || c.FileBytes < minFile || c.Old < 1 || c.Old > maxOld {
		return fmt.Errorf("audit: want a directory, files of at least %d bytes, and 1 to %d older ones", minFile, maxOld)
	}
	return nil
}

const (
	minFile = 16 << 10
	maxOld  = 99
	// maxPending bounds the entries that wait to be written; several actors may use up their allowances at once.
	maxPending = 8192
	// writeAfter is how long an entry waits for others that are written with it.
	writeAfter = 100 * time.Millisecond
	// writeBytes is about how much is written at once.
	writeBytes = 8 << 10
	// scans bounds the searches that run at once.
	scans = 2
)

// Log is the audit log of a daemon. It is safe for concurrent use.
type Log struct {
	files *files
	log   *slog.Logger
	wake  chan struct{} // holds a token while entries wait
	scans chan struct{} // holds a token for each search

	writing sync.Mutex // held while entries are taken and written, so that they are in order

	mu      sync.Mutex
	actors  actors    // guarded by mu
	pending []Entry   // guarded by mu
	losses  Losses    // guarded by mu
	untold  int       // guarded by mu; lost entries that the log does not mention yet
	since   time.Time // guarded by mu; when the first of them was lost
}

// Losses are the entries that could not be written since the start of the daemon.
type Losses struct {
	Entries int
	Now     bool   // the last attempt to write failed, too
	Reason  string // why, the last time
}

// Open opens the log in a directory, or begins one.
func Open(cfg Config, log *slog.Logger) (*Log, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	f, err := openFiles(filepath.Join(cfg.Dir, Name), cfg.FileBytes, cfg.Old)
	if err != nil {
		return nil, err
	}
	return &Log{files: f, log: log, wake: make(chan struct{}, 1), scans: make(chan struct{}, scans), actors: actors{}}, nil
}

// Record adds an entry. It does not wait for the disk.
func (l *Log) Record(e Entry) {
	now := time.Now()
	e.Time = now
	e.tidy()
	l.mu.Lock()
	switch {
	case !l.actors.admit(&e, now):
		l.mu.Unlock()
		return
	case len(l.pending) >= maxPending:
		l.loseLocked(e.Count, "the disk is too slow", now)
		l.mu.Unlock()
		return
	}
	l.pending = append(l.pending, e)
	l.mu.Unlock()
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// Run writes entries until ctx ends, and then what is left.
func (l *Log) Run(ctx context.Context) error {
	fold := time.NewTicker(foldEvery)
	defer fold.Stop()
	for {
		select {
		case <-l.wake:
			pause := time.NewTimer(writeAfter)
			select {
			case <-pause.C:
			case <-ctx.Done():
				pause.Stop()
			}
			l.flush(false)
		case <-fold.C:
			l.flush(true)
		case <-ctx.Done():
			l.flush(true)
			return nil
		}
	}
}

// Close writes what is left, and closes the file. Entries that are recorded later are lost.
func (l *Log) Close() error {
	l.flush(true)
	if err := l.files.close(); err != nil && !errors.Is(err, os.ErrClosed) {
		return fmt.Errorf("audit: close: %w", err)
	}
	return nil
}

// Losses returns how many entries could not be written.
func (l *Log) Losses() Losses {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.losses
}

// flush writes the entries that wait; with counted also what was only counted so far.
func (l *Log) flush(counted bool) {
	l.writing.Lock()
	defer l.writing.Unlock()
	now := time.Now()
	l.mu.Lock()
	batch := l.pending
	l.pending = nil
	if counted {
		batch = append(batch, l.actors.take(now)...)
	}
	untold := l.untold
	if untold > 0 {
		first := l.since
		lost := Entry{Time: now, First: &first, Action: Lost, Outcome: Failed, Reason: l.losses.Reason, From: Daemon, Count: untold}
		lost.tidy()
		batch = append([]Entry{lost}, batch...)
	}
	l.mu.Unlock()
	for len(batch) > 0 {
		lines, n, count := encode(batch)
		if err := l.files.append(lines); err != nil {
			for i := n; i < len(batch); i++ {
				count += batch[i].Count
			}
			l.lose(count-untold, err, now)
			return
		}
		l.wrote(untold)
		batch, untold = batch[n:], 0
	}
}

func newEncoder(b *bytes.Buffer) *json.Encoder {
	enc := json.NewEncoder(b)
	enc.SetEscapeHTML(false)
	return enc
}

// encode returns about writeBytes of lines, how many entries they are, and how many were counted for them.
func encode(batch []Entry) (lines []byte, n, count int) {
	var b bytes.Buffer
	enc := newEncoder(&b)
	for n < len(batch) && b.Len() < writeBytes {
		_ = enc.Encode(&batch[n]) // it has nothing but text, numbers and times
		count += batch[n].Count
		n++
	}
	return b.Bytes(), n, count
}

// lose counts entries that were not written, and logs the first time that it happens.
func (l *Log) lose(n int, err error, now time.Time) {
	l.mu.Lock()
	began := !l.losses.Now
	l.losses.Now = true
	l.loseLocked(n, err.Error(), now)
	l.mu.Unlock()
	if began {
		l.log.Error("the audit log cannot be written; its entries are counted until it can", "error", err)
	}
}

func (l *Log) loseLocked(n int, why string, now time.Time) {
	if l.untold == 0 {
		l.since = now.UTC().Truncate(time.Millisecond)
	}
	l.losses.Entries += n
	l.losses.Reason = Clean(why, maxText)
	l.untold += n
}

// wrote notes that the log can be written, and that it now mentions this number of lost entries.
func (l *Log) wrote(told int) {
	l.mu.Lock()
	ended := l.losses.Now
	l.losses.Now = false
	l.untold -= told
	l.mu.Unlock()
	if ended {
		l.log.Warn("the audit log can be written again", "lost", told)
	}
}
