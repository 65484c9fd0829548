package files

// What a glob means below a directory.

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"

	"github.com/bmatcuk/doublestar/v4"
)

// match lists what a glob means below a directory, in order; a match stands for
// all below it. Links are not followed, but where the glob names them as
// directories before its first star, and never out of the directory. It walks
// by itself: the library's own search gives up at the first link that leads
// outside.
func match(root *os.Root, glob string) ([]string, error) {
	glob = path.Clean(glob)
	base, pattern := doublestar.SplitPattern(glob)
	if !strings.ContainsAny(pattern, `*?[{\`) {
		if _, err := root.Lstat(glob); err != nil {
			return nil, nil //nolint:nilerr // it is not there, or not for this user
		}
		return []string{glob}, nil
	}
	depth := -1 // of the deepest match; none if it may be anywhere
	if !strings.Contains(pattern, "**") && !strings.Contains(pattern, "{") {
		depth = strings.Count(glob, "/")
	}
	var names []string
	err := fs.WalkDir(root.FS(), base, func(at string, e fs.DirEntry, err error) error {
		switch {
		case err != nil && at == base && !errors.Is(err, fs.ErrPermission):
			return fs.SkipAll // there is no such directory
		case err != nil:
			return err
		}
		if at != base && doublestar.MatchUnvalidated(glob, at) {
			names = append(names, at)
			if e.IsDir() {
				return fs.SkipDir
			}
		}
		if e.IsDir() && at != "." && depth >= 0 && strings.Count(at, "/") >= depth {
			return fs.SkipDir
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("files: match %s: %w", glob, err)
	}
	return names, nil
}
