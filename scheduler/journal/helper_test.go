package journal

// Helpers for the tests: stores on disks in memory, and journals whose owner records its calls.

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/musterhq/muster/internal/store"
	"github.com/musterhq/muster/job"
)

var quiet = slog.New(slog.DiscardHandler)

func open(t testing.TB, fs vfs.FS) *store.Store {
	t.Helper()
	cfg := store.DefaultConfig()
	cfg.Dir, cfg.FS = "/data", fs
	cfg.OnFatal = func(err error) { panic(err) }
	s, err := store.Open(cfg, quiet)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func closeStore(t testing.TB, s *store.Store) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// recordingJournal is a running journal with an owner that records its calls.
type recordingJournal struct {
	*Journal
	stop context.CancelFunc
	end  chan error
	next Owner // gets the same calls unless it is nil

	mu      sync.Mutex
	got     []job.Committed // guarded by mu
	refused []refusal       // guarded by mu
	deposed []job.Epoch     // guarded by mu
}

// refusal is a call of NotProposed.
type refusal struct {
	records []job.Record
	err     error
}

func (r *recordingJournal) Deliver(c job.Committed) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.next != nil {
		r.next.Deliver(c)
	}
	r.got = append(r.got, c)
}

func (r *recordingJournal) NotProposed(records []job.Record, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.next != nil {
		r.next.NotProposed(records, err)
	}
	r.refused = append(r.refused, refusal{records, err})
}

func (r *recordingJournal) Deposed(epoch job.Epoch) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.next != nil {
		r.next.Deposed(epoch)
	}
	r.deposed = append(r.deposed, epoch)
}

func (r *recordingJournal) delivered() []job.Committed {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]job.Committed{}, r.got...)
}

// ids returns the jobs of the delivered Submit records, in order.
func (r *recordingJournal) ids() (ids []job.ID) {
	for _, c := range r.delivered() {
		for _, rec := range c.Records {
			if rec, ok := rec.(job.SubmitRecord); ok {
				ids = append(ids, rec.Job)
			}
		}
	}
	return ids
}

// run starts the journal of the store's own group.
func run(t testing.TB, s *store.Store, cfg Config) *recordingJournal {
	t.Helper()
	r := &recordingJournal{end: make(chan error, 1)}
	var err error
	if r.Journal, err = New(cfg, s, s.Group(), r, quiet); err != nil {
		t.Fatal(err)
	}
	var ctx context.Context
	ctx, r.stop = context.WithCancel(t.Context())
	go func() { r.end <- r.Run(ctx) }()
	return r
}

// halt stops the journal and waits for its end.
func (r *recordingJournal) halt(t testing.TB) {
	t.Helper()
	r.stop()
	if err := <-r.end; err != nil {
		t.Fatalf("Run = %v, want no error", err)
	}
}

func submit(g job.Group, n int) job.SubmitRecord {
	spec := job.DefaultSpec()
	spec.Name, spec.Command = "n", []string{"/bin/true"}
	return job.SubmitRecord{
		Job: job.NewID(g, uint64(n)), User: "amy", Spec: spec, At: time.Unix(1_700_000_000, 0),
	}
}

func cancel(g job.Group, n int) job.Record {
	return job.CancelRecord{Job: job.NewID(g, uint64(n)), Reason: "enough"}
}

// load returns the rows of a journal.
func load(j *Journal) (rows []job.Row, applied uint64, err error) {
	applied, err = j.Load(func(row job.Row) error {
		rows = append(rows, row)
		return nil
	})
	return rows, applied, err
}
