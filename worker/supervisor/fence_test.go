package supervisor

// A runner that is stopped: its guard ends the tasks whose lease is over, or else the daemon does. A runner that is
// killed: none of its processes goes on.

import (
	"fmt"
	"hash/fnv"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker/driver"
	"github.com/musterhq/muster/worker/leaseclock"
	"github.com/musterhq/muster/worker/runner/proc"
)

// stoppedRunner stops the runner of a rig, and returns its PID.
func stoppedRunner(t *testing.T, r *rig) (pid int) {
	t.Helper()
	info, err := r.d.dir.ReadInfo(1)
	if err != nil {
		t.Fatal(err)
	}
	freeze(t, info.PID)
	return info.PID
}

// nap is the time for which a child of a task sleeps. The child is found by it, as no other process of the host sleeps
// for so long.
func nap(r *rig, n int) string {
	h := fnv.New32a()
	_, _ = io.WriteString(h, r.dir)
	return fmt.Sprintf("%d.%d", 1000+n, h.Sum32())
}

// sleeper waits for the child of a task and returns its PID on the host. The shell knows only the PID in its namespace.
func sleeper(t *testing.T, nap string) (pid int) {
	t.Helper()
	await(t, "sleep "+nap, func() bool {
		for _, p := range proc.AllPIDs() {
			if words, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p)); err == nil && string(words) == "sleep\x00"+nap+"\x00" {
				pid = p
			}
		}
		return pid > 0
	})
	return pid
}

// TestGuardEndsTasksOfAStoppedRunner checks that a renewed task goes on, though its runner reads no renewal. The
// processes of a task without a renewal end a moment after its deadline, including those that the shell started.
func TestGuardEndsTasksOfAStoppedRunner(t *testing.T) {
	for _, who := range []string{guarded, "daemon"} {
		for _, mode := range modes {
			t.Run(who+" "+mode, func(t *testing.T) {
				t.Parallel()
				dir := testDir(t)
				cfg := config(mode, dir, "1")
				if who == guarded {
					cfg.Args = append(cfg.Args, guarded)
				}
				r := newRigOf(t, cfg, mode)
				const over, renewed = 1, 2
				deadline := leaseclock.Now().Add(3 * time.Second)
				for n := range 3 {
					k := r.shell(n, "sleep "+nap(r, n)+" & wait")
					if n != 0 {
						k.Hold, k.Deadline = false, deadline
					}
					r.start(k)
					r.expect(driver.Started)
				}
				child := map[int]int{}
				for n := range 3 {
					child[n] = sleeper(t, nap(r, n))
				}
				pid := stoppedRunner(t, r)
				if err := r.d.Extend(map[job.Attempt]leaseclock.BootTime{r.attempt(renewed): deadline.Add(time.Hour)}); err != nil {
					t.Fatal(err)
				}
				await(t, "end of the task whose lease is over", func() bool { return proc.StartTicks(child[over]) == 0 || proc.Ended(child[over]) })
				if now := leaseclock.Now(); now < deadline {
					t.Errorf("ended %s before its deadline", deadline.Sub(now))
				}
				if err := unix.Kill(pid, unix.SIGCONT); err != nil {
					t.Fatal(err)
				}
				e := r.expect(driver.Exited)
				if e.Attempt != r.attempt(over) || e.Exit.State != job.NodeFail || e.Exit.Reason != "lease ran out while the runner stood still" {
					t.Errorf(`%+v, want Attempt %v, Exit.State %v and Exit.Reason "lease ran out while the runner stood still"`, e, r.attempt(over), job.NodeFail)
				}
				for _, n := range []int{0, renewed} {
					if proc.StartTicks(child[n]) == 0 || proc.Ended(child[n]) {
						t.Errorf("task %d does not go on", n)
					}
					if err := r.d.Stop(r.attempt(n), 0, "enough"); err != nil {
						t.Fatal(err)
					}
					if e := r.expect(driver.Exited); e.Exit.State != job.Cancelled {
						t.Errorf("task %d: %+v, want Exit.State %v", n, e, job.Cancelled)
					}
				}
			})
		}
	}
}

// TestGuardEndsProcessesLeftByTheMainProcess checks tasks without PID namespaces. When the runner is stopped, what a main
// process has left is ended too, whether the runner has seen the end of the main process or not.
func TestGuardEndsProcessesLeftByTheMainProcess(t *testing.T) {
	for _, who := range []string{guarded, "daemon"} {
		for _, mode := range []string{"groups", "nounified", "bare"} {
			for _, seen := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s %s seen=%t", who, mode, seen), func(t *testing.T) {
					t.Parallel()
					cfg := config(mode, testDir(t), "1")
					cfg.Args = append(cfg.Args, noSpaces)
					if who == guarded {
						cfg.Args = append(cfg.Args, guarded)
					}
					r := newRigOf(t, cfg, mode)
					k := r.shell(0, "sh -c 'trap \"\" TERM; exec sleep "+nap(r, 0)+"' & while [ ! -e go ]; do sleep 0.01; done")
					k.Hold, k.Deadline = false, leaseclock.Now().Add(5*time.Second)
					r.start(k)
					main := r.expect(driver.Started).PID
					child := sleeper(t, nap(r, 0))
					if seen { // before the deadline the shell gets TERM, and its child has the rest of the lease
						await(t, "end of the shell", func() bool { return proc.StartTicks(main) == 0 })
					}
					pid := stoppedRunner(t, r)
					if !seen {
						if err := os.WriteFile(filepath.Join(r.d.dir.Scratch(k.Attempt), "go"), nil, 0o600); err != nil {
							t.Fatal(err)
						}
						await(t, "end of the shell", func() bool { return proc.Ended(main) })
					}
					if proc.Ended(child) || leaseclock.Now() >= k.Deadline {
						t.Fatal("the task did not end before its lease")
					}
					await(t, "end of the child", func() bool { return proc.Ended(child) })
					if err := unix.Kill(pid, unix.SIGCONT); err != nil {
						t.Fatal(err)
					}
					r.expect(driver.Exited)
				})
			}
		}
	}
}

// TestGuardWorksWithoutTheFilesOfItsRunner checks a guard that starts when the files of its living runner are missing.
// It ends no task at first, then it ends a task whose lease is over, and all tasks when the runner is dead.
func TestGuardWorksWithoutTheFilesOfItsRunner(t *testing.T) {
	eachMode(t, func(t *testing.T, mode string) {
		dir := testDir(t)
		cfg := config(mode, dir, "1")
		cfg.Args = append(cfg.Args, guarded)
		r := newRigOf(t, cfg, mode)
		const held, leased = 0, 1
		child := map[int]int{}
		for n := range 2 {
			k := r.shell(n, "sleep "+nap(r, n)+" & wait")
			if n == leased {
				k.Hold, k.Deadline = false, leaseclock.Now().Add(5*time.Second)
			}
			r.start(k)
			r.expect(driver.Started)
			child[n] = sleeper(t, nap(r, n))
		}
		info, err := r.d.dir.ReadInfo(1)
		if err != nil {
			t.Fatal(err)
		}
		r.stop() // only the guard acts from now on
		guardOf := func() int {
			for _, pid := range runnersOf(t, dir) {
				if pid != info.PID && !proc.Ended(pid) {
					return pid
				}
			}
			return 0
		}
		before := guardOf()
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		if err := unix.Kill(before, unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
		await(t, "another guard", func() bool { now := guardOf(); return now != 0 && now != before })
		if err := unix.Kill(info.PID, unix.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		await(t, "end of the task whose lease is over", func() bool { return proc.Ended(child[leased]) })
		if proc.Ended(child[held]) {
			t.Error("the guard has ended a task of a living runner")
		}
		if err := unix.Kill(info.PID, unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
		await(t, "end of all", func() bool { return proc.Ended(child[held]) && len(runnersOf(t, dir)) == 0 })
	})
}

// TestRunnerSaysWhetherItFences checks that a runner fences tasks if it has a guard and the kernel allows to end all
// processes of a task. A task that must be fenced starts there, and is refused elsewhere.
func TestRunnerSaysWhetherItFences(t *testing.T) {
	eachMode(t, func(t *testing.T, mode string) {
		for _, who := range []string{guarded, "unguarded"} {
			dir := testDir(t)
			cfg := config(mode, dir, "1")
			if who == guarded {
				cfg.Args = append(cfg.Args, guarded)
			}
			told := make(chan bool, 1)
			cfg.Fences = func(fences bool, isolation string) {
				if isolation == "" {
					t.Error("no isolation")
				}
				select {
				case told <- fences:
				default:
				}
			}
			r := newRigOf(t, cfg, mode)
			fences := <-told
			info, err := r.d.dir.ReadInfo(1)
			if err != nil {
				t.Fatal(err)
			}
			if want := who == guarded && (info.PIDNamespace || info.Cgroup != ""); fences != want || info.Fences != want {
				t.Errorf("%s: fences: %v, with %q, want it exactly with a guard and isolation", who, fences, info.Isolation)
			}
			start := func(n int, fenced, hold bool) driver.Event {
				r.d.fences.Store(fenced)
				k := r.shell(n, "true")
				if !hold {
					k.Hold, k.Deadline = false, leaseclock.Now().Add(time.Hour)
				}
				r.start(k)
				if e := r.next(); e.Kind != driver.Started {
					return e
				}
				return r.expect(driver.Exited)
			}
			if e := start(1, true, false); (e.Exit.State == job.Succeeded) != fences || !fences && !e.Exit.FailedStart() {
				t.Errorf("%s: a fenced task: %+v, want it to run exactly if the runner fences", who, e)
			}
			if e := start(2, true, true); e.Exit.State != job.Succeeded {
				t.Errorf("%s: on hold: %+v, want Exit.State %v", who, e, job.Succeeded)
			}
			if e := start(3, false, false); e.Exit.State != job.Succeeded {
				t.Errorf("%s: not to be fenced: %+v, want Exit.State %v", who, e, job.Succeeded)
			}
			r.stop()
		}
	})
}

// TestGuardEndsTasksOfADeadDaemonAndRunner kills a daemon and its runner at once. The guard ends what the shell of a
// task has started, without another daemon.
func TestGuardEndsTasksOfADeadDaemonAndRunner(t *testing.T) {
	eachMode(t, func(t *testing.T, mode string) {
		dir := testDir(t)
		cfg := config(mode, dir, "1")
		cfg.Args = append(cfg.Args, guarded)
		r := newRigOf(t, cfg, mode)
		k := r.shell(0, "trap '' TERM HUP; sleep "+nap(r, 0)+" & wait")
		r.start(k)
		r.expect(driver.Started)
		child := sleeper(t, nap(r, 0))
		info, err := r.d.dir.ReadInfo(1)
		if err != nil {
			t.Fatal(err)
		}
		r.stop() // the daemon ends first, so that it does not clean up
		if err := unix.Kill(info.PID, unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
		await(t, "end of the child", func() bool { return proc.StartTicks(child) == 0 || proc.Ended(child) })
		await(t, "end of the guard", func() bool { return len(runnersOf(t, dir)) == 0 })
		_ = os.Remove(r.d.dir.Lock(1)) // no one else cleans up here
	})
}
