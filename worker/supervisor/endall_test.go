package supervisor

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/worker/driver"
	"github.com/musterhq/muster/worker/runner/protocol"
)

// A daemon that stops for good ends all tasks: tasks on hold, tasks that ignore TERM, and tasks of a runner that is
// stopped.
func TestEndAllEndsAllTasks(t *testing.T) {
	eachMode(t, func(t *testing.T, mode string) {
		for _, still := range []bool{false, true} {
			t.Run(fmt.Sprintf("runner stands still %t", still), func(t *testing.T) {
				t.Parallel()
				r := newRig(t, mode, testDir(t), "1")
				var pids []int
				for n, script := range []string{`sleep 1000`, `trap "" TERM; while :; do sleep 1; done`, `(setsid sleep 1000 &); sleep 1000`} {
					r.start(r.shell(n+1, script))
					pids = append(pids, r.expect(driver.Started).PID)
				}
				r.stop()
				for _, pid := range pids {
					if !alive(pid) {
						t.Fatalf("process %d has not survived its daemon", pid)
					}
				}
				if still {
					info, err := protocol.Dir(r.dir).ReadInfo(1)
					if err != nil {
						t.Fatal(err)
					}
					freeze(t, info.PID)
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				if err := EndAll(ctx, r.dir, nil, slog.New(slog.NewTextHandler(testWriter{t}, nil))); err != nil {
					t.Fatal(err)
				}
				for _, pid := range pids {
					if alive(pid) {
						t.Errorf("process %d is still alive", pid)
					}
				}
				await(t, "end of the runner", func() bool { return len(runnersOf(t, r.dir)) == 0 })
			})
		}
	})
}

// In a copy of the directory, the lock files name runners that do not belong to this daemon.
func TestEndAllOfACopyLeavesTheOriginalAlone(t *testing.T) {
	t.Parallel()
	r := newRig(t, "groups", testDir(t), "1")
	r.start(r.task(1, "sleep", "1000"))
	pid := r.expect(driver.Started).PID
	to := t.TempDir()
	names, err := filepath.Glob(filepath.Join(r.dir, "runner-*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if b, err := os.ReadFile(name); err == nil && !strings.HasSuffix(name, ".sock") {
			if err := os.WriteFile(filepath.Join(to, filepath.Base(name)), b, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	if all, err := protocol.Dir(to).Generations(); err != nil || len(all) == 0 {
		t.Fatal(all, err)
	}
	if err := EndAll(t.Context(), to, nil, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	if !alive(pid) {
		t.Error("the task of the original was ended")
	}
	if err := EndAll(t.Context(), filepath.Join(to, "none"), nil, slog.New(slog.DiscardHandler)); err != nil {
		t.Errorf("EndAll of a daemon that has run nothing: %v", err)
	}
}
