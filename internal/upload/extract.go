package upload

// Extracting: writing files that are copied from a task to a directory of the user. The host of the task sends them as a tar
// archive, and may be hostile. See docs/adr, ADR 153.

import (
	"archive/tar"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"time"
)

// Bounds of an archive. An honest host stays within them. They protect the client's memory and disk from other hosts.
const (
	maxExtracted = 2_000_000 // entries; each takes some 20 bytes of memory
	maxDepth     = 256       // directories above a file
	maxTotal     = 1 << 44   // bytes of all files, as of an uploaded tree
	maxBetween   = 4 << 20   // bytes of headers before a file: the library reads up to 1 MiB of each
	maxTrailing  = 1 << 20   // bytes after the end of the archive
	spareParts   = 32        // this part of a file system stays free, but not more than mostSpare
	mostSpare    = 256 << 20
	maxNamed     = 3 // paths of a PathCount
)

// ErrArchive says that a host sent something that does not belong in an archive of what was asked for. Do not trust the
// host.
var ErrArchive = errors.New("refused")

// Existing says what becomes of a file that exists already.
type Existing int

// What becomes of a file that exists and differs.
const (
	KeepExisting    Existing = iota // it is kept
	ReplaceNamed                    // it is replaced if the glob has a letter or a digit: not by "*", "**" or "."
	ReplaceExisting                 // it is replaced
)

// Extraction is a request for files, and what to do with them.
type Extraction struct {
	Globs    []string
	Strip    bool // each match goes to the directory itself, under its own name
	Existing Existing
}

// PathCount counts paths and has the first of them, for people.
type PathCount struct {
	Count int
	First []string
}

func (t *PathCount) add(name string) {
	if t.Count++; len(t.First) < maxNamed {
		t.First = append(t.First, name)
	}
}

// Extracted is what an extraction has done.
type Extracted struct {
	Files    int       // files and links written, or there before with the same content
	Replaced PathCount // files that were there before
	Kept     PathCount // files that were there before, and differ
	Hidden   PathCount // hidden files that nobody asked for by name
	Links    PathCount // links to something that was not asked for
}

// Extract writes what an archive holds to dir, which is made if it does not exist. It writes only what was asked for,
// and nothing outside of dir, and follows no link below dir. An entry that was not asked for is ErrArchive, and so is a
// second file with the same path. Files that are complete stay after an error.
func Extract(archive io.Reader, dir string, request Extraction) (Extracted, error) {
	asked, err := ParseAsked(request.Globs)
	if err != nil {
		return Extracted{}, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // as any directory that a user makes
		return Extracted{}, fmt.Errorf("copy to %s: %w", dir, cause(err))
	}
	to, err := openDestination(dir)
	if err != nil {
		return Extracted{}, fmt.Errorf("copy to %s: %w", dir, cause(err))
	}
	defer to.close()
	x := extraction{Extraction: request, asked: asked, to: to, seen: map[uint64]bool{}, seed: maphash.MakeSeed()}
	if err := x.all(archive); err != nil {
		return x.done, fmt.Errorf("copy to %s: %w", dir, cause(err))
	}
	return x.done, nil
}

type extraction struct {
	Extraction

	asked Asked
	to    *destination
	done  Extracted
	last  string // the match of the last entry
	glob  Glob   // of last
	seen  map[uint64]bool
	seed  maphash.Seed
	total int64
}

func (x *extraction) all(archive io.Reader) error {
	from := &bounded{r: archive}
	in := tar.NewReader(from)
	for n := 0; ; n++ {
		from.left = maxBetween
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			from.left = maxTrailing
			_, err = io.Copy(io.Discard, from)
			return err
		}
		if err != nil {
			return err
		}
		if n >= maxExtracted {
			return fmt.Errorf("%w: the archive has over %d files; copy a part by name, or archive them in the task", ErrTooLarge, maxExtracted)
		}
		if x.total += h.Size; h.Size < 0 || x.total > maxTotal {
			return fmt.Errorf("%w: the archive has over %d bytes", ErrTooLarge, int64(maxTotal))
		}
		from.left = h.Size + maxBetween
		if err := x.entry(h, in); err != nil {
			return fmt.Errorf("%.100q: %w", h.Name, cause(err))
		}
		if _, err := io.Copy(io.Discard, in); err != nil { // of a file that is not written
			return err
		}
	}
}

// entry writes one entry.
func (x *extraction) entry(h *tar.Header, data io.Reader) error {
	name := strings.TrimSuffix(h.Name, "/")
	if checkPath(name) != nil {
		return fmt.Errorf("%w: not a plain relative path", ErrArchive)
	}
	if strings.Count(name, "/") > maxDepth {
		return fmt.Errorf("%w: more than %d directories deep", ErrArchive, maxDepth)
	}
	if x.last == "" || name != x.last && !strings.HasPrefix(name, x.last+"/") {
		match, glob, hidden := x.asked.Of(name)
		switch {
		case hidden:
			x.done.Hidden.add(name)
			return nil
		case match == "":
			return fmt.Errorf("%w: the host sent it, and it was not asked for", ErrArchive)
		}
		x.last, x.glob = match, glob
	}
	out := x.output(name, x.last)
	if x.last == "." {
		x.last = ""
		if strings.HasPrefix(name, ".") && !x.to.fresh {
			x.done.Hidden.add(name)
			return nil
		}
	}
	if h.Typeflag != tar.TypeDir {
		key := maphash.String(x.seed, out)
		if x.seen[key] {
			return fmt.Errorf("%w: two files are called %.100q; copy them one after the other", ErrArchive, out)
		}
		x.seen[key] = true
	}
	return x.write(out, name, h, data)
}

// output returns where to write an entry that is a match or lies below one.
func (x *extraction) output(name, match string) string {
	if !x.Strip || match == "." || path.Dir(match) == "." {
		return name
	}
	return name[len(path.Dir(match))+1:]
}

func (x *extraction) write(out, name string, h *tar.Header, data io.Reader) error {
	for key := range h.PAXRecords {
		if strings.HasPrefix(key, "GNU.sparse.") {
			return fmt.Errorf("%w: a sparse file", ErrArchive) // a few bytes of it can stand for any number
		}
	}
	mode := fs.FileMode(h.Mode) & fs.ModePerm //nolint:gosec // masked to permission bits
	switch h.Typeflag {
	case tar.TypeDir:
		return x.to.makeDir(out, mode)
	case tar.TypeSymlink:
		if !x.mayLink(out, name, h.Linkname) {
			x.done.Links.add(name)
			return nil
		}
		return x.put(out, sameLink(h.Linkname), func(at, part string) error { return x.to.link(at, part, h.Linkname) })
	case tar.TypeReg:
		return x.put(out, sameFile(h.Size, h.ModTime), func(at, part string) error {
			return x.to.file(at, part, mode, h.Size, h.ModTime, data)
		})
	}
	return fmt.Errorf("%w: neither file, directory nor symbolic link", ErrArchive)
}

// mayLink reports whether a link stays within the directory, and leads to something that was asked for too.
func (x *extraction) mayLink(out, name, target string) bool {
	if CheckLink(out, target) != nil || CheckLink(name, target) != nil {
		return false
	}
	leads := path.Join(path.Dir(name), target)
	match, _, _ := x.asked.Of(leads)
	return match != "" && x.output(leads, match) == path.Join(path.Dir(out), target)
}

// put writes a file or link under a temporary name, and gives it its name when it is complete.
func (x *extraction) put(out string, same func(*destination, string, fs.FileInfo) bool, write func(at, part string) error) error {
	replaces := false
	info, err := x.to.stat(out)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return err
	case same(x.to, out, info):
		x.done.Files++
		return nil
	case !x.mayReplace(info):
		x.done.Kept.add(out)
		return nil
	default:
		replaces = true
	}
	part := partName()
	if err := write(out, part); err != nil {
		return err
	}
	if err := x.to.rename(out, part, replaces); errors.Is(err, fs.ErrExist) {
		x.done.Kept.add(out) // somebody has just made a file of that name
		return nil
	} else if err != nil {
		return err
	}
	if x.done.Files++; replaces {
		x.done.Replaced.add(out)
	}
	return nil
}

// mayReplace reports whether something that exists may be replaced. Only files and links ever are.
func (x *extraction) mayReplace(info fs.FileInfo) bool {
	if !info.Mode().IsRegular() && info.Mode()&fs.ModeSymlink == 0 {
		return false
	}
	return x.Existing == ReplaceExisting || x.Existing == ReplaceNamed && x.glob.names
}

// sameFile returns a function that reports whether an existing file has this size and time, as a file that was copied
// before has.
func sameFile(size int64, modified time.Time) func(*destination, string, fs.FileInfo) bool {
	return func(_ *destination, _ string, info fs.FileInfo) bool {
		return info.Mode().IsRegular() && info.Size() == size && info.ModTime().Truncate(time.Second).Equal(modified.Truncate(time.Second))
	}
}

// sameLink returns a function that reports whether an existing link has this target.
func sameLink(target string) func(*destination, string, fs.FileInfo) bool {
	return func(to *destination, out string, info fs.FileInfo) bool {
		return info.Mode()&fs.ModeSymlink != 0 && to.target(out) == target
	}
}

// bounded reads until it has read left bytes.
type bounded struct {
	r    io.Reader
	left int64
}

var errEndless = fmt.Errorf("%w: what lies between the files of the archive is too long", ErrArchive)

func (b *bounded) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, errEndless
	}
	n, err := b.r.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	return n, err
}
