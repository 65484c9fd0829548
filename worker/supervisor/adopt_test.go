package supervisor

// What happens to tasks when the daemon or their runner is killed.

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker/driver"
	"github.com/musterhq/muster/worker/output"
	"github.com/musterhq/muster/worker/runner/protocol"
)

// killDaemon starts a daemon in its own process, which starts the script. It kills the daemon as soon as the task runs,
// and returns the task's PID.
func killDaemon(t *testing.T, mode, dir, script string) int {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self, asDaemon, mode, dir, script)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed
	return pid
}

// adoptedEnd returns the exit of the only adopted attempt. The exit may be in the journal before it is synced. Then the
// runner still reports the attempt as running, and the exit follows as an event.
func (r *rig) adoptedEnd() job.Exit {
	r.t.Helper()
	if len(r.found) != 1 {
		r.t.Fatalf("adopted %+v, want 1 of them", r.found)
	}
	if e := r.found[0]; e.Kind == driver.Exited {
		return e.Exit
	}
	return r.expect(driver.Exited).Exit
}

func TestRunningTaskIsAdopted(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, mode string) {
		dir := testDir(t)
		gate := filepath.Join(dir, "gate")
		pid := killDaemon(t, mode, dir, fmt.Sprintf("echo before; while [ ! -e %s ]; do sleep 0.01; done; echo after; exit 9", gate))
		if !alive(pid) {
			t.Fatal("the task ended with the daemon")
		}
		before := time.Now()
		r := newRig(t, mode, dir, "1")
		want := driver.Event{Attempt: r.attempt(1), Kind: driver.Started, PID: pid}
		if len(r.found) == 1 {
			if r.found[0].Isolation == "" {
				t.Error("the isolation of the task is unknown after the adoption")
			}
			want.Isolation, want.Began = r.found[0].Isolation, r.found[0].Began
			if want.Began.IsZero() || !want.Began.Before(before) {
				t.Errorf("its process began at %s, want a time before %s", want.Began, before)
			}
		}
		if len(r.found) != 1 || r.found[0] != want {
			t.Fatalf("adopted %+v, want %+v", r.found, want)
		}
		if err := os.WriteFile(gate, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if e := r.expect(driver.Exited); e.Exit.Code != 9 || e.Attempt != r.attempt(1) {
			t.Errorf("%+v, want Exit.Code 9 and Attempt %v", e, r.attempt(1))
		}
		if out := r.output(r.attempt(1), output.Stdout); out != "before\nafter\n" {
			t.Errorf(`output %q, want "before\nafter\n"`, out)
		}
	})
}

func TestEndedTaskIsAdopted(t *testing.T) {
	t.Parallel()
	dir := testDir(t)
	gate := filepath.Join(dir, "gate")
	killDaemon(t, "groups", dir, fmt.Sprintf("while [ ! -e %s ]; do sleep 0.01; done; echo done; exit 9", gate))
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	await(t, "end on disk", func() bool {
		_, err := protocol.Dir(dir).FindEnd(attemptIn(dir, 1))
		return err == nil
	})
	for range 2 { // an exit is reported each time until it is forgotten
		r := newRig(t, "groups", dir, "1")
		if e := r.adoptedEnd(); e.Code != 9 {
			t.Fatalf("%+v, want Code 9", e)
		}
		r.stop()
	}
	await(t, "idle runner to end", func() bool {
		all, err := protocol.Dir(dir).Generations()
		return err == nil && len(all) == 0
	})
	r := newRig(t, "groups", dir, "1")
	if err := r.d.Forget(r.attempt(1)); err != nil {
		t.Fatal(err)
	}
	await(t, "end to be forgotten", func() bool {
		_, err := protocol.Dir(dir).FindEnd(r.attempt(1))
		return errors.Is(err, os.ErrNotExist)
	})
	r.stop()
	r = newRig(t, "groups", dir, "1")
	if len(r.found) != 0 {
		t.Errorf("adopted %+v after it was forgotten, want none", r.found)
	}
	if out := r.output(r.attempt(1), output.Stdout); out != "done\n" {
		t.Errorf(`output %q, want "done\n"`, out)
	}
}

// TestRunningTaskIsNotTakenForEnded asks a new daemon for a task whose runner it has not reached yet.
func TestRunningTaskIsNotTakenForEnded(t *testing.T) {
	t.Parallel()
	dir := testDir(t)
	gate := filepath.Join(dir, "gate")
	killDaemon(t, "groups", dir, fmt.Sprintf("echo before; while [ ! -e %s ]; do sleep 0.01; done; echo after", gate))
	info, err := protocol.Dir(dir).ReadInfo(1)
	if err != nil {
		t.Fatal(err)
	}
	freeze(t, info.PID)
	a := attemptIn(dir, 1)
	r := launchRig(t, config("groups", dir, "1"), "groups")
	soon, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	for what, ask := range map[string]func() error{
		"follow": func() error { _, err := r.d.Follow(soon, a, output.Both, 0, true); return err },
		"exec":   func() error { _, err := r.d.Exec(soon, a, protocol.Command{Command: []string{"true"}}, 0); return err },
		"attach": func() error { _, err := r.d.Attach(soon, a); return err },
	} {
		if err := ask(); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s, before the runner was reached: %v, want context.DeadlineExceeded", what, err)
		}
	}
	if err := unix.Kill(info.PID, unix.SIGCONT); err != nil {
		t.Fatal(err)
	}
	f, err := r.d.Follow(t.Context(), a, output.Both, 0, true)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if log, err := io.ReadAll(f); string(log) != "before\nafter\n" || err != nil {
		t.Errorf(`its log is %q, %v, want "before\nafter\n" and no error`, log, err)
	}
}

// No daemon runs when the time limit and then the grace end. The runner sends TERM and KILL by itself.
func TestTimeLimitIsEnforcedWithoutADaemon(t *testing.T) {
	t.Parallel()
	dir := testDir(t)
	r := newRig(t, "groups", dir, "1")
	k := r.shell(1, deaf)
	k.TimeLimit, k.Grace = job.MinLease/100, job.MinLease/100
	r.start(k)
	r.expect(driver.Started)
	r.stop()
	await(t, "end on disk", func() bool {
		_, err := protocol.Dir(dir).FindEnd(attemptIn(dir, 1))
		return err == nil
	})
	r = newRig(t, "groups", dir, "1")
	if e := r.adoptedEnd(); e.State != job.Timeout || e.Signal != int(unix.SIGKILL) {
		t.Errorf("%+v, want State %v and Signal %v", e, job.Timeout, int(unix.SIGKILL))
	}
}

func killRunner(t *testing.T, dir string, n int) {
	t.Helper()
	info, err := protocol.Dir(dir).ReadInfo(n)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Kill(info.PID, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
}

const hiding = `( setsid sh -c 'trap "" TERM; echo $$ >%s; sleep 1000; echo' & ); while [ ! -s %[1]s ]; do sleep 0.01; done; sleep 1000`

func TestTasksEndWithTheirRunner(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, mode string) {
		dir := testDir(t)
		r := newRig(t, mode, dir, "1")
		at := filepath.Join(dir, "pid")
		r.start(r.shell(0, fmt.Sprintf(hiding, at)))
		main := r.expect(driver.Started).PID
		hidden := writerOf(t, at)
		killRunner(t, dir, 1)
		e := r.expect(driver.Lost)
		if e.Attempt != r.attempt(0) || e.Exit.State != job.NodeFail {
			t.Errorf("%+v, want Attempt %v and Exit.State %v", e, r.attempt(0), job.NodeFail)
		}
		if alive(main) || alive(hidden) {
			t.Errorf("reported as lost, but alive: main process %t, hidden process %t", alive(main), alive(hidden))
		}
		if e := r.run(r.task(1, "true")); e.State != job.Succeeded { // the next runner runs it
			t.Errorf("%+v, want State %v", e, job.Succeeded)
		}
	})
}

func TestTasksEndWithTheirDaemonAndRunner(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, mode string) {
		dir := testDir(t)
		at := filepath.Join(dir, "pid")
		main := killDaemon(t, mode, dir, fmt.Sprintf(hiding, at))
		hidden := writerOf(t, at)
		killRunner(t, dir, 1)
		r := newRig(t, mode, dir, "1")
		if len(r.found) != 0 {
			t.Errorf("adopted %+v, want none", r.found)
		}
		if alive(main) || alive(hidden) {
			t.Errorf("not adopted, but alive: main process %t, hidden process %t", alive(main), alive(hidden))
		}
	})
}

// A runner is killed while it gets tasks. The end of each task is reported once, and no task runs twice.
func TestStartsSurviveTheDeathOfARunner(t *testing.T) {
	t.Parallel()
	dir := testDir(t)
	r := newRig(t, "groups", dir, "1")
	log := filepath.Join(dir, "log")
	const n = 60
	if e := r.run(r.task(n, "true")); e.State != job.Succeeded { // so that a runner runs
		t.Fatalf("%+v, want State %v", e, job.Succeeded)
	}
	for i := range n {
		r.start(r.task(i, "/bin/sh", "-c", fmt.Sprintf("echo %d >>%s", i, log)))
		if i == n/2 {
			killRunner(t, dir, 1)
		}
	}
	ends := map[job.Attempt]driver.Kind{}
	for len(ends) < n {
		if e := r.next(); e.Kind != driver.Started {
			if ends[e.Attempt] != "" {
				t.Errorf("%s ended twice", e.Attempt)
			}
			ends[e.Attempt] = e.Kind
		}
	}
	b, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	ran := map[string]int{}
	for line := range strings.FieldsSeq(string(b)) {
		if ran[line]++; ran[line] > 1 {
			t.Errorf("task %s ran twice", line)
		}
	}
	for a, kind := range ends {
		if kind == driver.Exited && ran[strconv.Itoa(a.Task)] == 0 {
			t.Errorf("%s is reported as exited but never ran", a)
		}
	}
}

func TestRunnerOfAnOldVersionEndsWithItsTasks(t *testing.T) {
	t.Parallel()
	dir := testDir(t)
	gate := filepath.Join(dir, "gate")
	pid := killDaemon(t, "groups", dir, fmt.Sprintf("while [ ! -e %s ]; do sleep 0.01; done; exit 6", gate))
	r := newRig(t, "groups", dir, "2")
	if len(r.found) != 1 || r.found[0].PID != pid {
		t.Fatalf("adopted %+v, want 1 of them and [0].PID %v", r.found, pid)
	}
	if e := r.run(r.task(2, "true")); e.State != job.Succeeded {
		t.Errorf("%+v, want State %v", e, job.Succeeded)
	}
	info, err := protocol.Dir(dir).ReadInfo(2)
	if err != nil || info.Version != "2" {
		t.Errorf(`new runner %+v, %v, want no error and Version "2"`, info, err)
	}
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if e := r.expect(driver.Exited); e.Exit.Code != 6 || e.Attempt != r.attempt(1) {
		t.Errorf("%+v, want Exit.Code 6 and Attempt %v", e, r.attempt(1))
	}
	await(t, "old runner to end", func() bool {
		all, err := protocol.Dir(dir).Generations()
		return err == nil && len(all) == 1 && all[0] == 2
	})
}

// A runner without tasks ends with its daemon. A runner with a task stays, and the next daemon finds it.
func TestRunnerEndsWithItsDaemon(t *testing.T) {
	t.Parallel()
	dir := testDir(t)
	gate := filepath.Join(dir, "gate")
	r := newRig(t, stayingMode, dir, "1")
	r.start(r.shell(0, fmt.Sprintf("while [ ! -e %s ]; do sleep 0.01; done", gate)))
	pid := r.expect(driver.Started).PID
	r.stop()
	r = newRig(t, stayingMode, dir, "1")
	if len(r.found) != 1 || r.found[0].PID != pid {
		t.Fatalf("adopted %+v, want 1 of them and [0].PID %v", r.found, pid)
	}
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	r.expect(driver.Exited)
	r.stop()
	await(t, "the runner to end", func() bool {
		all, err := protocol.Dir(dir).Generations()
		return err == nil && len(all) == 0
	})
}

func TestRunnerWithoutTasksEnds(t *testing.T) {
	t.Parallel()
	dir := testDir(t)
	r := newRig(t, "groups", dir, "1")
	if e := r.run(r.task(0, "true")); e.State != job.Succeeded {
		t.Fatalf("%+v, want State %v", e, job.Succeeded)
	}
	r.stop()
	await(t, "idle runner to end", func() bool {
		all, err := protocol.Dir(dir).Generations()
		return err == nil && len(all) == 0
	})
}

// The kernel ends all processes of a task with its runner, even without a daemon. That includes processes that have
// left their session and their parents.
func TestNothingOutlivesTheRunner(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, mode string) {
		dir := testDir(t)
		at := filepath.Join(dir, "pid")
		main := killDaemon(t, mode, dir, fmt.Sprintf(hiding, at))
		hidden := writerOf(t, at)
		if hidden == 0 || !alive(hidden) {
			t.Fatalf("process %d of the task is not alive", hidden)
		}
		if info, err := protocol.Dir(dir).ReadInfo(1); err != nil || !info.PIDNamespace {
			t.Skipf("no PID namespaces on this host: %+v, %v", info, err)
		}
		killRunner(t, dir, 1)
		await(t, "end of the main process and of the hidden one", func() bool { return !alive(main) && !alive(hidden) })
	})
}
