package view

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/musterhq/muster/job"
)

func texts(lines []Line) (all []string) {
	for _, l := range lines {
		all = append(all, string(l.Text))
	}
	return all
}

// A reader gets each object once, in its newest version, however many versions there were.
func TestReaderOfALogGetsTheNewestVersions(t *testing.T) {
	l := NewLog()
	for i := range 1000 {
		l.Set("a", fmt.Appendf(nil, "a%d", i))
		l.Set("b", []byte("b"))
	}
	lines, at, anew := l.Since(0, 10)
	if got := texts(lines); !slices.Equal(got, []string{"b", "a999"}) || anew {
		t.Fatalf("got %v, anew %t, want b and a999, false", got, anew)
	}
	changed := l.Changed()
	if l.Set("b", []byte("b")); len(l.lines) != 2 {
		t.Errorf("got %d objects, want 2", len(l.lines))
	}
	select {
	case <-changed:
		t.Error("the same line again is a change")
	default:
	}
	l.Remove("a", []byte("-a"))
	l.Remove("c", []byte("-c")) // which never existed
	<-changed
	if lines, _, _ = l.Since(at, 10); !slices.Equal(texts(lines), []string{"-a"}) {
		t.Errorf("after %d: got %v, want -a", at, texts(lines))
	}
	if lines, _, _ = l.Since(0, 10); !slices.Equal(texts(lines), []string{"b"}) {
		t.Errorf("a new reader: got %v, want b", texts(lines))
	}
}

// A reader gets everything in pieces, also if it changes meanwhile, and a reader that has missed removals begins again.
func TestReaderOfALogGetsEverythingInPieces(t *testing.T) {
	l := NewLog()
	const objects = 3 * maxGone
	for i := range objects {
		l.Set(fmt.Sprint(i), fmt.Appendf(nil, "%d", i))
	}
	read, at := map[string]bool{}, uint64(0)
	for piece := 0; ; piece++ {
		lines, next, anew := l.Since(at, 100)
		if anew {
			t.Fatal("a reader begins again without a removal")
		}
		if at = next; len(lines) == 0 {
			break
		}
		for _, x := range lines {
			read[x.Key] = true
		}
		if piece == 3 {
			l.Set("7", []byte("seven"))
		}
	}
	if len(read) != objects {
		t.Errorf("got %d objects, want %d", len(read), objects)
	}
	for i := range maxGone {
		l.Remove(fmt.Sprint(i), []byte("-"))
	}
	if lines, _, anew := l.Since(at, objects); anew || len(lines) != maxGone {
		t.Errorf("got %d removals, anew %t, want as many as are kept, false", len(lines), anew)
	}
	for i := range maxGone {
		l.Remove(fmt.Sprint(maxGone+i), []byte("-"))
	}
	if _, next, anew := l.Since(at, 10); !anew || next != 0 {
		t.Error("removals are forgotten, and the reader does not begin again")
	}
	if n := len(l.lines); n != objects-maxGone {
		t.Errorf("got %d lines, want %v", n, objects-maxGone)
	}
	if l.Set("0", []byte("back")); l.gone.Len() != maxGone {
		t.Errorf("got %d removals, want %v", l.gone.Len(), maxGone)
	}
}

func TestRingReportsMissedEvents(t *testing.T) {
	r := NewRing[int](100, 1000)
	begun := time.Now()
	for i := range 50 {
		r.Add(begun.Add(time.Duration(i)*time.Second), func(n uint64) (int, int) { return int(n), 10 })
	}
	if events, next, missed := r.After(48, 10); !slices.Equal(events, []int{49, 50}) || next != 50 || missed {
		t.Errorf("got %v %d %t, want 49 and 50, 50, false", events, next, missed)
	}
	if events, next, _ := r.After(10, 3); !slices.Equal(events, []int{11, 12, 13}) || next != 13 {
		t.Errorf("got %v %d, want 11 to 13, 13", events, next)
	}
	if n, missed := r.Before(begun.Add(40*time.Second), begun); n != 40 || missed {
		t.Errorf("since 40 s: got %d, missed %t, want 40, false", n, missed)
	}
	if n, missed := r.Before(begun.Add(-time.Second), begun); n != 0 || !missed {
		t.Errorf("since before: got %d, missed %t, want 0, true", n, missed)
	}
	for i := range 200 {
		r.Add(begun.Add(time.Minute), func(n uint64) (int, int) { return i, 10 })
	}
	if events, next, missed := r.After(50, 1000); !missed || len(events) != 100 || next != 250 {
		t.Errorf("got %d events to %d, missed %t, want 100 to 250, true", len(events), next, missed)
	}
	if _, next, missed := r.After(999, 10); !missed || next != 250 {
		t.Errorf("a number of another ring: got %d, missed %t, want 250, true", next, missed)
	}
	r.Add(begun, func(uint64) (int, int) { return -1, 5000 }) // more than all others
	if events, _, _ := r.After(249, 10); !slices.Equal(events, []int{-1}) {
		t.Errorf("got %v, want -1", events)
	}
}

func row(n int, s job.State) *Row {
	return &Row{ID: job.NewID(7, uint64(n)), State: s, User: "amy", Name: "n", Submitted: time.Unix(int64(n), 0), Packed: make([]byte, 100)}
}

// A shelf keeps the newest jobs, and says from which position on some may be missing.
func TestShelfKeepsTheNewestJobs(t *testing.T) {
	s := NewShelf()
	for i := range MaxEnded + slack {
		s.Put(row(1000+i, job.Succeeded))
	}
	s.Put(row(1, job.Running))
	if from := s.From(nil); from.ID != "" {
		t.Fatalf("got %v, want that nothing is missing", from)
	}
	dropped := s.Put(row(5000, job.Failed))
	if len(dropped) != slack+1 || len(s.rows) != MaxEnded+1 {
		t.Errorf("got %d dropped and %d kept, want %d and %d", len(dropped), len(s.rows), slack+1, MaxEnded+1)
	}
	if from := s.From([]job.State{job.Failed}); from != dropped[0].Position() || s.From([]job.State{job.Running}).ID != "" {
		t.Errorf("missing from %v, want %v", from, dropped[0].Position())
	}
	if again := s.Put(row(1000, job.Succeeded)); len(again) != 1 || s.Get(again[0].ID) != nil {
		t.Error("a job older than all that are kept is kept")
	}
	if d := s.Put(row(1, job.Succeeded)); len(d) != 1 || s.Get(d[0].ID) != nil { // its end
		t.Errorf("got %d dropped, want 1", len(d))
	}
	var bytes int64
	s.All(func(r *Row) { bytes += r.Size() })
	if s.Size() != bytes {
		t.Errorf("got %d bytes, want %d", s.Size(), bytes)
	}
	gone := s.Retain(map[job.ID]bool{job.NewID(7, 5000): true})
	if len(gone) != MaxEnded-1 || len(s.rows) != 1 || s.kinds[1].jobs != 1 {
		t.Errorf("got %d removed and %d left, want %d and 1", len(gone), len(s.rows), MaxEnded-1)
	}
	s.Refuse(row(6000, job.Failed))
	if from := s.From(nil); from.ID != job.NewID(7, 6000) {
		t.Errorf("after a refusal: missing from %v, want %v", from, job.NewID(7, 6000))
	}
}

// A row matches a filter if and only if the whole job does.
func TestRowMatchesAsItsJobDoes(t *testing.T) {
	r := row(3, job.Running)
	j := job.Job{ID: r.ID, User: r.User, Submitted: r.Submitted, Tasks: []job.Task{{State: job.Running}}}
	j.Spec.Name = r.Name
	j.Counts, j.Ends = job.CountsOf(j.Tasks), job.EndsOf(j.Tasks)
	for i, q := range []job.Query{
		{},
		{User: "amy"},
		{User: "ben"},
		{Name: "n*"},
		{Name: "m"},
		{Name: "["},
		{Prefix: string(r.ID[:4])},
		{Prefix: "x"},
		{Ended: true},
		{States: []job.State{job.Running}},
		{States: []job.State{job.Failed}},
		{IDs: []job.ID{r.ID}},
		{IDs: []job.ID{"x"}},
		{After: r.Position()},
		{After: row(4, job.Running).Position()},
		{After: row(2, job.Running).Position()},
	} {
		if got, want := r.Match(&q), q.Match(&j); got != want {
			t.Errorf("filter %d: got %t, want %t", i, got, want)
		}
	}
}
