package supervisor

// What a runner allows to the users of its tasks, and to processes that connect to it.

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/user"
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

func TestTaskRunsAsItsUser(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root runs tasks for others")
	}
	nobody, err := user.Lookup("nobody")
	if err != nil {
		t.Skip(err)
	}
	dir := testDir(t)
	if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil { // users must be able to pass through it
		t.Fatal(err)
	}
	r := newRig(t, "noroot", dir, "1")

	k := r.shell(0, "#!/bin/sh\nid -un; echo $HOME $USER; pwd; touch made; echo heard >/dev/stderr; ls $MUSTER_SCRATCH; cat $MUSTER_HOSTFILE; cat ../../../runner-1.lock")
	k.User, k.Hostfile = "nobody", "h"
	e := r.run(k)
	scratch := filepath.Join(protocol.Dir(dir).Task(k.Attempt), "scratch")
	want := "nobody\n" + nobody.HomeDir + " nobody\n" + scratch + "\nmade\nh"
	if out := r.output(k.Attempt, output.Stdout); out != want || e.Code != 1 || !strings.HasPrefix(e.Tail, "heard\n") {
		t.Errorf("output %q, want %q; %+v", out, want, e)
	}

	for i, tt := range []struct{ user, reason string }{
		{"root", `user "root": this node runs no tasks of root; its daemon needs --allow-root`},
		{"no-such-user-here", `user "no-such-user-here": no such user on this node`},
	} {
		k := r.task(i+1, "true")
		k.User = tt.user
		r.start(k)
		if e := r.expect(driver.Failed).Exit; e.Reason != tt.reason || e.Code != 126 {
			t.Errorf("%+v, want Reason %v and Code 126", e, tt.reason)
		}
	}

	private := filepath.Join(dir, "private")
	if err := os.Mkdir(private, 0o700); err != nil {
		t.Fatal(err)
	}
	k = r.task(3, "true")
	k.User, k.Spec.Workdir = "nobody", private
	r.start(k)
	if e := r.expect(driver.Failed).Exit; e.Code != 126 || e.Reason != "workdir "+private+": user nobody may not enter it on this node" {
		t.Errorf("%+v, want Code 126 and Reason %v", e, "workdir "+private+": user nobody may not enter it on this node")
	}
}

// dial connects to the first runner of a directory and reads its Welcome.
func dial(t *testing.T, dir string) (net.Conn, protocol.Welcome) {
	t.Helper()
	conn, err := protocol.Dial(protocol.Dir(dir).Socket(1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	m, err := protocol.ReadReport(conn)
	if err != nil || m.Welcome == nil {
		t.Fatalf("first report %+v, %v, want a Welcome", m, err)
	}
	return conn, *m.Welcome
}

func TestNewerConnectionReplacesAnOlderOne(t *testing.T) {
	t.Parallel()
	dir := testDir(t)
	r := newRig(t, "groups", dir, "1")
	k := r.task(0, "sleep", "1000")
	r.start(k)
	pid := r.expect(driver.Started).PID
	r.stop()
	first, _ := dial(t, dir)
	second, w := dial(t, dir)
	if len(w.Running) != 1 || w.Running[0].PID != pid || w.Running[0].Attempt != k.Attempt.String() {
		t.Errorf("welcome %+v, want 1 Running, Running[0].PID %v and Running[0].Attempt %v", w, pid, k.Attempt.String())
	}
	if _, err := first.Read(make([]byte, 1)); err == nil {
		t.Error("the older connection is still open")
	}

	// A repeated Start starts nothing.
	frame, err := protocol.Frame(protocol.Request{Start: &protocol.Start{Attempt: k.Attempt.String(), Command: []string{"true"}, User: "root", Hold: true, OutputLimit: DefaultOutputLimit}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := second.Write(frame); err != nil {
		t.Fatal(err)
	}
	if m, err := protocol.ReadReport(second); err != nil || m.Started == nil || m.Started.PID != pid {
		t.Errorf("report %+v, %v, want the same PID", m, err)
	}

	// An invalid request ends the connection, and nothing else.
	for _, bytes := range [][]byte{{0xff, 0xff, 0xff, 0xff}, {0, 0, 0, 2, '{', '}'}, {0, 0, 0, 1, '['}} {
		conn, _ := dial(t, dir)
		if _, err := conn.Write(bytes); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadAll(conn); err != nil {
			t.Errorf("after %q: %v, want the end of the connection", bytes, err)
		}
	}
	if _, w := dial(t, dir); len(w.Running) != 1 || !alive(pid) {
		t.Errorf("welcome %+v, want the running task", w)
	}
}

// A runner does not start an attempt that an earlier runner has had, whether its exit is known or not.
func TestAttemptOfAnEarlierRunnerIsNotStarted(t *testing.T) {
	t.Parallel()
	dir := testDir(t)
	r := newRig(t, "groups", dir, "1")
	k := r.task(0, "/bin/sh", "-c", "exit 3")
	r.run(k)
	if err := r.d.Forget(k.Attempt); err != nil {
		t.Fatal(err)
	}
	r.start(k)
	if e := r.expect(driver.Exited); e.Exit.Code != 3 {
		t.Errorf("%+v, want Exit.Code 3", e)
	}
	lost := r.task(1, "true")
	if err := os.Mkdir(protocol.Dir(dir).Task(lost.Attempt), 0o700); err != nil {
		t.Fatal(err)
	}
	r.start(lost)
	r.expect(driver.Lost)
}

func TestGenerationHasOneRunner(t *testing.T) {
	t.Parallel()
	dir := testDir(t)
	newRig(t, "groups", dir, "1")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	cmd := exec.CommandContext(t.Context(), self, asRunner, "--dir", dir, "--generation", "1")
	cmd.Stderr = &out
	await(t, "first runner", func() bool {
		conn, err := protocol.Dial(protocol.Dir(dir).Socket(1))
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	})
	if err := cmd.Run(); err == nil || !strings.Contains(out.String(), "runs already") {
		t.Errorf("a second runner of the generation: %v, want that one runs already: %s", err, &out)
	}
}

func TestRunnerThatGetsTERMEndsItsTasks(t *testing.T) {
	t.Parallel()
	dir := testDir(t)
	r := newRig(t, "groups", dir, "1")
	k := r.task(0, "sleep", "1000")
	r.start(k)
	r.expect(driver.Started)
	for _, pid := range runnersOf(t, dir) { // another one is started in its place, so there may never be none
		if err := unix.Kill(pid, unix.SIGTERM); err != nil {
			t.Fatal(err)
		}
	}
	if e := r.expect(driver.Exited).Exit; e.State != job.NodeFail || e.Reason != "the runner of this node was told to end" {
		t.Errorf(`%+v, want State %v and Reason "the runner of this node was told to end"`, e, job.NodeFail)
	}
}

// The driver does not send a request that a runner would refuse, because the runner would end the connection.
func TestInvalidTaskIsNotSent(t *testing.T) {
	t.Parallel()
	r := newRig(t, "groups", testDir(t), "1")
	k := r.task(0, "true", "a\x00b")
	if err := r.d.Start(k); err == nil {
		t.Error("an argument with a zero byte was accepted")
	}
	if e := r.run(r.task(1, "true")); e.State != job.Succeeded {
		t.Errorf("%+v, want State %v", e, job.Succeeded)
	}
}

// The binary on disk has another version than the daemon. Its runner is used, and is not replaced again and again.
func TestRunnerOfAnUpgradedBinaryIsUsed(t *testing.T) {
	t.Parallel()
	dir := testDir(t)
	r := newRig(t, "version=7", dir, "1")
	if e := r.run(r.task(0, "true")); e.State != job.Succeeded {
		t.Errorf("%+v, want State %v", e, job.Succeeded)
	}
	all, err := protocol.Dir(dir).Generations()
	if err != nil || len(all) != 1 {
		t.Errorf("runners %v, %v, want one", all, err)
	}
	if info, err := protocol.Dir(dir).ReadInfo(1); err != nil || info.Version != "7" {
		t.Errorf(`%+v, %v, want no error and Version "7"`, info, err)
	}
}

// The runner itself is in a control group of version 1 with a memory limit, and a task exceeds that limit.
func TestTaskEndsIfTheRunnersMemoryIsExhausted(t *testing.T) {
	t.Parallel()
	group := fmt.Sprintf("/sys/fs/cgroup/memory/muster-test-%d", os.Getpid())
	if err := os.Mkdir(group, 0o755); err != nil {
		t.Skipf("no memory limit can be set: %v", err)
	}
	t.Cleanup(func() { _ = os.Remove(group) })
	dir := testDir(t)
	r := newRig(t, "groups", dir, "1")
	r.run(r.task(0, "true")) // so that a runner runs
	info, err := protocol.Dir(dir).ReadInfo(1)
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range [][2]string{{"memory.limit_in_bytes", "67108864"}, {"cgroup.procs", strconv.Itoa(info.PID)}} {
		if err := os.WriteFile(filepath.Join(group, w[0]), []byte(w[1]), 0); err != nil {
			t.Skipf("no memory limit can be set: %v", err)
		}
	}
	if e := r.run(r.shell(1, "x=$(head -c 300M /dev/zero | tr '\\0' x); echo ${#x}")); e.State != job.OutOfMemory || e.Signal != int(unix.SIGKILL) || e.Reason != "the kernel ended it for lack of memory: it had asked for none; set some aside for it with --mem" {
		t.Errorf(`%+v, want State %v, Signal %v and Reason "the kernel ended it for lack of memory: it had asked for none; set some aside for it with --mem"`, e, job.OutOfMemory, int(unix.SIGKILL))
	}
	if e := r.run(r.shell(2, "kill -KILL $$")); e.State != job.Failed {
		t.Errorf("%+v, want State %v", e, job.Failed)
	}
}

func TestSweepIsDueSoonerOnADiskThatIsNearlyFull(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		since time.Duration
		free  uint64
		due   bool
	}{{sweepShort, 50, false}, {sweepShort, 49, true}, {sweepEvery, 900, true}, {sweepEvery - 1, 900, false}} {
		if got := sweepDue(c.since, unix.Statfs_t{Blocks: 1000, Bavail: c.free}); got != c.due {
			t.Errorf("%s after the last sweep, with %d of 1000 blocks free: due %v, want %v", c.since, c.free, got, c.due)
		}
	}
}

func TestSweepRemovesOldOutput(t *testing.T) {
	t.Parallel()
	r := newRig(t, "groups", testDir(t), "1")
	for i := range 3 {
		r.run(r.task(i, "true"))
	}
	running := r.task(3, "sleep", "1000")
	r.start(running)
	r.expect(driver.Started)
	for i := range 2 {
		if err := r.d.Forget(r.attempt(i)); err != nil {
			t.Fatal(err)
		}
	}
	now := time.Now()
	young := now.Add(KeepFor)
	if err := os.Chtimes(protocol.Dir(r.dir).Task(r.attempt(1)), young, young); err != nil {
		t.Fatal(err)
	}
	unforgotten := make(chan map[job.Attempt]bool, 1)
	if err := r.d.inbox.put(func(s *state) { unforgotten <- s.ends.names() }); err != nil {
		t.Fatal(err)
	}
	if err := (&sweeper{dir: r.d.dir, activity: r.d.activity, log: r.d.log}).sweep(now.Add(KeepFor+time.Hour), <-unforgotten); err != nil {
		t.Fatal(err)
	}
	var kept []int
	for i := range 4 {
		if _, err := os.Stat(protocol.Dir(r.dir).Task(r.attempt(i))); err == nil {
			kept = append(kept, i)
		}
	}
	if len(kept) != 3 || kept[0] != 1 { // 0 is old, 1 is young, 2 is not forgotten, 3 runs
		t.Errorf("kept %v, want 1, 2 and 3", kept)
	}
}

// Output counts by its disk space. Files with holes that are longer than the disk use none of it, and do not cause the
// removal of other output.
func TestSweepCountsSparseFilesByTheirDiskSpace(t *testing.T) {
	t.Parallel()
	r := newRig(t, "groups", testDir(t), "1")
	for i := range 2 {
		r.run(r.task(i, "true"))
	}
	sparse := filepath.Join(protocol.Dir(r.dir).Task(r.attempt(1)), "x")
	if err := errors.Join(os.WriteFile(sparse, nil, 0o600), os.Truncate(sparse, 8<<40)); err != nil {
		t.Fatal(err)
	}
	w := &sweeper{dir: r.d.dir, activity: &activity{}, log: r.d.log} // all of them ended long ago
	if err := w.sweep(time.Now(), nil); err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		if _, err := os.Stat(protocol.Dir(r.dir).Task(r.attempt(i))); err != nil {
			t.Error(err)
		}
	}
}

// A daemon that stops cannot know which exits are still needed, so its last sweep removes nothing.
func TestStoppingDaemonRemovesNoOutput(t *testing.T) {
	t.Parallel()
	r := newRig(t, "groups", testDir(t), "1")
	r.run(r.task(0, "true"))
	ctx, stop := context.WithCancel(t.Context())
	w := &sweeper{dir: r.d.dir, activity: r.d.activity, log: r.d.log, unforgotten: func(context.Context) map[job.Attempt]bool {
		stop()
		return nil
	}}
	if err := w.look(ctx, time.Now().Add(KeepFor+time.Hour)); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(protocol.Dir(r.dir).Task(r.attempt(0))); err != nil {
		t.Error(err)
	}
}
