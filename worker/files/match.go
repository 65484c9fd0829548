package files

// Finding the files that a glob matches.

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/internal/upload"
	"github.com/musterhq/muster/worker/userfile"
)

// ErrTooMany says that a glob matches, or a directory has, too many files to list at once. Name a directory instead,
// or archive the files.
var ErrTooMany = errors.New("too many files")

const (
	// maxMatches bounds the matches of one glob. A list of that many paths takes some 10 MB.
	maxMatches = 100_000
	// maxListed bounds the directory entries in memory at a time, including those of the directories above: some 50
	// MB.
	maxListed = 1 << 18
)

// listing is a file system for one walk. The walk holds the entries of each directory that it is in, and listing
// bounds their number.
type listing struct {
	fs.FS
	within []listed
}

// listingOf returns the directories below a root for one walk.
func listingOf(root *os.Root) *listing { return &listing{FS: directories{root}} }

// directories is a file system of which only directories can be opened.
type directories struct{ root *os.Root }

// Open opens a directory; see fs.FS. Anything else is not opened: a FIFO without a writer would block the thread for
// ever.
func (d directories) Open(name string) (fs.File, error) { return openDirectory(d.root, name) }

func openDirectory(root *os.Root, name string) (*os.File, error) {
	return root.OpenFile(name, os.O_RDONLY|unix.O_DIRECTORY, 0)
}

// listed is a directory that the walk is in, and the number of its entries.
type listed struct {
	dir string
	n   int
}

// ReadDir lists a directory, sorted by name; see fs.ReadDirFS.
func (l *listing) ReadDir(dir string) ([]fs.DirEntry, error) {
	for len(l.within) > 0 && !within(l.within[len(l.within)-1].dir, dir) {
		l.within = l.within[:len(l.within)-1]
	}
	left := maxListed
	for _, above := range l.within {
		left -= above.n
	}
	f, err := l.Open(dir)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // a directory
	if open, ok := f.(*os.File); ok && errors.Is(userfile.Check(open), userfile.ErrKernel) {
		return nil, nil // it is as good as empty
	}
	d, ok := f.(fs.ReadDirFile)
	if !ok {
		return nil, &fs.PathError{Op: "readdir", Path: dir, Err: unix.ENOTDIR}
	}
	all, err := d.ReadDir(left + 1)
	if errors.Is(err, io.EOF) { // it is empty
		err = nil
	}
	if len(all) > left {
		return nil, fmt.Errorf("%w: over %d in %s and the directories above it; archive them, or copy a part by name", ErrTooMany, maxListed, dir)
	}
	slices.SortFunc(all, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	l.within = append(l.within, listed{dir, len(all)})
	return all, err
}

// within reports whether a path is below a directory.
func within(dir, name string) bool {
	return dir == "." && name != "." || strings.HasPrefix(name, dir+"/")
}

// match returns the matches of a glob below a directory, sorted; see upload.Glob. A matching directory stands for everything
// below it.
// Links are not followed, except those that the glob names as directories before its first wildcard, and never out of
// the directory. It does not use the library's own search, because that fails at the first link that leads outside.
func match(root *os.Root, glob string) ([]string, error) {
	g, err := upload.ParseGlob(glob)
	if err != nil {
		return nil, fmt.Errorf("files: match: %w", err)
	}
	if name, ok := g.Literal(); ok {
		if _, err := root.Lstat(name); err != nil {
			return nil, nil //nolint:nilerr // it does not exist, or the user may not see it
		}
		return []string{name}, nil
	}
	names, err := search(listingOf(root), glob, g)
	if err != nil {
		return nil, fmt.Errorf("files: match %s: %w", glob, err)
	}
	return names, nil
}

// search walks below the directory that a glob begins with and returns its matches.
func search(in *listing, glob string, g upload.Glob) ([]string, error) {
	base := g.Base()
	depth := -1 // of the deepest possible match; -1: any
	if !strings.Contains(glob, "**") && !strings.Contains(glob, "{") {
		depth = strings.Count(path.Clean(glob), "/")
	}
	var names []string
	err := fs.WalkDir(in, base, func(at string, e fs.DirEntry, err error) error {
		switch {
		case err != nil && at == base && !errors.Is(err, fs.ErrPermission) && !errors.Is(err, ErrTooMany):
			return fs.SkipAll // there is no such directory
		case err != nil:
			return err
		}
		if g.Match(at) {
			if names = append(names, at); len(names) > maxMatches {
				return fmt.Errorf("%w: over %d; name a directory, which stands for all that is in it", ErrTooMany, maxMatches)
			}
			if e.IsDir() {
				return fs.SkipDir
			}
		}
		if e.IsDir() && at != "." && depth >= 0 && strings.Count(at, "/") >= depth {
			return fs.SkipDir
		}
		return nil
	})
	return names, err
}
