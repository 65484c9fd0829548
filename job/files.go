package job

// The files that a job uploads and downloads.

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"
)

// Bounds of a job's files.
const (
	MaxUploads   = 256 // paths
	MaxDownloads = 256 // globs
	maxGlob      = 4096
	treeDigits   = 64
)

func checkFiles(s Spec) error {
	switch {
	case len(s.Upload) > MaxUploads:
		return fmt.Errorf("upload: %d paths; at most %d", len(s.Upload), MaxUploads)
	case len(s.Download) > MaxDownloads:
		return fmt.Errorf("download: %d globs; at most %d", len(s.Download), MaxDownloads)
	case s.Tree != "" && (len(s.Tree) != treeDigits || strings.Trim(s.Tree, "0123456789abcdef") != ""):
		return fmt.Errorf("tree %.80q: want %d hexadecimal digits", s.Tree, treeDigits)
	case s.Tree != "" && len(s.Upload) > 0:
		return errors.New("tree: give paths to upload or an uploaded tree, not both")
	}
	for _, p := range s.Upload {
		if p == "" || len(p) > maxGlob || strings.ContainsRune(p, 0) {
			return fmt.Errorf("upload %.60q: not a path", p)
		}
	}
	for _, g := range s.Download {
		if err := CheckGlob(g); err != nil {
			return fmt.Errorf("download %.60q: %w", g, err)
		}
	}
	return nil
}

// CheckGlob returns an error if a glob can leave the directory that it is relative to. The glob "." matches the whole
// directory.
func CheckGlob(glob string) error {
	if len(glob) > maxGlob || !fs.ValidPath(path.Clean(glob)) || glob == "" || strings.ContainsRune(glob, 0) {
		return errors.New("want a path or glob below the task's directory, neither absolute nor with .. in it")
	}
	return nil
}
