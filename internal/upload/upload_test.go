package upload

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

func newStore(t testing.TB, cfg Config) *Store {
	t.Helper()
	cfg.Dir = filepath.Join(t.TempDir(), "blobs")
	if cfg.Most == 0 {
		cfg.Most = 1 << 30
	}
	return NewStore(cfg, slog.New(slog.DiscardHandler))
}

func random(seed, n int) []byte {
	b := make([]byte, n)
	rng := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)})
	_, _ = rng.Read(b)
	return b
}

func write(t testing.TB, path string, data []byte, mode fs.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, data, mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
}

// direct is a Target that is a store in the same process.
type direct struct {
	s      *Store
	broken atomic.Int64 // if set, PutChunks fails when it has reached 0
}

func (d *direct) MissingChunks(_ context.Context, refs []Ref) ([]Ref, error) {
	return d.s.Missing(refs)
}

func (d *direct) PutChunks(_ context.Context, body []byte) error {
	if d.broken.Load() > 0 && d.broken.Add(-1) == 0 {
		return errBroken
	}
	return d.s.PutAll(bytes.NewReader(body), "ann")
}

func (d *direct) PutTree(_ context.Context, _ Hash, text []byte) error {
	_, _, err := d.s.PutTree(text, "ann")
	return err
}

var errBroken = errors.New("the connection broke")

// holder is a Holder that is a store in the same process.
type holder struct{ s *Store }

func (holder) String() string { return "amy" }

func (h holder) Tree(_ context.Context, x Hash) ([]byte, error) { return h.s.TreeText(x) }

func (h holder) Chunks(_ context.Context, refs []Ref, take func([]byte) error) error {
	for _, r := range refs {
		data, err := h.s.Append(nil, r)
		if errors.Is(err, ErrMissing) {
			continue
		}
		if err != nil {
			return err
		}
		if err := take(data); err != nil {
			return err
		}
	}
	return nil
}

// Append reads one chunk.
func (s *Store) Append(buf []byte, r Ref) ([]byte, error) {
	from := s.Reader()
	defer from.Close()
	return from.Append(buf, r)
}

func send(t *testing.T, s *Store, dir string, paths ...string) (Hash, Progress) {
	t.Helper()
	sources, err := Scan(dir, paths, 1<<40)
	if err != nil {
		t.Fatal(err)
	}
	h, p, err := Send(t.Context(), &direct{s: s}, sources, nil)
	if err != nil {
		t.Fatal(err)
	}
	return h, p
}

// project writes a small project: a large file, a script, an empty file, a link.
func project(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "data/big"), random(1, 3<<20), 0o600)
	write(t, filepath.Join(dir, "train.py"), []byte("print(1)\n"), 0o755)
	write(t, filepath.Join(dir, "empty"), nil, 0o644)
	if err := os.Mkdir(filepath.Join(dir, "ro"), 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "ro/x"), []byte("x"), 0o444)
	if err := os.Symlink("../train.py", filepath.Join(dir, "ro/link")); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(dir, "ro"), 0o555); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Chmod(filepath.Join(dir, "ro"), 0o755) })
	return dir
}

func TestSentTreeIsFetchedAndUnpacked(t *testing.T) {
	dir := project(t)
	here, there := newStore(t, Config{}), newStore(t, Config{})
	h, p := send(t, here, dir, ".")
	if p.Done != p.Total || p.Sent != p.Total {
		t.Errorf("the first time: got %+v, want everything sent", p)
	}
	if again, p := send(t, here, dir, "."); again != h || p.Sent != 0 {
		t.Errorf("the second time: got the same tree %v, %+v, want true and nothing sent", again == h, p)
	}
	fetcher := NewFetcher(there)
	tree, came, err := fetcher.Fetch(t.Context(), h, []Holder{holder{newStore(t, Config{})}, holder{here}})
	if err != nil || came != p.Total {
		t.Fatalf("fetched %d bytes, %v, want %d", came, err, p.Total)
	}
	if _, came, err := fetcher.Fetch(t.Context(), h, nil); err != nil || came != 0 {
		t.Errorf("fetched again: got %d bytes, %v, want 0", came, err)
	}
	out := t.TempDir()
	t.Cleanup(func() { _ = os.Chmod(filepath.Join(out, "ro"), 0o755) })
	if err := there.Unpack(t.Context(), tree, out, nil); err != nil {
		t.Fatal(err)
	}
	var seen []string
	err = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		rel, _ := filepath.Rel(dir, path)
		seen = append(seen, rel)
		want, _ := os.Lstat(path)
		got, err := os.Lstat(filepath.Join(out, rel))
		if err != nil {
			return err
		}
		if got.Mode() != want.Mode() || (want.Mode().IsRegular() && !got.ModTime().Equal(want.ModTime())) {
			t.Errorf("%s: got %v at %v, want %v at %v", rel, got.Mode(), got.ModTime(), want.Mode(), want.ModTime())
		}
		if want.Mode().IsRegular() {
			a, _ := os.ReadFile(path)
			b, _ := os.ReadFile(filepath.Join(out, rel))
			if !bytes.Equal(a, b) {
				t.Errorf("%s: got another content", rel)
			}
		}
		return nil
	})
	if err != nil || len(seen) != 7 {
		t.Errorf("got %d entries, %v, want 7", len(seen), err)
	}
	// The copy is private: a task that changes it does not change the store.
	write(t, filepath.Join(out, "train.py"), []byte("corrupted"), 0o755)
	if _, came, err := fetcher.Fetch(t.Context(), h, nil); err != nil || came != 0 {
		t.Errorf("a task changed the store: got %d bytes fetched, %v, want 0", came, err)
	}
}

func TestFetchOfAMissingTreeFails(t *testing.T) {
	_, _, err := NewFetcher(newStore(t, Config{})).Fetch(t.Context(), Sum([]byte("x")), []Holder{holder{newStore(t, Config{})}})
	if !errors.Is(err, ErrMissing) {
		t.Errorf("got %v, want ErrMissing", err)
	}
}

func TestSendResumesAfterABreak(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "big"), random(2, 40<<20), 0o600)
	sources, err := Scan(dir, []string{"."}, 1<<40)
	if err != nil {
		t.Fatal(err)
	}
	target := &direct{s: newStore(t, Config{})}
	target.broken.Store(4)
	_, first, err := Send(t.Context(), target, sources, nil)
	if !errors.Is(err, errBroken) || first.Sent == 0 {
		t.Fatalf("got %+v, %v, want errBroken after some bytes", first, err)
	}
	_, second, err := Send(t.Context(), target, sources, nil)
	if err != nil || second.Sent+first.Sent != second.Total {
		t.Errorf("sent %d, then %d, want %d in all: %v", first.Sent, second.Sent, second.Total, err)
	}
}

func TestSmallChangeSendsLittle(t *testing.T) {
	dir := t.TempDir()
	data := random(3, 8<<20)
	write(t, filepath.Join(dir, "big"), data, 0o600)
	s := newStore(t, Config{})
	send(t, s, dir, ".")
	write(t, filepath.Join(dir, "big"), slices.Concat(data[:1<<20], []byte("a few bytes more"), data[1<<20:]), 0o600)
	if _, p := send(t, s, dir, "."); p.Sent == 0 || p.Sent > 2*MaxChunk {
		t.Errorf("sent %d of %d bytes, want at most two chunks", p.Sent, p.Total)
	}
}

func TestDamagedChunkIsSentAgain(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "f"), []byte("content"), 0o600)
	s := newStore(t, Config{})
	send(t, s, dir, ".")
	ref := Ref{Hash: Sum([]byte("content")), Size: 7}
	pack := s.packs.index[ref.Hash].pack
	pack.written = pack.written.Add(-trustFor) // so long ago that reads may come from the disk
	corrupt(t, s.packs.path(pack.name), 1, '0')
	if _, err := s.Append(nil, ref); !errors.Is(err, ErrMissing) {
		t.Errorf("a damaged chunk: got %v, want ErrMissing", err)
	}
	if _, p := send(t, s, dir, "."); p.Sent != 7 {
		t.Errorf("sent %d bytes, want 7", p.Sent)
	}
	// The damaged chunk is still on the disk, but after a restart the other copy is found.
	if data, err := NewStore(s.cfg, s.log).Append([]byte("the "), ref); string(data) != "the content" || err != nil {
		t.Errorf("got %q, %v, want the content", data, err)
	}
}

// corrupt changes one byte of a file.
func corrupt(t *testing.T, path string, at int64, b byte) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte{b}, at); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestScanListsFilesWithinTheBound(t *testing.T) {
	dir := t.TempDir()
	for _, f := range []string{"a/b/c.txt", "a/b/d.o", "a/keep.o", "a/build/x", "log", "a/.musterignore", ".musterignore"} {
		write(t, filepath.Join(dir, f), []byte(f), 0o644)
	}
	write(t, filepath.Join(dir, ".musterignore"), []byte("*.o\n# a comment\nbuild/\n/log\n"), 0o644)
	write(t, filepath.Join(dir, "a/.musterignore"), []byte("!keep.o\n"), 0o644)
	other := t.TempDir()
	write(t, filepath.Join(other, "far/y"), []byte("y"), 0o644)
	for _, c := range []struct {
		name  string
		dir   string
		paths []string
		want  string
	}{
		{"the directory", dir, []string{"."}, ".musterignore a a/.musterignore a/b a/b/c.txt a/keep.o"},
		{"a path below keeps its parent directories", dir, []string{"a/b"}, "a a/b a/b/c.txt a/b/d.o"},
		{"from a directory below", filepath.Join(dir, "a"), []string{"b/c.txt", "."}, ".musterignore b b/c.txt b/d.o build build/x keep.o"},
		{"a path outside is named by its last element", dir, []string{filepath.Join(other, "far"), "log"}, "far far/y log"},
	} {
		t.Run(c.name, func(t *testing.T) {
			all, err := Scan(c.dir, c.paths, 1<<20)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, s := range all {
				got = append(got, s.Path)
			}
			if text := strings.Join(got, " "); text != c.want {
				t.Errorf("got %s\nwant %s", text, c.want)
			}
		})
	}
	if _, err := Scan(dir, []string{"."}, 20); !errors.Is(err, ErrTooLarge) || !strings.Contains(err.Error(), "--upload-limit") {
		t.Errorf("more than the bound: got %v, want ErrTooLarge with the option", err)
	}
	if _, err := Scan(dir, []string{"nothing"}, 20); err == nil || !strings.Contains(err.Error(), "nothing") {
		t.Errorf("a missing file: got %v, want an error with its name", err)
	}
	for _, target := range []string{"/etc/passwd", "../x", "a/../../x"} {
		link := filepath.Join(dir, "link")
		if err := os.Symlink(target, link); err != nil {
			t.Fatal(err)
		}
		if _, err := Scan(dir, []string{"."}, 1<<20); err == nil || !strings.Contains(err.Error(), "outside") || !strings.Contains(err.Error(), target) {
			t.Errorf("link to %s: got %v, want an error: outside", target, err)
		}
		_ = os.Remove(link)
	}
}

func TestLinksMustStayInside(t *testing.T) {
	for _, c := range []struct {
		at, target string
		ok         bool
	}{
		{"l", "x", true},
		{"a/l", "../x", true},
		{"a/l", "..", true},
		{"a/b/l", "./../c//d", true},
		{"l", "..", false},
		{"a/l", "../..", false},
		{"a/l", "/etc", false},
		{"a/l", "", false},
		{"a/b/l", "c/../../x", false}, // c may itself be a link upwards
		{"l", "a/..", false},
	} {
		if err := CheckLink(c.at, c.target); (err == nil) != c.ok {
			t.Errorf("link %s to %q: got %v, want accepted %v", c.at, c.target, err, c.ok)
		}
	}
}

func TestParseTreeRefusesInvalidTrees(t *testing.T) {
	for name, text := range map[string]string{
		"escape":       `{"entries":[{"path":"../x","kind":"dir"}]}`,
		"absolute":     `{"entries":[{"path":"/x","kind":"dir"}]}`,
		"dot":          `{"entries":[{"path":".","kind":"dir"}]}`,
		"zero byte":    `{"entries":[{"path":"a\u0000","kind":"dir"}]}`,
		"no parent":    `{"entries":[{"path":"a/b","kind":"dir"}]}`,
		"below a link": `{"entries":[{"path":"a","kind":"link","target":"b"},{"path":"a/b","kind":"dir"}]}`,
		"twice":        `{"entries":[{"path":"a","kind":"dir"},{"path":"a","kind":"dir"}]}`,
		"order":        `{"entries":[{"path":"b","kind":"dir"},{"path":"a","kind":"dir"}]}`,
		"setuid":       `{"entries":[{"path":"a","kind":"dir","mode":2541}]}`,
		"kind":         `{"entries":[{"path":"a","kind":"fifo"}]}`,
		"link out":     `{"entries":[{"path":"a","kind":"link","target":"../b"}]}`,
		"size":         `{"entries":[{"path":"a","kind":"file","size":5}]}`,
		"negative":     `{"entries":[{"path":"a","kind":"file","size":-5}]}`,
		"chunk":        `{"entries":[{"path":"a","kind":"file","size":5,"chunks":"AAAA"}]}`,
		"field":        `{"entries":[],"more":1}`,
		"two":          `{"entries":[]}{}`,
		"dir size":     `{"entries":[{"path":"a","kind":"dir","size":5}]}`,
	} {
		if _, err := ParseTree([]byte(text)); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: got %v, want ErrInvalid", name, err)
		}
	}
}

func age(t *testing.T, s *Store, by time.Duration) {
	t.Helper()
	at := time.Now().Add(-by)
	err := filepath.WalkDir(s.cfg.Dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		return os.Chtimes(path, at, at)
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range s.packs.all {
		p.used, p.written = p.used.Add(-by), p.written.Add(-by)
	}
}

func TestPruneRemovesOldTrees(t *testing.T) {
	var live Hash
	s := newStore(t, Config{Most: 4 << 20, Live: func() (map[Hash]bool, error) { return map[Hash]bool{live: true}, nil }})
	upload := func(seed int) (Hash, error) {
		dir := t.TempDir()
		write(t, filepath.Join(dir, "f"), random(seed, 1800<<10), 0o600)
		sources, err := Scan(dir, []string{"."}, 1<<40)
		if err != nil {
			t.Fatal(err)
		}
		h, _, err := Send(t.Context(), &direct{s: s}, sources, nil)
		return h, err
	}
	needed, err := upload(1)
	if err != nil {
		t.Fatal(err)
	}
	live = needed
	age(t, s, 3*minAge)
	old, err := upload(2)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := upload(3); !errors.Is(err, ErrFull) {
		t.Errorf("all trees are live or young: got %v, want ErrFull", err)
	}
	age(t, s, 2*minAge)
	s.pruned = time.Time{}
	if _, err := upload(3); err != nil {
		t.Errorf("with an old tree to remove: got %v, want no error", err)
	}
	if _, err := s.TreeText(needed); err != nil {
		t.Errorf("the live tree: got %v, want no error", err)
	}
	if _, err := NewFetcher(s).have(needed); err != nil {
		t.Errorf("the chunks of the live tree: got %v, want no error", err)
	}
	if _, err := NewFetcher(s).have(old); !errors.Is(err, ErrMissing) {
		t.Errorf("the old tree: got %v, want ErrMissing", err)
	}
	fresh := NewStore(s.cfg, s.log)
	a, err := fresh.Size()
	b, _ := s.Size()
	if err != nil || a != b || a > s.cfg.Most {
		t.Errorf("counted %d, found %d after a restart, %v, want the same, at most %d", b, a, err, s.cfg.Most)
	}
}

func TestUnpackStaysInside(t *testing.T) {
	// ParseTree would refuse these trees. Unpack refuses them, too.
	s := newStore(t, Config{})
	r := put(t, s, []byte("evil"))[0]
	outside := t.TempDir()
	for name, tree := range map[string]Tree{
		"dots": {[]Entry{{Path: "../evil", Kind: File, Size: 4, Chunks: Refs{r}}}},
		"link": {[]Entry{{Path: "l", Kind: Link, Target: outside}, {Path: "l/evil", Kind: File, Size: 4, Chunks: Refs{r}}}},
	} {
		dir := t.TempDir()
		if err := s.Unpack(t.Context(), tree, dir, nil); err == nil {
			t.Errorf("%s: unpacked, want an error", name)
		}
		for _, path := range []string{filepath.Join(outside, "evil"), filepath.Join(filepath.Dir(dir), "evil")} {
			if _, err := os.Lstat(path); err == nil {
				t.Errorf("%s: wrote %s outside, want an error", name, path)
			}
		}
	}
}

func TestUnpackSetsOwner(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can give files away")
	}
	s := newStore(t, Config{})
	h, _ := send(t, s, project(t), ".")
	tree, err := NewFetcher(s).have(h)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := s.Unpack(t.Context(), tree, dir, &Owner{UID: 65534, GID: 65533}); err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{".", "train.py", "ro", "ro/link"} {
		info, err := os.Lstat(filepath.Join(dir, p))
		if err != nil {
			t.Fatal(err)
		}
		if uid, gid := ids(info); uid != 65534 || gid != 65533 {
			t.Errorf("%s belongs to %d:%d, want 65534:65533", p, uid, gid)
		}
	}
}

// put stores chunks in one pack.
func put(t testing.TB, s *Store, chunks ...[]byte) []Ref {
	t.Helper()
	p := s.Putter(false)
	defer p.Discard()
	var refs []Ref
	for _, data := range chunks {
		r, err := p.Put(data)
		if err != nil {
			t.Fatal(err)
		}
		refs = append(refs, r)
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	return refs
}

func BenchmarkCut(b *testing.B) {
	data := random(1, 64<<20)
	c, err := NewChunker()
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		if _, err := c.Split(bytes.NewReader(data), func(Ref, []byte) error { return nil }); err != nil {
			b.Fatal(err)
		}
	}
}
