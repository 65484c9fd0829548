package ledger

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/internal/store"
	"github.com/musterhq/muster/job"
)

// rowsOfFiles returns how many job files are on disk.
func rowsOfFiles(t interface{ Fatal(...any) }, s *store.Store) (n int) {
	if err := s.ReadPrefix([]byte(filePrefix), func(_, _ []byte) error { n++; return nil }); err != nil {
		t.Fatal(err)
	}
	return n
}

func held(n int, f *job.File) contract.Record {
	return contract.Record{Attempt: job.Attempt{Job: job.NewID(1, 1), Task: n, N: 1}, Phase: contract.PhaseStarted, File: f}
}

// A job file has one row as long as any record has it, in whatever order records are saved, and whenever the ledger is
// loaded again.
func TestJobFileStaysAsLongAsARecordHasIt(t *testing.T) {
	s := open(t, vfs.NewMem())
	all := []*job.File{nil, newFile(job.Spec{Name: "a"}), newFile(job.Spec{Name: "b"}), newFile(job.Spec{Name: "c"})}
	rapid.Check(t, func(t *rapid.T) {
		l := New(s)
		old, _, err := l.Load()
		if err != nil {
			t.Fatal(err)
		}
		want := map[job.Attempt]*job.File{}
		for _, r := range old {
			want[r.Attempt] = r.File
		}
		for range rapid.IntRange(1, 20).Draw(t, "saves") {
			var put []contract.Record
			var gone []job.Attempt
			for n := range 6 {
				r := held(n, rapid.SampledFrom(all).Draw(t, "file"))
				switch rapid.IntRange(0, 2).Draw(t, "change") {
				case 0:
					put, want[r.Attempt] = append(put, r), r.File
				case 1:
					gone = append(gone, r.Attempt)
					delete(want, r.Attempt)
				}
			}
			if err := l.Save(put, gone, nil, false); err != nil {
				t.Fatal(err)
			}
			if rapid.IntRange(0, 3).Draw(t, "restart") == 0 {
				l = New(s)
			}
			records, _, err := l.Load()
			if err != nil {
				t.Fatal(err)
			}
			distinct := map[job.Digest]bool{}
			for _, r := range records {
				f, there := want[r.Attempt]
				if !there || (f == nil) != (r.File == nil) || f != nil && f.Digest() != r.File.Digest() {
					t.Fatalf("%s: got the file %v, want %v", r.Attempt, r.File, f)
				}
				if f != nil {
					distinct[f.Digest()] = true
				}
			}
			if n := rowsOfFiles(t, s); len(records) != len(want) || n != len(distinct) {
				t.Fatalf("got %d records and %d files on disk, want %d and %d", len(records), n, len(want), len(distinct))
			}
		}
	})
}

// 10,000 tasks of a job write its job file once.
func TestJobFileIsWrittenOnce(t *testing.T) {
	s := open(t, vfs.NewMem())
	l := New(s)
	if _, _, err := l.Load(); err != nil {
		t.Fatal(err)
	}
	f := newFile(job.Spec{Name: "x"})
	for n := range 10_000 {
		c := l.files.changes([]contract.Record{held(n, f)}, nil)
		if wrote := len(c.texts) > 0 && l.files.records[f.Digest()] == 0; wrote != (n == 0) {
			t.Fatalf("record %d: the file is written: got %v, want only with the first", n, wrote)
		}
		c.done()
	}
	if got := fmt.Sprint(slices.Collect(maps.Values(l.files.records))); got != "[10000]" {
		t.Errorf("counts: got %s, want %q", got, "[10000]")
	}
}
