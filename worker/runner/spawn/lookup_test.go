package spawn

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/musterhq/muster/internal/testkit/exetest"
	"github.com/musterhq/muster/worker/userfile"
)

// TestProgramInAClosedDirectoryOfPathIsNotFound checks the exit codes, which are those of shells. A program in a
// directory of PATH that the user may not enter is not found. An absolute path into such a directory is "permission
// denied".
func TestProgramInAClosedDirectoryOfPathIsNotFound(t *testing.T) {
	t.Parallel()
	if os.Getuid() == 0 { // root may enter any directory, so the test runs again as nobody
		program, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(program)
		if err != nil {
			t.Fatal(err)
		}
		dir, err := os.MkdirTemp("", "muster-lookup-") //nolint:usetesting // nobody may enter the directories of t
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(dir)
		there := filepath.Join(dir, "test")
		if err := errors.Join(os.Chmod(dir, 0o755), exetest.Write(there, text, 0o755)); err != nil { //nolint:gosec // nobody is to run it
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), there, "-test.run", "^TestProgramInAClosedDirectoryOfPathIsNotFound$", "-test.v")
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "TMPDIR=/tmp")
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("as nobody: %v\n%s", err, out)
		}
		return
	}
	dir := t.TempDir()
	hidden := filepath.Join(dir, "hidden")
	if err := os.Mkdir(hidden, 0); err != nil {
		t.Fatal(err)
	}
	env := []string{"PATH=" + hidden + ":" + dir}
	for name, code := range map[string]int{"no-such-program": codeNotFound, filepath.Join(hidden, "x"): CodeNotExecutable} {
		_, err := lookUp(name, dir, env)
		if r := (*StartError)(nil); !errors.As(err, &r) || r.Code != code {
			t.Errorf("program(%s): %v, want exit code %d", name, err, code)
		}
	}
	if err := exetest.Write(filepath.Join(dir, "there"), nil, 0o700); err != nil { //nolint:gosec // a program
		t.Fatal(err)
	}
	if at, err := lookUp("there", dir, env); err != nil || at != filepath.Join(dir, "there") {
		t.Errorf("program(there) = %s, %v, want no error and %v", at, err, filepath.Join(dir, "there"))
	}
}

// lookUp is program with the rights of this process.
func lookUp(name, dir string, env []string) (at string, err error) {
	err = Account{}.As(func(t userfile.Thread) (err error) {
		at, err = program(t, name, workdir{dir, -1}, env)
		return err
	})
	return at, err
}

// A user who gives an image in place of the program, like for docker run, gets a hint to --image. Nobody else does.
func TestImageInPlaceOfAProgramGetsAHint(t *testing.T) {
	for name, hint := range map[string]bool{
		"busybox:1": true, "registry.example:5000/team/train:v1.2": true, "alpine@sha256:" + strings.Repeat("a", 64): true,
		"busybox": false, "./run:1": false, "/no/such:1": false, "C:": false, ":1": false, "say hello:1": false, "": false, "a:" + strings.Repeat("b", 600): false,
	} {
		_, err := lookUp(name, t.TempDir(), []string{"PATH=/nosuch"})
		var r *StartError
		if !errors.As(err, &r) || r.Code != codeNotFound || !strings.HasPrefix(r.Text, "command not found: "+name) {
			t.Errorf("%q: %v, want command not found", name, err)
		} else if got := strings.Contains(r.Text, "--image "+name+" "); got != hint {
			t.Errorf("%q: %s, want the hint to --image only for an image", name, r.Text)
		}
	}
}
