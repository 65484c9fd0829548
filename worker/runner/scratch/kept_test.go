package scratch

import (
	"maps"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/job"
)

// TestKeptFilesCountByTheirDiskSpace checks that kept files count by the disk space that they use, for the user for
// whom they are kept.
func TestKeptFilesCountByTheirDiskSpace(t *testing.T) {
	dir := t.TempDir()
	for name, user := range map[string]string{"a": "amy", "b": "amy", "c": "ben", "d": ""} {
		files := filepath.Join(dir, name, KeptFiles)
		if err := os.MkdirAll(files, 0o700); err != nil {
			t.Fatal(err)
		}
		if user != "" {
			if err := os.WriteFile(filepath.Join(dir, name, KeptAbout), []byte(`{"user":"`+user+`"}`), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(filepath.Join(files, "x"), make([]byte, 1<<20), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := unix.Truncate(filepath.Join(files, "x"), 1<<40); err != nil { // a hole uses no space
			t.Fatal(err)
		}
	}
	mib := map[string]job.Size{}
	for user, size := range KeptBy(dir) {
		mib[user] = size >> 20
		if alone := KeptOf(dir, user); alone != size {
			t.Errorf("of %s: %s alone, want %s as among all", user, alone, size)
		}
	}
	if want := map[string]job.Size{"amy": 2, "ben": 1}; !maps.Equal(mib, want) {
		t.Errorf("MiB: %v, want %v", mib, want)
	}
	if n := KeptOf(dir, "eve"); n != 0 {
		t.Errorf("of eve: %s, want 0", n)
	}
}

// TestFileWithSeveralNamesCountsOnce checks that a file with several names counts once, like for du.
func TestFileWithSeveralNamesCountsOnce(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "0"), make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"1", "2", "3"} {
		if err := os.Link(filepath.Join(dir, "0"), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if size, files, _ := sizeOf(dir); size>>20 != 1 || files != 1 {
		t.Errorf("%s in %d files, want 1 MiB in 1", size, files)
	}
}
