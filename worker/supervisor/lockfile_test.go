package supervisor

// Files of a runner that are removed while it lives: it still counts as alive, and the files are restored.

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker/driver"
	"github.com/musterhq/muster/worker/runner"
	"github.com/musterhq/muster/worker/runner/proc"
)

// guardPID returns the PID of the guard of the runners of a directory, or 0 if there is none.
func guardPID(t *testing.T, dir string) int {
	t.Helper()
	for _, pid := range runnersOf(t, dir) {
		words, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
		if err == nil && slices.Contains(strings.Split(string(words), "\x00"), runner.GuardFlag) {
			return pid
		}
	}
	return 0
}

func TestRunnerWithARemovedLockFileCountsAsAlive(t *testing.T) {
	eachMode(t, func(t *testing.T, mode string) {
		dir := testDir(t)
		cfg := config(mode, dir, "1")
		cfg.Args = append(cfg.Args, guarded)
		r := newRigOf(t, cfg, mode)
		r.start(r.shell(1, "sleep "+nap(r, 1)+" & wait"))
		r.expect(driver.Started)
		child := sleeper(t, nap(r, 1))
		await(t, "guard", func() bool { return guardPID(t, dir) != 0 })
		guard := guardPID(t, dir)
		if err := os.Remove(r.d.dir.Lock(1)); err != nil {
			t.Fatal(err)
		}
		if err := unix.Kill(guard, unix.SIGKILL); err != nil { // the next one finds no lock
			t.Fatal(err)
		}
		cut := make(chan struct{})
		if err := r.d.inbox.put(func(s *state) { s.runners.links[1].cut(); close(cut) }); err != nil {
			t.Fatal(err)
		}
		<-cut
		await(t, "another guard", func() bool { pid := guardPID(t, dir); return pid != 0 && pid != guard })
		await(t, "lock file", func() bool { info, err := r.d.dir.ReadInfo(1); return err == nil && info.PID != 0 })
		if proc.StartTicks(child) == 0 || proc.Ended(child) {
			t.Fatal("the task has ended")
		}
		r.stop()
		r = newRigOf(t, cfg, mode) // as after a restart of the daemon
		if len(r.found) != 1 || r.found[0].Kind != driver.Started {
			t.Errorf("found %+v, want 1 of them and [0].Kind %v", r.found, driver.Started)
		}
		if err := r.d.Stop(r.attempt(1), 0, "enough"); err != nil {
			t.Fatal(err)
		}
		if e := r.expect(driver.Exited); e.Exit.State != job.Cancelled {
			t.Errorf("%+v, want Exit.State %v", e, job.Cancelled)
		}
	})
}

// The whole directory is removed while a task runs, and is restored soon. Other tasks start, including those of users
// who had tasks before. The next daemon finds the running task, and learns of ends.
func TestRemovedRunDirectoryIsRestored(t *testing.T) {
	for name, rigIn := range map[string]func(*testing.T) *rig{
		"private /tmp": func(t *testing.T) *rig { return privateRig(t, "groups") },
		"bare":         func(t *testing.T) *rig { return newRig(t, "bare", testDir(t), "1") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := rigIn(t)
			if e := r.run(r.shell(1, "true")); e.State != job.Succeeded { // leaves directories for later tasks
				t.Fatalf("%+v, want State %v", e, job.Succeeded)
			}
			r.start(r.shell(2, "sleep "+nap(r, 2)+" & wait"))
			r.expect(driver.Started)
			sleeper(t, nap(r, 2)) // the shell has read its script
			if err := os.RemoveAll(r.dir); err != nil {
				t.Fatal(err)
			}
			await(t, "files again", func() bool { info, err := r.d.dir.ReadInfo(1); return err == nil && info.PID != 0 })
			for n := range 2 {
				if e := r.run(r.shell(3+n, "echo x >/tmp/f$$; rm /tmp/f$$")); e.State != job.Succeeded {
					t.Errorf("%+v, want State %v", e, job.Succeeded)
				}
			}
			r.stop()
			r = newRigOf(t, r.d.cfg, r.mode)
			found := false
			for _, e := range r.found {
				found = found || e.Attempt == r.attempt(2) && e.Kind == driver.Started
			}
			if !found {
				t.Errorf("found %+v, want the running task", r.found)
			}
			if err := r.d.Stop(r.attempt(2), 0, "enough"); err != nil {
				t.Fatal(err)
			}
			for {
				e := r.next()
				if e.Kind != driver.Exited || e.Attempt != r.attempt(2) {
					continue
				}
				if e.Exit.State != job.Cancelled {
					t.Errorf("%+v, want Exit.State %v", e, job.Cancelled)
				}
				return
			}
		})
	}
}
