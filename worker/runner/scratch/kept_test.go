package scratch

import (
	"maps"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/job"
)

// TestKept checks that what is kept counts by what it takes on the disk, for the user for whom it is kept.
func TestKept(t *testing.T) {
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
		if err := unix.Truncate(filepath.Join(files, "x"), 1<<40); err != nil { // a hole takes nothing
			t.Fatal(err)
		}
	}
	mib := map[string]job.Size{}
	for user, size := range KeptBy(dir) {
		mib[user] = size >> 20
		if alone := KeptOf(dir, user); alone != size {
			t.Errorf("of %s: %s, and %s among all", user, alone, size)
		}
	}
	if want := map[string]job.Size{"amy": 2, "ben": 1}; !maps.Equal(mib, want) {
		t.Errorf("MiB: %v, want %v", mib, want)
	}
	if n := KeptOf(dir, "eve"); n != 0 {
		t.Errorf("of eve: %s", n)
	}
}
