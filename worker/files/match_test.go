package files

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/fstest"

	"github.com/musterhq/muster/internal/upload"
)

// TestListingIsBounded checks that the directories that are listed at the same time may not have too many files
// together. These are a directory and its parents. The same number of files in directories that are listed one after
// the other is allowed.
func TestListingIsBounded(t *testing.T) {
	walk := func(tree fstest.MapFS) (n int, err error) {
		err = fs.WalkDir(&listing{FS: tree}, ".", func(_ string, _ fs.DirEntry, err error) error {
			n++
			return err
		})
		return n, err
	}
	const half = maxListed/2 + 1
	beside, nested := fstest.MapFS{}, fstest.MapFS{}
	for i := range half {
		for _, dir := range []string{"a", "b"} {
			beside[fmt.Sprintf("%s/%d", dir, i)] = &fstest.MapFile{}
		}
		nested[fmt.Sprintf("a/%d", i)] = &fstest.MapFile{}
		nested[fmt.Sprintf("a/in/%d", i)] = &fstest.MapFile{}
	}
	if n, err := walk(beside); err != nil || n != 2*half+3 {
		t.Errorf("beside each other: %d entries, %v, want no error and %v", n, err, 2*half+3)
	}
	if _, err := walk(nested); !errors.Is(err, ErrTooMany) {
		t.Errorf("in each other: %v, want ErrTooMany", err)
	}
}

func TestMatchIsBounded(t *testing.T) {
	tree := fstest.MapFS{}
	for i := range maxMatches + 1 {
		tree[fmt.Sprintf("a/%d", i)] = &fstest.MapFile{}
	}
	find := func(glob string) ([]string, error) {
		g, err := upload.ParseGlob(glob)
		if err != nil {
			t.Fatal(err)
		}
		return search(&listing{FS: tree}, glob, g)
	}
	if _, err := find("**/*[0-9]"); !errors.Is(err, ErrTooMany) {
		t.Errorf("all of them by name: %v, want ErrTooMany", err)
	}
	if names, err := find("**/1*0"); err != nil || len(names) == 0 {
		t.Errorf("matches of some files: %d, %v, want some and no error", len(names), err)
	}
	if names, err := find("*"); err != nil || len(names) != 1 {
		t.Errorf("the directory: %d, %v, want no error and 1", len(names), err)
	}
}

// TestFileThatSeveralGlobsMatchIsPackedOnce checks that a file that several globs match is packed once.
func TestFileThatSeveralGlobsMatchIsPackedOnce(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"a/b/one", "a/two", "three"} {
		if err := errors.Join(os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o755), os.WriteFile(filepath.Join(dir, name), nil, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	all := []string{"a/", "a/b/", "a/b/one", "a/two", "three"}
	for _, globs := range [][]string{{"."}, {".", "a/two"}, {"a/two", "a/b", "."}, {"a", "a/b/*", "thr*"}, {"thr*", "a/b/one", "a", "a/b"}} {
		var packed bytes.Buffer
		if err := (Place{dir: dir}).Pack(t.Context(), globs, false, &packed); err != nil {
			t.Fatalf("%v: %v", globs, err)
		}
		var names []string
		for in := tar.NewReader(&packed); ; {
			h, err := in.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			names = append(names, h.Name)
		}
		if slices.Sort(names); !slices.Equal(names, all) {
			t.Errorf("%v: packed %v, want %v", globs, names, all)
		}
	}
}
