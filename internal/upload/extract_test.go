package upload

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// archived returns an archive of entries: a file with this text, or any other kind by its header.
type entry struct {
	name, text string
	kind       byte
	link       string
	mode       int64
}

var written = time.Unix(1_800_000_000, 0)

func archived(t testing.TB, entries ...entry) *bytes.Buffer {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		h := &tar.Header{Name: e.name, Typeflag: e.kind, Linkname: e.link, Mode: e.mode, ModTime: written, Format: tar.FormatPAX}
		if e.kind == 0 {
			h.Typeflag, h.Size = tar.TypeReg, int64(len(e.text))
		}
		if e.mode == 0 {
			h.Mode = 0o644
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, e.text); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return &b
}

// listed returns what is below a directory: the text of files, the target of links.
func listed(t testing.TB, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(at string, e fs.DirEntry, err error) error {
		if err != nil || at == dir {
			return err
		}
		name, _ := filepath.Rel(dir, at)
		switch {
		case e.IsDir():
			all[name] = "dir"
		case e.Type()&fs.ModeSymlink != 0:
			target, _ := os.Readlink(at)
			all[name] = "-> " + target
		default:
			text, _ := os.ReadFile(at)
			all[name] = string(text)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestHostileArchivesChangeNothingElse extracts archives of hosts that send something other than what was asked for.
// Whatever the result is, everything outside the directory, everything that was there before, and everything that was
// not asked for stays unchanged.
func TestHostileArchivesChangeNothingElse(t *testing.T) {
	const mine = "my own"
	for _, c := range []struct {
		name    string
		globs   string
		strip   bool
		entries []entry
		want    map[string]string // besides .bashrc and the links, which were there before
		err     error
	}{
		{"extra files", "out.txt", true, []entry{{name: "out.txt", text: "x"}, {name: ".bashrc", text: "evil"}}, map[string]string{"out.txt": "x"}, ErrArchive},
		{"keys", "out.txt", true, []entry{{name: ".ssh/", kind: tar.TypeDir}, {name: ".ssh/authorized_keys", text: "evil"}}, nil, ErrArchive},
		{"download", "ckpt/*", false, []entry{{name: "ckpt/a", text: "1"}, {name: "train.py", text: "evil"}}, map[string]string{"ckpt": "dir", "ckpt/a": "1"}, ErrArchive},
		{"sibling with the same beginning", "out", false, []entry{{name: "out2", text: "evil"}}, nil, ErrArchive},
		{"hidden by a wildcard", "*", true, []entry{{name: ".profile", text: "evil"}, {name: "a", text: "1"}}, map[string]string{"a": "1"}, nil},
		{"hidden by everything", ".", true, []entry{{name: ".profile", text: "evil"}, {name: ".ssh/", kind: tar.TypeDir}, {name: "a/.x", text: "1"}}, map[string]string{"a": "dir", "a/.x": "1"}, nil},
		{"an own file", ".bashrc", true, []entry{{name: ".bashrc", text: "evil"}}, nil, nil},
		{"upwards", ".", true, []entry{{name: "../evil", text: "evil"}}, nil, ErrArchive},
		{"upwards later", ".", true, []entry{{name: "a/../../evil", text: "evil"}}, nil, ErrArchive},
		{"absolute", ".", true, []entry{{name: "/evil", text: "evil"}}, nil, ErrArchive},
		{"no name", ".", true, []entry{{name: "./", kind: tar.TypeDir}}, nil, ErrArchive},
		{"not UTF-8", ".", true, []entry{{name: "a\xff", text: "evil"}}, nil, ErrArchive},
		{"through a link to a directory", ".", true, []entry{{name: "door/evil", text: "evil"}}, nil, ErrArchive},
		{"through a link inside", ".", true, []entry{{name: "inner/evil", text: "evil"}}, nil, ErrArchive},
		{"a directory on a link", ".", true, []entry{{name: "door/", kind: tar.TypeDir}}, nil, ErrArchive},
		{"a file on a link", ".", true, []entry{{name: "file", text: "evil"}}, nil, nil},
		{"a link on a link", ".", true, []entry{{name: "file", kind: tar.TypeSymlink, link: "a"}}, nil, nil},
		{"link, then through it", ".", true, []entry{{name: "d", kind: tar.TypeSymlink, link: "sub"}, {name: "sub/", kind: tar.TypeDir}, {name: "d/evil", text: "evil"}}, map[string]string{"d": "-> sub", "sub": "dir"}, ErrArchive},
		{"link below a link", ".", true, []entry{{name: "d", kind: tar.TypeSymlink, link: "."}, {name: "d/out", kind: tar.TypeSymlink, link: ".."}}, map[string]string{"d": "-> ."}, ErrArchive},
		{"link out", ".", true, []entry{{name: "l", kind: tar.TypeSymlink, link: "../evil"}, {name: "m", kind: tar.TypeSymlink, link: "/etc/passwd"}}, nil, nil},
		{"link to what was not asked for", "ckpt/*", false, []entry{{name: "ckpt/l", kind: tar.TypeSymlink, link: "../.bashrc"}, {name: "ckpt/m", kind: tar.TypeSymlink, link: "a"}}, map[string]string{"ckpt": "dir", "ckpt/m": "-> a"}, nil},
		{"link that leads elsewhere once stripped", "**/l", true, []entry{{name: "a/b/l", kind: tar.TypeSymlink, link: "../../.bashrc"}}, nil, nil},
		{"hard link", ".", true, []entry{{name: "h", kind: tar.TypeLink, link: ".bashrc"}}, nil, ErrArchive},
		{"device", ".", true, []entry{{name: "d", kind: tar.TypeChar}}, nil, ErrArchive},
		{"block device", ".", true, []entry{{name: "d", kind: tar.TypeBlock}}, nil, ErrArchive},
		{"pipe", ".", true, []entry{{name: "p", kind: tar.TypeFifo}}, nil, ErrArchive},
		{"twice", "**/x", true, []entry{{name: "a/x", text: "1"}, {name: "b/x", text: "2"}}, map[string]string{"x": "1"}, ErrArchive},
		{"a file as a directory", ".", true, []entry{{name: "f", text: "1"}, {name: "f/x", text: "2"}}, map[string]string{"f": "1"}, ErrArchive},
		{"deep", ".", true, []entry{{name: strings.Repeat("d/", maxDepth+1) + "x", text: "1"}}, nil, ErrArchive},
		{"long name", ".", true, []entry{{name: strings.Repeat("d", maxName+1), text: "1"}}, nil, ErrArchive},
	} {
		for _, existing := range []Existing{KeepExisting, ReplaceNamed} {
			t.Run(fmt.Sprint(c.name, existing), func(t *testing.T) {
				outside := t.TempDir()
				dir := filepath.Join(outside, "home")
				if err := errors.Join(os.Mkdir(dir, 0o755), os.WriteFile(dir+"/.bashrc", []byte(mine), 0o600), os.Mkdir(outside+"/door", 0o755), os.WriteFile(outside+"/file", []byte(mine), 0o600),
					os.Mkdir(dir+"/.inner", 0o755), os.Symlink("../door", dir+"/door"), os.Symlink(".inner", dir+"/inner"), os.Symlink("../file", dir+"/file")); err != nil {
					t.Fatal(err)
				}
				if existing == ReplaceNamed && c.globs == ".bashrc" {
					t.Skip("it was asked for")
				}
				_, err := Extract(archived(t, c.entries...), dir, Extraction{Globs: []string{c.globs}, Strip: c.strip, Existing: existing})
				if !errors.Is(err, c.err) {
					t.Errorf("got error %v, want %v", err, c.err)
				}
				want := map[string]string{
					"door": "dir", "file": mine, "home": "dir", "home/.bashrc": mine,
					"home/.inner": "dir", "home/door": "-> ../door", "home/inner": "-> .inner", "home/file": "-> ../file",
				}
				for name, what := range c.want {
					want["home/"+name] = what
				}
				if got := listed(t, outside); !maps.Equal(got, want) {
					t.Errorf("got %v, want %v", got, want)
				}
			})
		}
	}
}

func TestExtractAppliesModeAndUmask(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new")
	old := syscall.Umask(0o027)
	defer syscall.Umask(old)
	_, err := Extract(archived(t, entry{name: ".d/", kind: tar.TypeDir, mode: 0o7077}, entry{name: ".d/run", text: "x", mode: 0o6777}, entry{name: "ro", text: "y", mode: 0o400}), dir, Extraction{Globs: []string{"."}})
	if err != nil {
		t.Fatal(err)
	}
	for name, mode := range map[string]fs.FileMode{".d": fs.ModeDir | 0o750, ".d/run": 0o750, "ro": 0o400} {
		info, err := os.Lstat(filepath.Join(dir, name))
		if err != nil || info.Mode() != mode {
			t.Errorf("%s: got %v, %v; want %v", name, info.Mode(), err, mode)
		}
		if uid, _ := ids(info); uid != os.Getuid() {
			t.Errorf("%s belongs to %d, want %d", name, uid, os.Getuid())
		}
	}
}

// TestExtractKeepsOrReplacesExistingFiles copies over files that exist: equal ones, and changed ones, which are
// replaced or not, by how they were named.
func TestExtractKeepsOrReplacesExistingFiles(t *testing.T) {
	for _, c := range []struct {
		glob     string
		existing Existing
		replaced bool
	}{
		{"a", KeepExisting, false},
		{".", KeepExisting, false},
		{"a", ReplaceNamed, true},
		{"a*", ReplaceNamed, true},
		{"*", ReplaceNamed, false},
		{".", ReplaceNamed, false},
		{"**", ReplaceNamed, false},
		{".", ReplaceExisting, true},
	} {
		dir := t.TempDir()
		extract := func(text string) Extracted {
			t.Helper()
			x, err := Extract(archived(t, entry{name: "a", text: text}), dir, Extraction{Globs: []string{c.glob}, Existing: c.existing})
			if err != nil {
				t.Fatal(err)
			}
			return x
		}
		if x := extract("one"); x.Files != 1 || x.Kept.Count+x.Replaced.Count != 0 {
			t.Errorf("%s: first: got %+v, want one file", c.glob, x)
		}
		if x := extract("one"); x.Files != 1 || x.Kept.Count+x.Replaced.Count != 0 {
			t.Errorf("%s: again: got %+v, want one file, unchanged", c.glob, x)
		}
		x := extract("three")
		want, told := "one", x.Kept
		if c.replaced {
			want, told = "three", x.Replaced
		}
		if text := listed(t, dir)["a"]; text != want || told.Count != 1 || !slices.Equal(told.First, []string{"a"}) || x.Kept.Count+x.Replaced.Count != 1 {
			t.Errorf("%s, %d: got %q, %+v, want %q", c.glob, c.existing, text, x, want)
		}
		if all := listed(t, dir); len(all) != 1 {
			t.Errorf("left behind: got %v, want only the file", all)
		}
	}
	// A directory is never replaced.
	dir := t.TempDir()
	if err := os.MkdirAll(dir+"/a/b", 0o755); err != nil {
		t.Fatal(err)
	}
	if x, err := Extract(archived(t, entry{name: "a", text: "x"}), dir, Extraction{Globs: []string{"a"}, Existing: ReplaceExisting}); err != nil || x.Kept.Count != 1 {
		t.Errorf("over a directory: got %+v, %v, want that it is kept", x, err)
	}
}

// endless is an infinite stream of one block. It counts the bytes that were read.
type endless struct {
	block []byte
	n     int64
}

func (e *endless) Read(p []byte) (int, error) {
	n := copy(p, e.block[e.n%int64(len(e.block)):])
	e.n += int64(n)
	return n, nil
}

// reseal changes the kind of a header, and its checksum.
func reseal(header []byte, kind byte) {
	header[156] = kind
	copy(header[148:], "        ")
	sum := 0
	for _, b := range header[:512] {
		sum += int(b)
	}
	copy(header[148:], fmt.Sprintf("%06o\x00 ", sum))
}

// TestEndlessArchivesAreRefused reads archives that have no end: of headers only, of zeros after their end, and one
// with a file that claims to be larger than the disk.
func TestEndlessArchivesAreRefused(t *testing.T) {
	more := archived(t, entry{name: "x", text: "6 a=b\n"}).Bytes()
	more = more[len(more)-2048 : len(more)-1024] // without the end, and without its first header
	reseal(more, 'x')                            // a header of the next header
	for name, c := range map[string]struct {
		archive io.Reader
		most    int64
	}{
		"headers": {&endless{block: more}, maxBetween},
		"zeros":   {&endless{block: make([]byte, 512)}, maxTrailing + maxBetween},
	} {
		dir := t.TempDir()
		_, err := Extract(c.archive, dir, Extraction{Globs: []string{"."}})
		if e := c.archive.(*endless); !errors.Is(err, errEndless) || e.n > c.most {
			t.Errorf("%s: read %d bytes, %v, want errEndless after at most %d", name, e.n, err, c.most)
		}
	}
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	if err := w.WriteHeader(&tar.Header{Name: "big", Typeflag: tar.TypeReg, Size: maxTotal - 1, Mode: 0o644}); err != nil {
		t.Fatal(err)
	}
	big := &endless{block: make([]byte, 4096)}
	dir := t.TempDir()
	if _, err := Extract(io.MultiReader(&b, big), dir, Extraction{Globs: []string{"big"}}); !errors.Is(err, ErrTooLarge) || big.n > maxBetween {
		t.Errorf("a file larger than the disk: got %v after %d bytes, want ErrTooLarge after at most %d", err, big.n, maxBetween)
	}
	if all := listed(t, dir); len(all) != 0 {
		t.Errorf("left behind: got %v, want nothing", all)
	}
}

// TestSparseFileIsRefused extracts a file of 1 GiB that takes 2 KiB in the archive.
func TestSparseFileIsRefused(t *testing.T) {
	var b bytes.Buffer
	sparse := "1\n0\n0\n"
	var text strings.Builder
	for k, v := range map[string]string{"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.name": "a", "GNU.sparse.realsize": "1073741824"} {
		fmt.Fprintf(&text, "%d %s=%s\n", len(k)+len(v)+3+2, k, v)
	}
	raw := func(kind byte, name, body string) {
		one := archived(t, entry{name: name, text: body}).Bytes()
		one = one[:len(one)-1024]
		one = one[len(one)-1024:] // its own header and one block
		reseal(one, kind)
		b.Write(one)
	}
	raw('x', "x", text.String())
	raw('0', "a", sparse+strings.Repeat("\x00", 512-len(sparse)))
	b.Write(make([]byte, 1024))
	again := tar.NewReader(bytes.NewReader(b.Bytes()))
	if h, err := again.Next(); err != nil || h.Size != 1<<30 {
		t.Fatalf("the archive has no sparse file: got %+v, %v, want one of 1 GiB", h, err)
	}
	if _, err := Extract(&b, t.TempDir(), Extraction{Globs: []string{"a"}}); !errors.Is(err, ErrArchive) {
		t.Errorf("a sparse file: got %v, want ErrArchive", err)
	}
}

// FuzzExtract extracts any bytes, and checks that nothing is written that was not asked for, and that existing files
// stay.
func FuzzExtract(f *testing.F) {
	f.Add(archived(f, entry{name: "out/", kind: tar.TypeDir}, entry{name: "out/l", kind: tar.TypeSymlink, link: "a"}, entry{name: "out/a", text: "x"}).Bytes())
	f.Add(archived(f, entry{name: "out", kind: tar.TypeSymlink, link: ".."}, entry{name: "out/a", text: "x"}).Bytes())
	f.Add(archived(f, entry{name: "mine", text: "x"}, entry{name: "out/../mine", text: "x"}).Bytes())
	f.Fuzz(func(t *testing.T, archive []byte) {
		outside := t.TempDir()
		dir := outside + "/dir"
		if err := errors.Join(os.Mkdir(dir, 0o755), os.WriteFile(dir+"/mine", []byte("mine"), 0o600), os.Symlink("..", dir+"/outward")); err != nil {
			t.Fatal(err)
		}
		_, _ = Extract(bytes.NewReader(archive), dir, Extraction{Globs: []string{"out", "outward"}, Existing: ReplaceNamed})
		for name, what := range listed(t, outside) {
			inside, _ := filepath.Rel("dir", name)
			switch {
			case name == "dir", name == "dir/mine" && what == "mine", inside == "out", inside == "outward", strings.HasPrefix(inside, "out/"), strings.HasPrefix(inside, "outward/"):
			default:
				t.Fatalf("%s: got %.100q, want nothing that was not asked for", name, what)
			}
			if target, ok := strings.CutPrefix(what, "-> "); ok && inside != "outward" && CheckLink(inside, target) != nil {
				t.Fatalf("%s leads to %s, outside the directory", name, target)
			}
		}
	})
}
