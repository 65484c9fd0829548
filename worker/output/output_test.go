package output

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/job"
)

// model holds what a log must return: every byte that was ever written, by stream.
type model struct{ both, out, errs []byte }

func (m *model) add(s Stream, p []byte) {
	m.both = append(m.both, p...)
	if s == Stderr {
		m.errs = append(m.errs, p...)
	} else {
		m.out = append(m.out, p...)
	}
}

func (m *model) of(s Stream) []byte {
	switch s {
	case Both:
		return m.both
	case Stdout:
		return m.out
	case Stderr:
	}
	return m.errs
}

// check reads one stream from an offset, compares each byte with the model, and returns the cuts.
func (m *model) check(t *testing.T, dir string, s Stream, offset int64) (cuts []CutError) {
	t.Helper()
	r, err := Open(dir, s, offset)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	want := m.of(s)
	buf := make([]byte, 1+rand.IntN(5000))
	for {
		at := r.Offset()
		n, err := r.Read(buf)
		if cut, ok := errors.AsType[*CutError](err); ok {
			if n != 0 || cut.From != at || cut.To != r.Offset() || cut.To <= cut.From {
				t.Fatalf("%s: cut %+v of a read at %d, want it to start there", s, cut, at)
			}
			cuts = append(cuts, *cut)
			continue
		}
		if n > 0 && at+int64(n) > int64(len(want)) || n > 0 && !bytes.Equal(buf[:n], want[at:at+int64(n)]) {
			t.Fatalf("%s: wrong bytes at %d", s, at)
		}
		if errors.Is(err, io.EOF) {
			if at != max(offset, int64(len(want))) {
				t.Fatalf("%s from %d: ended at %d, want %d", s, offset, at, len(want))
			}
			return cuts
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func diskUse(t *testing.T, dir string) (n int64) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if info, err := e.Info(); err == nil {
			n += info.Size()
		}
	}
	return n
}

// TestLogReturnsWhatWasWritten writes random bytes to both streams, far beyond the bound, and reads from random offsets.
func TestLogReturnsWhatWasWritten(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 1))
		dir, m := t.TempDir(), &model{}
		w := NewWriter(dir, MinBound)
		total := []int{0, 100, 10_000, MinBound / 2, MinBound, 5 * MinBound}[seed%6]
		for len(m.both) < total {
			p := make([]byte, 1+rng.IntN([]int{3, 100, 20_000}[rng.IntN(3)]))
			for i := range p {
				p[i] = byte(rng.Uint32())
			}
			s := []Stream{Stdout, Stderr}[rng.IntN(2)]
			w.Write(s, p)
			m.add(s, p)
			if use := diskUse(t, dir); use > MinBound {
				t.Fatalf("seed %d: %d bytes on disk, want at most %v", seed, use, MinBound)
			}
		}
		for _, s := range []Stream{Both, Stdout, Stderr} {
			size := int64(len(m.of(s)))
			cuts := m.check(t, dir, s, 0)
			if len(cuts) > 1 || (len(cuts) == 0) != (total <= MinBound/2) && s == Both && total != MinBound {
				t.Errorf("seed %d: %s: cuts %v of %d bytes, want at most one, only beyond the bound", seed, s, cuts, size)
			}
			for range 20 {
				m.check(t, dir, s, rng.Int64N(size+10)-rng.Int64N(size+10))
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestHeadAndTailOfALongLogStay(t *testing.T) {
	dir, m := t.TempDir(), &model{}
	w := NewWriter(dir, MinBound)
	defer w.Close()
	for i := range 200_000 {
		line := fmt.Appendf(nil, "line %d\n", i)
		w.Write(Stdout, line)
		m.add(Stdout, line)
	}
	cuts := m.check(t, dir, Both, 0)
	if len(cuts) != 1 || cuts[0].From != MinBound/4 || int64(len(m.both))-cuts[0].To < MinBound*5/8 {
		t.Errorf("cuts %v of %d bytes, want one from a quarter of the bound on, with a long tail", cuts, len(m.both))
	}
}

// TestLogIsReadWhileItIsCut reads a log while its writer cuts it.
func TestLogIsReadWhileItIsCut(t *testing.T) {
	dir := t.TempDir()
	var m model
	rng := rand.New(rand.NewPCG(3, 1))
	type chunk struct {
		s Stream
		p []byte
	}
	var chunks []chunk
	for range 3000 {
		s := []Stream{Stdout, Stderr}[rng.IntN(2)]
		p := bytes.Repeat([]byte{byte(rng.Uint32())}, 1+rng.IntN(1000))
		chunks = append(chunks, chunk{s, p})
		m.add(s, p)
	}
	ended := make(chan struct{})
	var follows Follows
	if err := follows.Open(); err != nil {
		t.Fatal(err)
	}
	go follows.Run()
	defer follows.Close()
	errs := make(chan error, 3)
	for _, s := range []Stream{Both, Stdout, Stderr} {
		f, err := follows.Follow(t.Context(), dir, s, 0, ended)
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			defer f.Close()
			errs <- readAgainst(f, m.of(s))
		}()
	}
	w := NewWriter(dir, MinBound)
	for _, c := range chunks {
		w.Write(c.s, c.p)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	close(ended)
	for range 3 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
}

func readAgainst(f *Follower, want []byte) error {
	buf := make([]byte, 700)
	for {
		at := f.Offset()
		n, err := f.Read(buf)
		if !bytes.Equal(buf[:n], want[at:at+int64(n)]) {
			return fmt.Errorf("wrong bytes at %d", at)
		}
		if _, cut := errors.AsType[*CutError](err); cut {
			continue
		}
		if errors.Is(err, io.EOF) && at == int64(len(want)) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("at %d of %d: %w", at, len(want), err)
		}
	}
}

func TestFollowerWaitsForOutput(t *testing.T) {
	dir := t.TempDir()
	var follows Follows
	if _, err := follows.Follow(t.Context(), dir, Both, 0, make(chan struct{})); !errors.Is(err, ErrClosed) {
		t.Errorf("before Open: %v, want ErrClosed", err)
	}
	if err := follows.Open(); err != nil {
		t.Fatal(err)
	}
	defer follows.Close()
	go follows.Run()
	ended := make(chan struct{})
	f, err := follows.Follow(t.Context(), dir, Stderr, 4, ended)
	if err != nil {
		t.Fatal(err)
	}
	w := NewWriter(dir, MinBound)
	w.Write(Stdout, []byte("before"))
	w.Write(Stderr, []byte("skip"))
	for _, want := range []string{"one", "two"} {
		written := make(chan struct{})
		time.AfterFunc(5*time.Millisecond, func() { // usually the read waits by then
			defer close(written)
			w.Write(Stdout, []byte("not this"))
			w.Write(Stderr, []byte(want))
		})
		b := make([]byte, len(want))
		if _, err := io.ReadFull(f, b); err != nil || string(b) != want {
			t.Fatalf("read %q, %v, want no error and %v", b, err, want)
		}
		<-written
	}
	close(ended)
	if n, err := f.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
		t.Errorf("after the end: %d, %v, want 0 and io.EOF", n, err)
	}
	f.Close()
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := follows.Follow(t.Context(), filepath.Join(dir, "none"), Both, 0, nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("log of nothing: %v, want os.ErrNotExist", err)
	}
}

func TestTailIsTheEndOfTheLog(t *testing.T) {
	dir := t.TempDir()
	w := NewWriter(dir, MinBound)
	defer w.Close()
	if got := w.Tail(); got != "" {
		t.Errorf("tail of nothing: %q, want none", got)
	}
	var want string
	write := func(s string) {
		w.Write(Stderr, []byte(s))
		want += s
		want = want[max(0, len(want)-job.TailBytes):]
	}
	write("first words\n")
	for i := range 400 { // enough to cut each stream many times
		w.Write(Stdout, bytes.Repeat([]byte{'x'}, MinBound/16))
		if i%16 == 0 {
			write(fmt.Sprintf("error %d\n", i) + strings.Repeat("y", i*2))
		}
		if got := w.Tail(); got != want {
			t.Fatalf("after %d: tail of %d bytes %.40q, want %d %.40q", i, len(got), got, len(want), want)
		}
	}
	w.Write(Stderr, []byte(strings.Repeat("ö", job.TailBytes)+"\xff"))
	if got := w.Tail(); len(got) != job.TailBytes-1 || !strings.HasSuffix(got, "ö?") {
		t.Errorf("tail of %d bytes ends in %q, want one byte less than the bound and a cut character", len(got), got[len(got)-4:])
	}
}

// TestFileExistsOnlyForAStreamWithOutput checks that a task that writes nothing leaves no file, and that a task that
// writes to one stream leaves one file.
func TestFileExistsOnlyForAStreamWithOutput(t *testing.T) {
	for _, tt := range []struct {
		streams []Stream
		files   string
	}{
		{nil, ""},
		{[]Stream{Stdout, Stdout}, "out-0-0"},
		{[]Stream{Stderr, Stderr}, "err-0-0"},
		{[]Stream{Stderr, Stdout}, "err-0-0 runs-0"},
	} {
		dir := t.TempDir()
		w := NewWriter(dir, MinBound)
		for _, s := range tt.streams {
			w.Write(s, []byte("x"))
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, e := range entries {
			names = append(names, e.Name())
		}
		if got := strings.Join(names, " "); got != tt.files {
			t.Errorf("%v: files %q, want %q", tt.streams, got, tt.files)
		}
	}
}

// TestFullDiskIsNotedInTheLog checks that the log says how much was lost while it could not be written.
func TestFullDiskIsNotedInTheLog(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "later")
	w := NewWriter(dir, MinBound)
	w.Write(Stdout, []byte("lost"))
	w.Write(Stderr, []byte("lost, too"))
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	w.Write(Stdout, []byte("kept\n"))
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	got, err := Rest(dir, Both, 0)
	if want := "\n--- muster: 13 bytes lost here: no such file or directory ---\nkept\n"; err != nil || string(got) != want {
		t.Errorf("log %q, %v, want %q", got, err, want)
	}
}

func BenchmarkWrite(b *testing.B) {
	for _, size := range []int{100, 4 << 10, 64 << 10} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			w := NewWriter(b.TempDir(), 256<<20)
			p := make([]byte, size)
			b.SetBytes(int64(size))
			for b.Loop() {
				w.Write(Stdout, p)
			}
			if err := w.Close(); err != nil {
				b.Fatal(err)
			}
		})
	}
}

// TestEndedLogIsNotWatched checks that the directory of a log that has ended is not watched. So a later task may take it
// without disturbing the followers of the first.
func TestEndedLogIsNotWatched(t *testing.T) {
	t.Parallel()
	var f Follows
	if err := f.Open(); err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	dir := t.TempDir()
	ended := make(chan struct{})
	early, err := f.Follow(t.Context(), dir, Both, 0, ended)
	if err != nil {
		t.Fatal(err)
	}
	if !f.Followed(dir) {
		t.Error("a log that may grow is not watched")
	}
	close(ended)
	late, err := f.Follow(t.Context(), dir, Both, 3, ended)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := late.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("read after the end: %v, want io.EOF", err)
	}
	if err := early.Close(); err != nil {
		t.Fatal(err)
	}
	if f.Followed(dir) {
		t.Error("the follower that came after the end watches the directory")
	}
	if err := late.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestReaderOfADirectoryThatALaterTaskTook checks that the reader of an empty log sees its end when a later task has
// taken the directory, also if that task has written something.
func TestReaderOfADirectoryThatALaterTaskTook(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "old")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	r, err := Open(dir, Both, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if err := os.Rename(dir, dir+"-new"); err != nil {
		t.Fatal(err)
	}
	w := NewWriter(dir+"-new", MinBound)
	w.Write(Stdout, []byte("of another task"))
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(r); len(b) > 0 || err != nil {
		t.Errorf("read %q, %v, want none and no error", b, err)
	}
}
