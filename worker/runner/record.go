package runner

// The ends of tasks, on disk before anyone is told.

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/google/renameio/v2"

	"github.com/musterhq/muster/job"
)

// Record is how an attempt ended, as its exit.json says it.
type Record struct {
	Attempt string        `json:"attempt"`
	PID     int           `json:"pid,omitempty"`
	Exit    job.Exit      `json:"exit"`
	CPU     time.Duration `json:"cpu_ns,omitempty"`  // of its main process and what that waited for
	MaxRSS  job.Size      `json:"max_rss,omitempty"` // of the greatest of them
}

// syncers bounds the files that are synced at once. A file system commits what
// was synced in the same moment together, so a round of 32 costs little more
// than one file; each waits in a thread of its own, which bounds them.
const syncers = 16

// ReadExit reads how an attempt ended, forgotten or not; os.ErrNotExist if it
// has not, or its runner died with it.
func (d Dir) ReadExit(a job.Attempt) (Record, error) {
	b, err := readBounded(d.Exit(a), maxSmallFile)
	if errors.Is(err, os.ErrNotExist) {
		b, err = readBounded(d.Ended(a), maxSmallFile)
	}
	if err != nil {
		return Record{}, fmt.Errorf("runner: read end of %s: %w", a, err)
	}
	var r Record
	if err := json.Unmarshal(b, &r); err != nil {
		return Record{}, fmt.Errorf("runner: read end of %s: %w", a, err)
	}
	if !r.Exit.State.Ended() {
		return Record{}, fmt.Errorf("runner: read end of %s: state %.40q is no end", a, r.Exit.State)
	}
	return r, nil
}

// saveAll writes the ends of one round and syncs them: every file, every
// directory it was renamed in, and the directory of them all. It gives one
// error, or nil, for each.
func (d Dir) saveAll(round []*task) []error {
	errs := make([]error, len(round))
	var wg sync.WaitGroup
	slots := make(chan struct{}, syncers)
	for i, t := range round {
		slots <- struct{}{}
		wg.Go(func() {
			errs[i] = d.save(t)
			<-slots
		})
	}
	wg.Wait()
	if err := syncDir(d.Tasks()); err != nil {
		for i := range errs {
			errs[i] = errors.Join(errs[i], err)
		}
	}
	return errs
}

func (d Dir) save(t *task) error {
	dir := d.Task(t.attempt)
	if t.record.Exit.Started {
		t.record.Exit.Tail = tail(d.Output(t.attempt, Stderr))
	}
	b, err := json.Marshal(t.record)
	if err != nil {
		return fmt.Errorf("runner: encode end of %s: %w", t.name, err)
	}
	if err := os.Mkdir(dir, 0o711); err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("runner: save end of %s: %w", t.name, err)
	}
	if err := renameio.WriteFile(d.Exit(t.attempt), b, 0o600, renameio.WithTempDir(dir)); err != nil {
		return fmt.Errorf("runner: save end of %s: %w", t.name, err)
	}
	return syncDir(dir)
}

func syncDir(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("runner: sync: %w", err)
	}
	defer f.Close()
	if err := f.Sync(); err != nil {
		return fmt.Errorf("runner: sync %s: %w", path, err)
	}
	return nil
}

// tail is the end of a text file, whole letters of at most job.TailBytes.
func tail(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return ""
	}
	from := max(0, info.Size()-job.TailBytes)
	b, err := io.ReadAll(io.NewSectionReader(f, from, job.TailBytes))
	if err != nil {
		return ""
	}
	for from > 0 && len(b) > 0 && !utf8.RuneStart(b[0]) {
		b = b[1:]
	}
	text := strings.ToValidUTF8(string(b), "?")
	return text
}
