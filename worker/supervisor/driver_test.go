package supervisor

// Real tasks and real runners: environment, output and exit codes.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/testkit/exetest"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker/driver"
	"github.com/musterhq/muster/worker/output"
	"github.com/musterhq/muster/worker/runner/protocol"
)

func TestExitOfEachScript(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, mode string) {
		r := newRig(t, mode, testDir(t), "1")
		for i, tt := range []struct {
			script string
			want   job.Exit
		}{
			{"exit 0", job.Exit{State: job.Succeeded}},
			{"echo out; echo err >&2; exit 7", job.Exit{State: job.Failed, Code: 7, Tail: "err\n"}},
			{"kill -USR1 $$", job.Exit{State: job.Failed, Code: 138, Signal: 10, Reason: "ended by signal 10 (SIGUSR1)"}},
			{"#!/bin/sh -e\nfalse\n", job.Exit{State: job.Failed, Code: 1}},
			{"echo x >/dev/stderr", job.Exit{State: job.Succeeded, Tail: "x\n"}},
			{"cat", job.Exit{State: job.Succeeded}}, // its standard input is empty
		} {
			got := r.run(r.shell(i, tt.script))
			if got.Began.IsZero() || got.Ended.Before(got.Began) || !got.Started {
				t.Errorf("%q: times of %+v, want a start and a later end", tt.script, got)
			}
			if got.Isolation == "" || mode == "nogroups" && !strings.HasPrefix(got.Isolation, "process group") {
				t.Errorf("%q: isolation %q, want that of the mode", tt.script, got.Isolation)
			}
			got.Began, got.Ended, got.Started, got.Isolation = time.Time{}, time.Time{}, false, ""
			if got != tt.want {
				t.Errorf("%q: %+v, want %+v", tt.script, got, tt.want)
			}
		}
		if out := r.output(r.attempt(1), output.Stdout); out != "out\n" {
			t.Errorf(`output %q, want "out\n"`, out)
		}
	})
}

func TestTaskThatCannotStartFails(t *testing.T) {
	t.Parallel()
	dir := testDir(t)
	r := newRig(t, "groups", dir, "1")
	plain := filepath.Join(dir, "plain")
	if err := os.WriteFile(plain, []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	broken := filepath.Join(dir, "broken")
	if err := exetest.Write(broken, []byte("#!/no/such/shell\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	elsewhere := r.task(4, "true")
	elsewhere.Spec.Workdir = "/no/such/dir"
	for i, tt := range []struct {
		task   driver.Task
		code   int
		reason string
	}{
		{r.task(0, "no-such-command-here"), 127, "command not found: no-such-command-here"},
		{r.task(1, "/no/such/program"), 127, "command not found: /no/such/program"},
		{r.task(2, plain), 126, "not executable: " + plain},
		{r.task(3, dir), 126, "is a directory: " + dir},
		{elsewhere, 126, "workdir /no/such/dir: no such directory on this node"},
		{r.task(5, broken), 126, "cannot execute " + broken + ": its interpreter or loader does not exist"},
	} {
		r.start(tt.task)
		got := r.expect(driver.Failed).Exit
		if got.State != job.Failed || got.Code != tt.code || got.Reason != tt.reason || got.Started {
			t.Errorf("%d: %+v, want %d %q", i, got, tt.code, tt.reason)
		}
	}
}

func TestTaskHasItsEnvironment(t *testing.T) {
	t.Parallel()
	r := newRig(t, "groups", testDir(t), "1")
	k := r.shell(0, `pwd; echo "$MUSTER_SCRATCH"; cat "$MUSTER_HOSTFILE"; env | cut -d= -f1 | sort | tr '\n' ' '`)
	k.Hostfile = "10.0.0.1 slots=2\n"
	if got := r.run(k); got.State != job.Succeeded {
		t.Fatalf("%+v, want State %v", got, job.Succeeded)
	}
	lines := strings.Split(r.output(k.Attempt, output.Stdout), "\n")
	scratch := filepath.Join(protocol.Dir(r.dir).Task(k.Attempt), "scratch")
	want := "MUSTER_ATTEMPT MUSTER_HOSTFILE MUSTER_JOB_ID MUSTER_SCRATCH MUSTER_TASK PATH PWD "
	if os.Geteuid() == 0 {
		want = "HOME " + strings.TrimSuffix(want, " ") + " USER "
	}
	if len(lines) != 4 || lines[0] != scratch || lines[1] != scratch || lines[2] != "10.0.0.1 slots=2" || lines[3] != want {
		t.Errorf("the task saw %q, want its directories, the hostfile and the rest of its environment", lines)
	}
}

// A member of a gang has its own host file, which is removed with its directory. Single tasks of a host share one.
func TestMembersOfAGangHaveTheirOwnHostfiles(t *testing.T) {
	t.Parallel()
	r := newRig(t, "groups", testDir(t), "1")
	var paths []string
	for i, hosts := range []string{"10.0.0.1 slots=1\n", "10.0.0.1 slots=1\n", "10.0.0.1 slots=1\n10.0.0.2 slots=1\n", "10.0.0.1 slots=1\n10.0.0.2 slots=1\n"} {
		k := r.shell(i, `echo "$MUSTER_HOSTFILE"; cat "$MUSTER_HOSTFILE"`)
		k.Hostfile = hosts
		if got := r.run(k); got.State != job.Succeeded {
			t.Fatalf("%+v, want State %v", got, job.Succeeded)
		}
		path, text, _ := strings.Cut(r.output(k.Attempt, output.Stdout), "\n")
		if text != hosts {
			t.Errorf("%s: %q, want %q", path, text, hosts)
		}
		if own := filepath.Dir(path) == protocol.Dir(r.dir).Task(k.Attempt); own != (i >= 2) {
			t.Errorf("task %d has %s, want its own only for a member of a gang", i, path)
		}
		paths = append(paths, path)
	}
	if paths[0] != paths[1] {
		t.Errorf("two tasks of one host have %q, want the same", paths[:2])
	}
}

func TestProgramIsFoundFromTheWorkingDirectory(t *testing.T) {
	t.Parallel()
	dir := testDir(t)
	r := newRig(t, "groups", dir, "1")
	// A script without a #! line is run by a shell.
	if err := exetest.Write(filepath.Join(dir, "tool"), []byte("echo \"$0 $1\"; pwd\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for i, name := range []string{"./tool", "tool"} {
		k := r.task(i, name, "a b")
		k.Spec.Workdir = dir
		k.Env[0] = "PATH=.:" + os.Getenv("PATH")
		if got := r.run(k); got.State != job.Succeeded {
			t.Fatalf("%s: %+v, want State %v", name, got, job.Succeeded)
		}
		want := filepath.Join(dir, "tool") + " a b\n" + dir + "\n"
		if out := r.output(k.Attempt, output.Stdout); out != want {
			t.Errorf("%s: output %q, want %q", name, out, want)
		}
	}
}

func TestTailIsTheEndOfTheOutput(t *testing.T) {
	t.Parallel()
	r := newRig(t, "groups", testDir(t), "1")
	got := r.run(r.shell(0, `i=0; while [ $i -lt 2000 ]; do echo "öä $i"; i=$((i+1)); done >&2; printf '\377' >&2`))
	if len(got.Tail) > job.TailBytes || len(got.Tail) < job.TailBytes-3 || !strings.HasSuffix(got.Tail, "öä 1999\n?") {
		t.Errorf("tail of %d bytes ends in %q, want whole characters up to the cut", len(got.Tail), got.Tail[max(0, len(got.Tail)-20):])
	}
}

func TestRunnerRunsAHundredTasks(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, mode string) {
		r := newRig(t, mode, testDir(t), "1")
		gate := filepath.Join(r.dir, "gate")
		if err := syscall.Mkfifo(gate, 0o600); err != nil {
			t.Fatal(err)
		}
		w, err := os.OpenFile(gate, os.O_RDWR, 0) // opened for writing too, so that no reader waits in open
		if err != nil {
			t.Fatal(err)
		}
		const n = 100
		for i := range n {
			r.start(r.task(i, "/bin/sh", "-c", fmt.Sprintf("exec <%s; echo ready; read x; exit %d", gate, i%3)))
		}
		for range n {
			r.expect(driver.Started)
		}
		for i := range n {
			await(t, "task to be ready", func() bool { return r.output(r.attempt(i), output.Stdout) == "ready\n" })
		}
		info, err := protocol.Dir(r.dir).ReadInfo(1)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: %s with %d tasks", mode, memoryOf(t, info.PID), n)
		if err := w.Close(); err != nil { // every reader reads the end of the file
			t.Fatal(err)
		}
		for range n {
			e := r.expect(driver.Exited)
			if want := e.Attempt.Task % 3; e.Exit.Code != want {
				t.Errorf("task %d: %+v, want Code %v", e.Attempt.Task, e.Exit, want)
			}
		}
	})
}

func memoryOf(t testing.TB, pid int) string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for line := range strings.Lines(string(b)) {
		for _, name := range []string{"VmRSS", "RssAnon", "Threads"} {
			if strings.HasPrefix(line, name+":") {
				got = append(got, strings.Join(strings.Fields(line), " "))
			}
		}
	}
	return strings.Join(got, ", ")
}

func TestFollowedOutputArrivesWhileTheTaskRuns(t *testing.T) {
	t.Parallel()
	r := newRig(t, "groups", testDir(t), "1")
	gate := filepath.Join(r.dir, "gate")
	if err := syscall.Mkfifo(gate, 0o600); err != nil {
		t.Fatal(err)
	}
	k := r.task(0, "/bin/sh", "-c", fmt.Sprintf("exec 3<>%s; echo one; read x <&3; echo two; read x <&3; echo three", gate)) // opened once, so that read does not see the end of an earlier writer
	r.start(k)
	follow, err := r.d.Follow(t.Context(), k.Attempt, output.Stdout, 1, true)
	if err != nil {
		t.Fatal(err)
	}
	defer follow.Close()
	open := func() {
		w, err := os.OpenFile(gate, os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintln(w)
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []string{"ne\n", "two\n", "three\n"} {
		b := make([]byte, len(want))
		if _, err := io.ReadFull(follow, b); err != nil || string(b) != want {
			t.Fatalf("read %q, %v, want %q", b, err, want)
		}
		if want != "three\n" {
			open()
		}
	}
	if n, err := follow.Read(make([]byte, 10)); n != 0 || !errors.Is(err, io.EOF) {
		t.Errorf("after the end: %d, %v, want 0 and io.EOF", n, err)
	}
	whole, err := r.d.Follow(t.Context(), k.Attempt, output.Stdout, 0, true)
	if err != nil {
		t.Fatal(err)
	}
	defer whole.Close()
	if b, err := io.ReadAll(whole); err != nil || string(b) != "one\ntwo\nthree\n" {
		t.Errorf(`read %q, %v, want no error and "one\ntwo\nthree\n"`, b, err)
	}
	if _, err := r.d.Follow(t.Context(), r.attempt(9), output.Stdout, 0, true); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("output of an unknown attempt: %v, want os.ErrNotExist", err)
	}
}

func TestHasIsTrueWhileTheTaskRuns(t *testing.T) {
	t.Parallel()
	r := newRig(t, "groups", testDir(t), "1")
	k := r.task(0, "true")
	has, next := r.d.Has(k.Attempt)
	if has {
		t.Error("Has is true before the start")
	}
	r.start(k)
	select {
	case <-next:
	default:
		t.Error("a start did not close next")
	}
	r.expect(driver.Started)
	r.expect(driver.Exited)
	if has, _ := r.d.Has(k.Attempt); has {
		t.Error("Has is true after the end")
	}
}

func TestFollowEndsWithContext(t *testing.T) {
	t.Parallel()
	r := newRig(t, "groups", testDir(t), "1")
	k := r.task(0, "sleep", "1000")
	r.start(k)
	r.expect(driver.Started)
	ctx, cancel := context.WithCancel(t.Context())
	follow, err := r.d.Follow(ctx, k.Attempt, output.Stderr, 0, true)
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan error, 1)
	go func() {
		_, err := follow.Read(make([]byte, 1))
		got <- err
	}()
	cancel()
	if err := <-got; !errors.Is(err, output.ErrClosed) {
		t.Errorf("Read = %v, want output.ErrClosed", err)
	}
	if err := follow.Close(); err != nil {
		t.Error(err)
	}
}

// A task writes more to stdout than can be read at once, and then a word to stderr. The word stays after the stdout.
func TestOutputKeepsItsOrder(t *testing.T) {
	t.Parallel()
	r := newRig(t, "groups", testDir(t), "1")
	for i := range 5 {
		k := r.shell(i, "head -c 5000000 /dev/zero; echo word >&2; head -c 3000000 /dev/zero >&2; echo out")
		r.run(k)
		want := strings.Repeat("\x00", 5_000_000) + "word\n" + strings.Repeat("\x00", 3_000_000) + "out\n"
		if got := r.output(k.Attempt, output.Both); got != want {
			t.Errorf("%d bytes, word at %d, out at %d; want %d bytes, 5000000, 8000005", len(got), strings.Index(got, "word"), strings.Index(got, "out"), len(want))
		}
	}
}
