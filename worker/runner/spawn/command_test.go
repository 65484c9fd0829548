package spawn

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/musterhq/muster/worker/runner/protocol"
)

// TestExecSearchesAsTheUser checks that the errors of a command in a task disclose nothing about files that the task's
// user cannot see.
func TestExecSearchesAsTheUser(t *testing.T) {
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
	if err := os.WriteFile(filepath.Join(dir, "there"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"there", "not-there"} { // only root may enter the directory
		x := &ExecOrder{Exec: protocol.Exec{Command: []string{filepath.Join(dir, name)}}, PID: os.Getpid(), Who: who, Where: "/"}
		r := new(Spawner).exec(x, thread{})
		if want := "permission denied: " + x.Command[0]; r.Err == nil || r.Err.Error() != want {
			t.Errorf("%s: %v, want %s", name, r.Err, want)
		}
	}
}
