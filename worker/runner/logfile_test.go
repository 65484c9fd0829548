package runner

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/musterhq/muster/worker/runner/protocol"
)

// TestLogIsBounded writes the log in a separate process, because rotation of the log changes standard error.
func TestLogIsBounded(t *testing.T) {
	const variable, most = "MUSTER_TEST_LOG", 1000
	if path := os.Getenv(variable); path != "" {
		f := newLogFile(path)
		f.most = most
		for i := range 100 {
			fmt.Fprintf(f, "line %02d %s\n", i, strings.Repeat("x", 80))
		}
		fmt.Fprintln(os.Stderr, "last words of the runtime")
		os.Exit(0)
	}
	t.Parallel()
	path := filepath.Join(t.TempDir(), "log")
	log, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd := exec.Command(os.Args[0], "-test.run=^TestLogIsBounded$")
	cmd.Env = append(os.Environ(), variable+"="+path)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	read := func(path string) string {
		t.Helper()
		text, err := os.ReadFile(path)
		if err != nil || len(text) > most+100 {
			t.Errorf("%s: %d bytes, %v, want no error and at most %v", path, len(text), err, most+100)
		}
		return string(text)
	}
	newer := read(path)
	if both := read(protocol.OlderLog(path)) + newer; !strings.Contains(both, "line 99") || !strings.Contains(both, "line 90") || strings.Contains(both, "line 50") {
		t.Errorf("want the lines 90 to 99 and not 50 in the log:\n%s", both)
	}
	if !strings.HasSuffix(newer, "last words of the runtime\n") {
		t.Errorf("log:\n%s, want suffix \"last words of the runtime\\n\"", newer)
	}
}

// TestForeignLogIsNotRotated checks that standard error is not rotated if it is not the runner's log.
func TestForeignLogIsNotRotated(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "log")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if f := newLogFile(path); f.path != "" {
		t.Errorf("%s is taken for standard error, want none", f.path)
	}
}

func TestLogsOfDeadRunnersAreCleared(t *testing.T) {
	t.Parallel()
	dir := protocol.Dir(t.TempDir())
	write := func(path string) {
		t.Helper()
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for n := range 12 {
		write(dir.Log(n + 1))
	}
	write(protocol.OlderLog(dir.Log(1)))
	write(dir.Lock(2)) // this runner still runs
	write(filepath.Join(string(dir), "runner-x.log"))
	if err := dir.ClearLogs(); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(string(dir))
	if err != nil {
		t.Fatal(err)
	}
	var left []string
	for _, e := range entries {
		left = append(left, e.Name())
	}
	want := []string{"runner-10.log", "runner-11.log", "runner-12.log", "runner-2.lock", "runner-2.log", "runner-x.log"}
	if !slices.Equal(left, want) {
		t.Errorf("left: %q, want %q", left, want)
	}
}
