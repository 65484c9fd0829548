package needtest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/musterhq/muster/internal/testkit/exetest"
)

// half makes programs that exist, and fail with a message when they are used.
func half(t *testing.T, programs ...string) {
	t.Helper()
	dir := t.TempDir()
	for _, name := range programs {
		script := "#!/bin/sh\necho " + name + " is here in half >&2\nexit 1\n"
		if err := exetest.Write(filepath.Join(dir, name), []byte(script), 0o755); err != nil { //nolint:gosec // a program
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
}

// Each need is reported missing if its program fails, or does not exist.
func TestFailingProgramsAreMissing(t *testing.T) {
	compiler := func(name string, headers ...string) func() error {
		return func() error {
			return within(func(dir string) error { _, err := compile(dir, name, emptyMain, headers...); return err })
		}
	}
	for name, c := range map[string]struct {
		probe    func() error
		programs []string // each of them may fail
	}{
		"program":  {func() error { return runs("jq", "--version") }, []string{"jq"}},
		"compiler": {compiler("gcc", "stdio.h"), []string{"gcc"}},
		"mpi":      {mpi, []string{"mpicc", "mpirun"}},
		"tmux":     {tmux, []string{"tmux"}},
		"browser":  {browser, []string{"chromium"}},
		"hosts":    {hosts, []string{"ip", "nsenter", "unshare", "hostname"}},
	} {
		t.Run(name, func(t *testing.T) {
			whole := c.probe() // also where it is not complete, a failing program must not make it so
			t.Logf("on this machine: %v", whole)
			for _, p := range c.programs {
				t.Run(p, func(t *testing.T) {
					half(t, p)
					err := c.probe()
					if err == nil {
						t.Fatalf("with a failing %s nothing is missing, want an error", p)
					}
					if whole == nil && !strings.Contains(err.Error(), p+" is here in half") {
						t.Errorf("with a failing %s: got %v, want the message of the program", p, err)
					}
				})
			}
			t.Run("none", func(t *testing.T) {
				t.Setenv("PATH", t.TempDir())
				t.Setenv("MUSTER_CHROMIUM", "")
				if err := c.probe(); err == nil {
					t.Error("without any program nothing is missing, want an error")
				}
			})
		})
	}
}

// A compiler without a header is not enough.
func TestMissingHeaderIsReported(t *testing.T) {
	Headers(t, "gcc", "stdio.h")
	err := within(func(dir string) error {
		_, err := compile(dir, "gcc", emptyMain, "stdio.h", "there-is-none.h")
		return err
	})
	if err == nil || !strings.Contains(err.Error(), "there-is-none.h") {
		t.Errorf("a header that does not exist: got %v, want an error with it", err)
	}
}

// A test whose need is missing is skipped, with a reason that says what to install. The check runs once.
func TestMissingNeedSkipsTheTest(t *testing.T) {
	probed := 0
	for range 2 {
		ran := false
		t.Run("skipped", func(t *testing.T) {
			t.Cleanup(func() {
				if !t.Skipped() {
					t.Error("the test was not skipped")
				}
			})
			skip(t, "what is never there", func() error { probed++; return os.ErrNotExist })
			ran = true
		})
		if ran {
			t.Error("the test went on")
		}
	}
	if probed != 1 {
		t.Errorf("got %d checks, want 1", probed)
	}
}
