package supervisor

// The grace of a task is for all its processes, whichever of them ends first.

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker/driver"
	"github.com/musterhq/muster/worker/output"
	"github.com/musterhq/muster/worker/runner/protocol"
)

// saves is a program that saves its work on TERM. This takes longer than the shell around it lives. It starts another
// program for it, which must not get the signal.
const saves = `trap "sleep 0.3; echo saved; exit 0" TERM; echo up; while :; do sleep 0.01; done`

// awaitOutput waits until a task has written a text.
func (r *rig) awaitOutput(a job.Attempt, text string) {
	r.t.Helper()
	await(r.t, fmt.Sprintf("output %q", text), func() bool { return r.output(a, output.Stdout) == text })
}

// TERM ends a shell without a trap at once. The program that it started still has the grace.
func TestChildOfAShellHasTheGrace(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, mode string) {
		for name, script := range map[string]string{
			"child": "sh -c '%s'; echo never", "background": "sh -c '%s' & sleep 1000; echo never", "session": "setsid sh -c '%s' & wait; echo never",
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				r := newRig(t, mode, testDir(t), "1")
				k := r.shell(1, fmt.Sprintf(script, saves))
				r.start(k)
				r.expect(driver.Started)
				r.awaitOutput(k.Attempt, "up\n")
				before := time.Now()
				if err := r.d.Stop(k.Attempt, time.Minute, "enough"); err != nil {
					t.Fatal(err)
				}
				e := r.expect(driver.Exited).Exit
				if took := time.Since(before); e.State != job.Cancelled || e.Signal != int(unix.SIGTERM) || e.Code != 143 || took > patience || e.Ended.Sub(before) < 300*time.Millisecond {
					t.Errorf("after %s: %+v, want CANCELLED by TERM after the program has saved its work", took, e)
				}
				if out := r.output(k.Attempt, output.Stdout); out != "up\nsaved\n" {
					t.Errorf(`output %q, want "up\nsaved\n"`, out)
				}
			})
		}
	})
}

// A process that does not end is killed after the grace, and not before.
func TestProcessIsKilledAfterTheGrace(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, mode string) {
		r := newRig(t, mode, testDir(t), "1")
		at := filepath.Join(r.dir, "pid")
		k := r.shell(1, fmt.Sprintf(hiding, at))
		k.TimeLimit, k.Grace = time.Second, time.Second
		r.start(k)
		main := r.expect(driver.Started).PID
		hidden := writerOf(t, at)
		await(t, "end of the shell", func() bool { return !alive(main) })
		if !alive(hidden) {
			t.Error("a process of the task was killed during the grace")
		}
		e := r.expect(driver.Exited).Exit
		if took := e.Ended.Sub(e.Began); e.State != job.Timeout || e.Signal != int(unix.SIGTERM) || took < 2*time.Second {
			t.Errorf("after %s: %+v, want State %v, Signal %v and at least %v", took, e, job.Timeout, int(unix.SIGTERM), 2*time.Second)
		}
		if alive(hidden) {
			t.Error("a process outlived the task")
		}
	})
}

// The end of a task does not wait for a command of muster exec.
func TestEndOfATaskDoesNotWaitForCommands(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, mode string) {
		r := newRig(t, mode, testDir(t), "1")
		k := r.shell(1, fmt.Sprintf("sh -c '%s'", saves))
		r.start(k)
		r.expect(driver.Started)
		r.awaitOutput(k.Attempt, "up\n")
		at := filepath.Join(r.dir, "pid")
		s, err := r.d.Exec(t.Context(), k.Attempt, protocol.Command{Command: []string{"sh", "-c", fmt.Sprintf(`trap "" TERM; echo $$ >%s; while :; do sleep 1; done`, at)}}, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		writerOf(t, at)
		before := time.Now()
		if err := r.d.Stop(k.Attempt, time.Hour, "enough"); err != nil {
			t.Fatal(err)
		}
		if e := r.expect(driver.Exited).Exit; e.Signal != int(unix.SIGTERM) || e.Ended.Sub(before) < 300*time.Millisecond {
			t.Errorf("%+v, want Signal %v and Ended.Sub(before) at least %v", e, int(unix.SIGTERM), 300*time.Millisecond)
		}
		if out := r.output(k.Attempt, output.Stdout); out != "up\nsaved\n" {
			t.Errorf(`output %q, want "up\nsaved\n"`, out)
		}
	})
}

// When a task ends by itself, its remaining processes are killed at once.
func TestProcessesLeftAtTheEndHaveNoGrace(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, mode string) {
		r := newRig(t, mode, testDir(t), "1")
		at := filepath.Join(r.dir, "pid")
		k := r.shell(1, fmt.Sprintf(`( setsid sh -c 'trap "" TERM; echo $$ >%s; sleep 1000; echo' & ); while [ ! -s %[1]s ]; do sleep 0.01; done; exit 3`, at))
		k.Grace = time.Hour
		if e := r.run(k); e.State != job.Failed || e.Code != 3 {
			t.Errorf("%+v, want State %v and Code 3", e, job.Failed)
		}
		if pid := writerOf(t, at); alive(pid) {
			t.Errorf("process %d outlived the task", pid)
		}
	})
}
