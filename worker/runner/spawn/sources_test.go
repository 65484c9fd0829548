package spawn

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestMountOfAnUnreachableDirectoryIsRefused checks that a directory that a user cannot reach on the host is not
// mounted into that user's container, even if the directory itself is readable for everybody.
func TestMountOfAnUnreachableDirectoryIsRefused(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: acts as another user")
	}
	who, err := AccountOf("nobody", false)
	if err != nil {
		t.Skip(err)
	}
	dir, err := os.MkdirTemp("", "muster") //nolint:usetesting // t.TempDir is closed to others
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	for _, sub := range []string{"open/data", "closed/data"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for at, mode := range map[string]os.FileMode{".": 0o755, "closed": 0o700} {
		if err := os.Chmod(filepath.Join(dir, at), mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(filepath.Join(dir, "closed"), filepath.Join(dir, "open", "link")); err != nil {
		t.Fatal(err)
	}
	for source, ok := range map[string]bool{"open/data": true, "closed": true, "closed/data": false, "open/link/data": false, "none": true} {
		all, err := openSources(who, []string{filepath.Join(dir, source) + ":/data"})
		all.Close()
		if (err == nil) != ok || err != nil && !strings.Contains(err.Error(), "user nobody may not see it") {
			t.Errorf("%s: %v, want an error exactly if the user may not see it", source, err)
		}
	}
}
