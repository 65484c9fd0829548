package upload

// Listing the files of an upload: everything below some paths, except what .musterignore leaves out.

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/go-git/go-git/v5/plumbing/format/gitignore"
)

// IgnoreFile is the name of files that list, in the syntax of .gitignore, what is not uploaded from their directory.
const IgnoreFile = ".musterignore"

const maxIgnoreFile = 1 << 20 // bytes

// Source is an entry without its chunks, and its path on disk.
type Source struct {
	Entry
	Disk string
}

// Scan lists the files to upload. A path below dir keeps its place relative to dir, so that commands with relative
// paths work in the task as they do here. A path from elsewhere is put at the root of the tree under its base name.
// Dir itself becomes the root. More than limit bytes are ErrTooLarge; a link that leads outside is ErrInvalid.
func Scan(dir string, paths []string, limit int64) ([]Source, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("upload: %w", err)
	}
	s := scan{left: limit, limit: limit, found: map[string]Source{}}
	for _, p := range paths {
		if err := s.add(dir, p); err != nil {
			return nil, err
		}
	}
	all := make([]Source, 0, len(s.found))
	for _, src := range s.found {
		all = append(all, src)
	}
	slices.SortFunc(all, func(a, b Source) int { return ByPath(a.Entry, b.Entry) })
	t := Tree{Entries: make([]Entry, len(all))}
	for i, src := range all {
		t.Entries[i] = src.Entry
		t.Entries[i].Size = 0 // must equal the sum of its chunks, and it has none yet
	}
	if err := t.valid(); err != nil {
		return nil, fmt.Errorf("upload: %w", err)
	}
	return all, nil
}

type scan struct {
	left, limit int64
	found       map[string]Source // by path in the tree
}

// add lists one path and everything below it.
func (s *scan) add(dir, p string) error {
	disk := p
	if !filepath.IsAbs(disk) {
		disk = filepath.Join(dir, p)
	}
	at, err := filepath.Rel(dir, filepath.Clean(disk))
	if err != nil || at == ".." || strings.HasPrefix(at, "../") {
		at = filepath.Base(filepath.Clean(disk))
	}
	info, err := os.Lstat(disk)
	if err != nil {
		return fmt.Errorf("upload %s: %w", p, cause(err))
	}
	if at == "/" {
		return fmt.Errorf("upload %s: cannot upload the whole file system", p)
	}
	for up := path.Dir(at); up != "."; up = path.Dir(up) {
		s.found[up] = Source{Entry: Entry{Path: up, Kind: Dir, Mode: 0o755}}
	}
	if !info.IsDir() {
		return s.take(disk, at, info)
	}
	return s.walk(disk, at, info, nil)
}

// walk lists a directory. Rules are the ignore patterns of the directories above it.
func (s *scan) walk(disk, at string, info fs.FileInfo, rules []gitignore.Pattern) error {
	if at != "." {
		if err := s.put(at, Source{Entry: Entry{Path: at, Kind: Dir, Mode: uint32(info.Mode().Perm())}, Disk: disk}); err != nil {
			return err
		}
	}
	own, err := ignored(filepath.Join(disk, IgnoreFile), at)
	if err != nil {
		return err
	}
	rules = append(slices.Clip(rules), own...)
	matcher := gitignore.NewMatcher(rules)
	entries, err := os.ReadDir(disk)
	if err != nil {
		return fmt.Errorf("upload %s: %w", disk, cause(err))
	}
	for _, e := range entries {
		name := path.Join(at, e.Name())
		if len(rules) > 0 && matcher.Match(strings.Split(name, "/"), e.IsDir()) {
			continue
		}
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed meanwhile
		}
		if err != nil {
			return fmt.Errorf("upload %s: %w", filepath.Join(disk, e.Name()), cause(err))
		}
		if info.IsDir() {
			err = s.walk(filepath.Join(disk, e.Name()), name, info, rules)
		} else {
			err = s.take(filepath.Join(disk, e.Name()), name, info)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// take lists an entry that is not a directory. It leaves out sockets, pipes and devices, which mean nothing on
// another host.
func (s *scan) take(disk, at string, info fs.FileInfo) error {
	switch {
	case info.Mode()&fs.ModeSymlink != 0:
		target, err := os.Readlink(disk)
		if err != nil {
			return fmt.Errorf("upload %s: %w", disk, cause(err))
		}
		if err := CheckLink(at, target); err != nil {
			return fmt.Errorf("upload %s: it is a link to %s, which is outside of what is uploaded: name it in %s, or upload what it leads to", disk, target, IgnoreFile)
		}
		return s.put(at, Source{Entry: Entry{Path: at, Kind: Link, Target: target}, Disk: disk})
	case info.Mode().IsRegular():
		if s.left -= info.Size(); s.left < 0 {
			return fmt.Errorf("upload: %w: over %d bytes with %s; leave files out with %s, or raise --upload-limit", ErrTooLarge, s.limit, disk, IgnoreFile)
		}
		return s.put(at, Source{
			Entry: Entry{Path: at, Kind: File, Mode: uint32(info.Mode().Perm()), MTime: info.ModTime().UnixNano(), Size: info.Size()}, Disk: disk,
		})
	}
	return nil
}

func (s *scan) put(at string, src Source) error {
	before, there := s.found[at]
	if there && before.Disk != "" && before.Disk != src.Disk {
		return fmt.Errorf("upload: %s and %s would both become %s", before.Disk, src.Disk, at)
	}
	if there && src.Kind == File {
		s.left += src.Size // counted before
	}
	s.found[at] = src
	return nil
}

// ignored reads the patterns of an ignore file. They apply below the directory at of the tree.
func ignored(file, at string) ([]gitignore.Pattern, error) {
	f, err := os.Open(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("upload: %s: %w", file, cause(err))
	}
	defer f.Close()
	var domain []string
	if at != "." {
		domain = strings.Split(at, "/")
	}
	var rules []gitignore.Pattern
	lines := bufio.NewScanner(io.LimitReader(f, maxIgnoreFile))
	for lines.Scan() {
		if line := strings.TrimSuffix(lines.Text(), "\r"); line != "" && !strings.HasPrefix(line, "#") {
			rules = append(rules, gitignore.ParsePattern(line, domain))
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("upload: %s: %w", file, err)
	}
	return rules, nil
}

// cause strips the path from an error, because the message already names it.
func cause(err error) error {
	if at, ok := errors.AsType[*fs.PathError](err); ok {
		return at.Err
	}
	return err
}
