package daemon

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/musterhq/muster/api"
	"github.com/musterhq/muster/worker/runner/protocol"
)

// dataDir is a data directory with a runner, which is this process.
func dataDir(t *testing.T) (string, protocol.Dir) {
	t.Helper()
	dir := t.TempDir()
	run := protocol.Dir(filepath.Join(dir, "run"))
	if err := run.Make(); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "db"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "identity.key"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	lock, err := run.TryLock(3)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = lock.Close() })
	if err := protocol.WriteInfo(lock, protocol.Info{Generation: 3, PID: os.Getpid(), Boot: bootID(t)}); err != nil {
		t.Fatal(err)
	}
	return dir, run
}

func bootID(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}

func TestDoctorSeesADeletedDataDirectory(t *testing.T) {
	t.Parallel()
	const own, running = "stop the daemon", "restart the daemon"
	for name, tt := range map[string]struct {
		lose   func(dir string, run protocol.Dir) error
		detail string
		advice string
	}{
		"the key":     {func(dir string, _ protocol.Dir) error { return os.Remove(filepath.Join(dir, "identity.key")) }, "while the daemon runs", own},
		"the db":      {func(dir string, _ protocol.Dir) error { return os.Remove(filepath.Join(dir, "db")) }, "while the daemon runs", own},
		"all":         {func(dir string, _ protocol.Dir) error { return os.RemoveAll(dir) }, "while the daemon runs", own},
		"another db":  {func(dir string, _ protocol.Dir) error { return another(filepath.Join(dir, "db")) }, "while the daemon runs", own},
		"run":         {func(_ string, run protocol.Dir) error { return os.RemoveAll(string(run)) }, "run/tasks, run/runner-3.lock", running},
		"the tasks":   {func(_ string, run protocol.Dir) error { return os.RemoveAll(run.Tasks()) }, "run/tasks", running},
		"a lock":      {func(_ string, run protocol.Dir) error { return os.Remove(run.Lock(3)) }, "run/runner-3.lock", running},
		"not its own": {func(_ string, run protocol.Dir) error { return another(run.Lock(3)) }, "run/runner-3.lock", running},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, run := dataDir(t)
			d := newDataFiles(dir)
			for range 3 {
				if f := dataFact(d); f.State != api.FactOK {
					t.Fatalf("got %+v, want OK", f)
				}
			}
			if err := tt.lose(dir, run); err != nil {
				t.Fatal(err)
			}
			d.look()
			if f := dataFact(d); f.State != api.FactFail || !strings.Contains(f.Detail, tt.detail) || !strings.Contains(f.Advice, tt.advice) {
				t.Errorf("got %+v, want a failure with %q and %q", f, tt.detail, tt.advice)
			}
		})
	}
}

// another puts another file in the place of a file or an empty directory.
func another(path string) error {
	if err := os.Rename(path, path+".old"); err != nil {
		return err
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return f.Close()
}

// A file that never existed is not lost. A runner that ends removes its lock, and tasks may have another directory.
func TestMissingFilesAreNotLostIfTheyNeverExisted(t *testing.T) {
	t.Parallel()
	if l := newDataFiles(t.TempDir()).look(); l.any() {
		t.Errorf("a new directory: got %s, want nothing lost", l)
	}
	dir, run := dataDir(t)
	d := newDataFiles(dir)
	d.look()
	if err := os.Remove(run.Lock(3)); err != nil {
		t.Fatal(err)
	}
	if err := another(run.Tasks()); err != nil {
		t.Fatal(err)
	}
	if l := d.look(); l.any() {
		t.Errorf("its runner may be about to end: got %s, want nothing lost", l)
	}
}
