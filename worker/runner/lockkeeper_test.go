package runner

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/musterhq/muster/worker/runner/protocol"
)

// The runner restores its lock file, the directory of tasks, and that of all runners if somebody removes them. It does
// not restore the data directory, and leaves a lock file that another runner holds.
func TestRunnerRestoresItsRemovedFiles(t *testing.T) {
	t.Parallel()
	data := filepath.Join(t.TempDir(), "data")
	dir := protocol.Dir(filepath.Join(data, "run"))
	if err := dir.Make(); err != nil {
		t.Fatal(err)
	}
	lock, err := dir.TryLock(3)
	if err != nil {
		t.Fatal(err)
	}
	k := &lockKeeper{dir: dir, info: protocol.Info{Generation: 3, PID: os.Getpid(), Version: "1"}, lock: lock, log: slog.New(slog.DiscardHandler)}
	if err := protocol.WriteInfo(lock, k.info); err != nil {
		t.Fatal(err)
	}
	for what, path := range map[string]string{"nothing": filepath.Join(data, "other"), "lock": dir.Lock(3), "tasks": dir.Tasks(), "run": string(dir)} {
		if err := os.RemoveAll(path); err != nil {
			t.Fatal(err)
		}
		if again, held, err := k.look(); again != (what != "nothing") || !held || err != nil {
			t.Errorf("%s: made again: %v, held: %v, %v, want it restored and held", what, again, held, err)
		}
		if info, err := dir.ReadInfo(3); err != nil || !reflect.DeepEqual(info, k.info) {
			t.Errorf("%s: %+v, %v, want no error and %v", what, info, err, k.info)
		}
		if other, err := dir.TryLock(3); other != nil || err != nil {
			t.Errorf("%s: the lock is not held; %v", what, err)
		}
		if _, err := os.Stat(dir.Tasks()); err != nil {
			t.Error(err)
		}
	}
	if err := os.RemoveAll(data); err != nil {
		t.Fatal(err)
	}
	if again, _, err := k.look(); again || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without a data directory: made again: %v, %v, want false and os.ErrNotExist", again, err)
	}
	if err := os.MkdirAll(string(dir), 0o700); err != nil {
		t.Fatal(err)
	}
	other, err := dir.TryLock(3) // looks like another runner
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if again, held, err := k.look(); !held || err != nil || k.lock == other {
		t.Errorf("with another runner: made again: %v, held: %v, %v, want its own lock only", again, held, err)
	}
	k.release()
	if _, err := os.Stat(dir.Lock(3)); err != nil {
		t.Errorf("the lock of another runner was removed: %v", err)
	}
	if _, held, _ := k.look(); held {
		t.Error("a released lock is held")
	}
}
