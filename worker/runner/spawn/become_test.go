package spawn

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestOnlyProgramsOfRootAreTrusted checks that only a program that root alone can change is executed by the runner's
// own fork.
func TestOnlyProgramsOfRootAreTrusted(t *testing.T) {
	var disk unix.Statfs_t
	if err := unix.Statfs("/bin/true", &disk); err != nil || !localDisks[int64(disk.Type)] { //nolint:unconvert // an int32 on some machines
		t.Logf("no programs of the system on a local disk: %v, %#x", err, disk.Type)
	} else if !trusted("/bin/true") || !trusted("/usr/../bin/./true") {
		t.Error("a program of the system is not trusted")
	}
	dir := t.TempDir() // below a directory where everybody may write
	link := filepath.Join(dir, "link")
	if err := os.Symlink("/bin/true", link); err != nil {
		t.Fatal(err)
	}
	loop := filepath.Join(dir, "loop")
	if err := os.Symlink(loop, loop); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{link, loop, dir, "bin/true", "/no/such/file", "/proc/self/exe", os.TempDir()} {
		if trusted(path) {
			t.Errorf("%s is trusted", path)
		}
	}
}
