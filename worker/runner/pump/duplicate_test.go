package pump

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// A copy is written with the rights of its user, as if the user's own process wrote it. The kernel shows this by the
// setuid bit of another user's file, which only a privileged writer keeps. It decides about disk quotas in the same
// way.
func TestCopiesAreWrittenWithTheRightsOfTheUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: acts as another user")
	}
	path := filepath.Join(t.TempDir(), "program")
	for _, c := range []struct {
		rights *syscall.Credential
		kept   bool
	}{
		{nil, true}, // root's own
		{&syscall.Credential{Uid: 54321, Gid: 54321}, false},
	} {
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := unix.Chmod(path, 0o4777); err != nil {
			t.Fatal(err)
		}
		fd, err := unix.Open(path, unix.O_WRONLY|unix.O_APPEND|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		to := &Copy{Path: path, FD: fd, Rights: c.rights}
		to.write(func(text string) { t.Error(text) }, []byte("text\n"))
		var is unix.Stat_t
		if err := unix.Fstat(fd, &is); err != nil {
			t.Fatal(err)
		}
		unix.Close(fd)
		if kept := is.Mode&unix.S_ISUID != 0; kept != c.kept {
			t.Errorf("written with the rights %+v, the setuid bit is kept: %t, want %v", c.rights, kept, c.kept)
		}
		if text, err := os.ReadFile(path); err != nil || string(text) != "text\n" {
			t.Errorf(`%q, %v, want no error and "text\n"`, text, err)
		}
	}
}
