package runner

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker/runner/proc"
	"github.com/musterhq/muster/worker/runner/protocol"
)

// deadTask returns a task whose end is not saved yet.
func deadTask(n int) *task {
	a := job.Attempt{Job: job.NewID(7, 9), Task: n, N: 1}
	t := &task{attempt: a, name: a.String()}
	t.record = protocol.Record{Attempt: t.name, PID: 7, Exit: job.Exit{State: job.Failed, Code: n % 100, Began: time.Unix(1, 0).UTC(), Ended: time.Unix(2, 0).UTC()}}
	return t
}

func saved(t *testing.T, dir protocol.Dir) map[string]protocol.End {
	t.Helper()
	ends, err := dir.Ends()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]protocol.End{}
	for _, e := range ends {
		all[e.Attempt] = e
	}
	return all
}

func newJournal(t *testing.T, dir protocol.Dir, generation int) *journal {
	t.Helper()
	j, err := openJournal(dir, generation)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(j.end)
	return j
}

func TestJournalKeepsAllEnds(t *testing.T) {
	t.Parallel()
	dir := protocol.Dir(t.TempDir())
	if err := dir.Make(); err != nil {
		t.Fatal(err)
	}
	n, rounds := 0, [][]*task{}
	for _, size := range []int{1, 2000, 1, 2000} {
		var round []*task
		for range size {
			round = append(round, deadTask(n))
			n++
		}
		rounds = append(rounds, round)
	}
	first, second := newJournal(t, dir, 1), newJournal(t, dir, 2)
	for i, round := range rounds {
		j := first
		if i == 3 {
			j = second
		}
		if err := j.save(round); err != nil {
			t.Fatal(err)
		}
	}
	all := saved(t, dir)
	if len(all) != n {
		t.Fatalf("%d ends read, want the %d saved ones", len(all), n)
	}
	for _, round := range rounds {
		for _, k := range round {
			if e := all[k.name]; e.Record != k.record || e.Segment.Number != k.segment {
				t.Fatalf("read %+v, want %+v in segment %d", e, k.record, k.segment)
			}
		}
	}
	segments, err := dir.Segments()
	if want := "[{1 1} {1 2} {2 1}]"; err != nil || fmt.Sprint(segments) != want {
		t.Errorf("segments %v, %v; want %s", segments, err, want)
	}
}

// TestOlderSegmentsStayUnchanged opens the journal of a generation that already has segments. These stay unchanged.
func TestOlderSegmentsStayUnchanged(t *testing.T) {
	t.Parallel()
	dir := protocol.Dir(t.TempDir())
	for n := range 3 {
		j := newJournal(t, dir, 1)
		if err := j.save([]*task{deadTask(n)}); err != nil {
			t.Fatal(err)
		}
		if j.at.Number != n+1 {
			t.Errorf("runner %d writes segment %d, want %v", n, j.at.Number, n+1)
		}
	}
	if all := saved(t, dir); len(all) != 3 {
		t.Errorf("%d ends, want 3", len(all))
	}
}

func TestTruncatedJournalIsRead(t *testing.T) {
	t.Parallel()
	for name, tail := range map[string]string{
		"half a line": `{"attempt":"x.5.1","exit":{"sta`,
		"zeros":       strings.Repeat("\x00", 100),
		"long":        strings.Repeat("x", proc.MaxSmallFile+1),
		"no end":      fmt.Sprintf(`{"attempt":%q,"exit":{"state":"RUNNING"}}`, deadTask(5).name),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := protocol.Dir(t.TempDir())
			j := newJournal(t, dir, 1)
			if err := j.save([]*task{deadTask(1)}); err != nil {
				t.Fatal(err)
			}
			if _, err := j.file.WriteString(tail); err != nil {
				t.Fatal(err)
			}
			if all := saved(t, dir); len(all) != 1 {
				t.Errorf("%d ends, want only the complete one", len(all))
			}
			if _, err := dir.FindEnd(deadTask(5).attempt); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("end that was cut off: %v, want os.ErrNotExist", err)
			}
			if _, err := j.file.WriteString("\n{}\n"); err != nil {
				t.Fatal(err)
			}
			if _, err := dir.Ends(); err == nil && name != "long" {
				t.Error("a broken line in the middle is not an error")
			}
		})
	}
}

// TestEndsAreReportedWithoutADirectory removes the directory. Ends are still reported meanwhile. Once the directory exists
// again, ends are saved in it, with their reserved space.
func TestEndsAreReportedWithoutADirectory(t *testing.T) {
	t.Parallel()
	dir := protocol.Dir(filepath.Join(t.TempDir(), "run"))
	if err := dir.Make(); err != nil {
		t.Fatal(err)
	}
	j := newJournal(t, dir, 1)
	if err := j.save([]*task{deadTask(1)}); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(string(dir)); err != nil {
		t.Fatal(err)
	}
	if err := j.save([]*task{deadTask(2)}); err != nil {
		t.Error(err)
	}
	if err := dir.Make(); err != nil {
		t.Fatal(err)
	}
	for n := 3; n < 5; n++ {
		if err := j.save([]*task{deadTask(n)}); err != nil {
			t.Error(err)
		}
	}
	if all := saved(t, dir); len(all) != 2 || !j.room.has() {
		t.Errorf("%d ends are saved; space: %v, want 2 and true", len(all), j.room.has())
	}
	if is, err := os.Stat(protocol.Room(dir, 1)); err != nil || is.Size() != 0 {
		t.Errorf("the reserved space is missing: %v", err)
	}
}

// TestFailedWriteStartsANewSegment fails one write. The end that was not saved is not read back, and the next write
// goes to a new file.
func TestFailedWriteStartsANewSegment(t *testing.T) {
	t.Parallel()
	dir := protocol.Dir(t.TempDir())
	j := newJournal(t, dir, 1)
	if err := j.save([]*task{deadTask(1)}); err != nil {
		t.Fatal(err)
	}
	_ = j.file.Close()
	round := []*task{deadTask(2)}
	if err := j.save(round); err == nil {
		t.Fatal("saved to a closed file")
	}
	if err := j.save(round); err != nil {
		t.Fatal(err)
	}
	if all := saved(t, dir); len(all) != 2 || all[round[0].name].Segment.Number != 2 {
		t.Errorf("%+v, want 2 of them and [round[0].name].Segment.Number 2", all)
	}
}

// TestChangedByteIsDetected changes each byte of a segment in turn: the ends are read as they were saved, or the segment
// is reported as damaged.
func TestChangedByteIsDetected(t *testing.T) {
	t.Parallel()
	dir := protocol.Dir(t.TempDir())
	j := newJournal(t, dir, 1)
	if err := j.save([]*task{deadTask(1), deadTask(2), deadTask(3)}); err != nil {
		t.Fatal(err)
	}
	want, path := saved(t, dir), dir.Journal(j.at)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for at := range text {
		changed := bytes.Clone(text)
		changed[at] ^= 1 << (at % 7)
		if err := os.WriteFile(path, changed, 0o600); err != nil {
			t.Fatal(err)
		}
		ends, err := dir.Ends()
		if errors.Is(err, protocol.ErrDamaged) {
			continue
		}
		if err != nil || len(ends) != len(want) {
			t.Fatalf("byte %d of %q: %d ends, %v, want no error and %v", at, text, len(ends), err, len(want))
		}
		for _, e := range ends {
			if e != want[e.Attempt] {
				t.Fatalf("byte %d of %q: read %+v, want %v", at, text, e, want[e.Attempt])
			}
		}
	}
}
