package supervisor

// Each way to end a task. No process of it is left afterwards.

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker/driver"
	"github.com/musterhq/muster/worker/leaseclock"
	"github.com/musterhq/muster/worker/output"
)

// deaf is a script that ignores TERM. It prints ready once it does.
const deaf = "trap '' TERM; echo ready; while :; do sleep 1000; done"

// ready waits for the first line of a task's output.
func (r *rig) ready(a job.Attempt) {
	r.t.Helper()
	await(r.t, "task to be ready", func() bool { return strings.HasPrefix(r.output(a, output.Stdout), "ready\n") })
}

func TestStoppedTaskEnds(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, mode string) {
		r := newRig(t, mode, testDir(t), "1")
		polite := r.shell(0, "trap 'exit 3' TERM; echo ready; while :; do sleep 0.01; done")
		r.start(polite)
		r.expect(driver.Started)
		r.ready(polite.Attempt)
		if err := r.d.Stop(polite.Attempt, time.Minute, "not wanted"); err != nil {
			t.Fatal(err)
		}
		if e := r.expect(driver.Exited).Exit; e.State != job.Cancelled || e.Code != 3 || e.Reason != "not wanted" {
			t.Errorf(`%+v, want State %v, Code 3 and Reason "not wanted"`, e, job.Cancelled)
		}

		stubborn := r.shell(1, deaf)
		r.start(stubborn)
		pid := r.expect(driver.Started).PID
		r.ready(stubborn.Attempt)
		const grace = 300 * time.Millisecond
		begun := time.Now()
		if err := r.d.Stop(stubborn.Attempt, grace, "not wanted"); err != nil {
			t.Fatal(err)
		}
		e := r.expect(driver.Exited).Exit
		if took := time.Since(begun); took < grace || took > grace+3*time.Second {
			t.Errorf("ended after %s, want %s", took, grace)
		}
		if e.State != job.Cancelled || e.Signal != int(unix.SIGKILL) || e.Code != 137 {
			t.Errorf("%+v, want State %v, Signal %v and Code 137", e, job.Cancelled, int(unix.SIGKILL))
		}
		if alive(pid) {
			t.Errorf("process %d is still alive", pid)
		}
	})
}

// A task ends at its time limit. How soon after depends on the machine. That the runner is woken at that very moment is
// checked with its watch (TestWatchSendsSignalsInTime) and its timer (TestTimerIsSetToTheNextLimit).
func TestTaskEndsAtItsTimeLimit(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, mode string) {
		r := newRig(t, mode, testDir(t), "1")
		k := r.task(0, "sleep", "1000")
		k.TimeLimit = 400 * time.Millisecond
		e := r.run(k)
		if e.State != job.Timeout || e.Reason != "time limit of 400ms reached" || e.Signal != int(unix.SIGTERM) {
			t.Errorf(`%+v, want State %v, Reason "time limit of 400ms reached" and Signal %v`, e, job.Timeout, int(unix.SIGTERM))
		}
		if late := e.Ended.Sub(e.Began) - k.TimeLimit; late < 0 {
			t.Errorf("ended %s early", -late)
		}
	})
}

func TestTaskEndsWithItsLease(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, mode string) {
		r := newRig(t, mode, testDir(t), "1")
		k := r.shell(0, deaf)
		k.Hold = false
		k.Deadline = leaseclock.Now().Add(time.Second)
		r.start(k)
		extended := k.Deadline.Add(700 * time.Millisecond)
		if err := r.d.Extend(map[job.Attempt]leaseclock.BootTime{k.Attempt: extended}); err != nil { // right after the start, because it must arrive before the first deadline
			t.Fatal(err)
		}
		r.expect(driver.Started)
		e := r.expect(driver.Exited).Exit
		if e.State != job.NodeFail || e.Reason != "lease ran out" || e.Signal != int(unix.SIGKILL) {
			t.Errorf(`%+v, want State %v, Reason "lease ran out" and Signal %v`, e, job.NodeFail, int(unix.SIGKILL))
		}
		if late := leaseclock.Now().Sub(extended); late < 0 || late > 2*time.Second {
			t.Errorf("ended %s after the deadline, want at least 0 and at most %v", late, 2*time.Second)
		}

		late := r.task(1, "true")
		late.Hold, late.Deadline = false, leaseclock.Now()
		if err := r.d.Start(late); err == nil {
			t.Error("a task was started after its deadline")
		}
	})
}

// Processes that tasks leave behind are killed, even in their own session, without a parent, and without an
// environment.
func TestProcessesLeftByATaskAreKilled(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, hide string }{
		{"child", "sh -c"},
		{"session", "setsid sh -c"},
		{"session and environment", "env -i PATH=\"$PATH\" setsid sh -c"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			eachMode(t, func(t *testing.T, mode string) {
				r := newRig(t, mode, testDir(t), "1")
				at := filepath.Join(r.dir, "pid")
				leave := fmt.Sprintf(`( %s 'trap "" TERM; echo $$ >%s; sleep 1000; echo' & ); while [ ! -s %[2]s ]; do sleep 0.01; done`, tt.hide, at)

				e := r.run(r.shell(0, leave+"; exit 5"))
				if e.Code != 5 || e.State != job.Failed {
					t.Errorf("%+v, want Code 5 and State %v", e, job.Failed)
				}
				if pid := writerOf(t, at); alive(pid) {
					t.Errorf("process %d is alive after the end of its task", pid)
				}

				if err := os.Remove(at); err != nil {
					t.Fatal(err)
				}
				k := r.shell(1, leave+"; sleep 1000")
				r.start(k)
				r.expect(driver.Started)
				pid := writerOf(t, at)
				if err := r.d.Stop(k.Attempt, 100*time.Millisecond, "enough"); err != nil {
					t.Fatal(err)
				}
				if e := r.expect(driver.Exited).Exit; e.State != job.Cancelled {
					t.Errorf("%+v, want State %v", e, job.Cancelled)
				}
				if alive(pid) {
					t.Errorf("process %d is alive after its task was stopped", pid)
				}
			})
		})
	}
}

func TestSignalReachesAllProcesses(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, mode string) {
		r := newRig(t, mode, testDir(t), "1")
		got := filepath.Join(r.dir, "got")
		inner := fmt.Sprintf(`trap "echo inner >>%s; exit" USR1; echo ready; while :; do sleep 0.01; done`, got)
		k := r.shell(0, fmt.Sprintf(`trap "echo outer >>%s" USR1
			setsid sh -c '%s' & c=$!
			wait $c; wait $c; exit 4`, got, inner))
		r.start(k)
		r.expect(driver.Started)
		r.ready(k.Attempt)
		if err := r.d.Signal(k.Attempt, int(unix.SIGUSR1)); err != nil {
			t.Fatal(err)
		}
		if e := r.expect(driver.Exited).Exit; e.Code != 4 && e.Code != 0 {
			t.Errorf("got %+v, want code 4 or 0", e)
		}
		b, err := os.ReadFile(got)
		if text := string(b); err != nil || !strings.Contains(text, "inner") || !strings.Contains(text, "outer") {
			t.Errorf(`the signal reached only %q, %v, want no error, "inner" in it and "outer" in it`, text, err)
		}
	})
}

func TestStopEndsAStoppedProcess(t *testing.T) {
	t.Parallel()
	r := newRig(t, "groups", testDir(t), "1")
	k := r.task(0, "sleep", "1000")
	r.start(k)
	r.expect(driver.Started)
	if err := r.d.Signal(k.Attempt, int(unix.SIGSTOP)); err != nil {
		t.Fatal(err)
	}
	if err := r.d.Stop(k.Attempt, time.Minute, "enough"); err != nil {
		t.Fatal(err)
	}
	if e := r.expect(driver.Exited).Exit; e.Signal != int(unix.SIGTERM) {
		t.Errorf("%+v, want Signal %v", e, int(unix.SIGTERM))
	}
}

func TestStopBeforeTheProcessStarts(t *testing.T) {
	t.Parallel()
	r := newRig(t, "groups", testDir(t), "1")
	for i := range 50 {
		k := r.task(i, "sleep", "1000")
		r.start(k)
		if err := r.d.Stop(k.Attempt, 0, "changed my mind"); err != nil {
			t.Fatal(err)
		}
		e := r.next()
		if e.Kind == driver.Started {
			e = r.next()
		}
		if e.Exit.State != job.Cancelled || (e.Kind == driver.Exited) != e.Exit.Started {
			t.Errorf("got %+v, want CANCELLED, and an exit only of a started task", e)
		}
	}
}
