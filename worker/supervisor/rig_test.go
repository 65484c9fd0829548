package supervisor

// What the tests stand on: this test binary, which is also the runner and at
// times the daemon, and a driver at work.

import (
	"context"
	"fmt"
	"hash/fnv"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker"
	"github.com/musterhq/muster/worker/output"
	"github.com/musterhq/muster/worker/runner"
	"github.com/musterhq/muster/worker/runner/protocol"
	"github.com/musterhq/muster/worker/runner/spawn"
)

// The test binary plays two other parts, told by its first argument.
const (
	asRunner = "as-runner"
	asDaemon = "as-daemon"
)

func TestMain(m *testing.M) {
	if code, failed := spawn.Become(); failed {
		os.Exit(code)
	}
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case asRunner:
			os.Exit(beRunner(os.Args[2:]))
		case asDaemon:
			os.Exit(beDaemon(os.Args[2:]))
		}
	}
	os.Exit(m.Run())
}

// beRunner reads flags as cmd does: [nogroups] [nounified] [noroot] [ulimit=U]... [version=V] --dir D --generation N.
func beRunner(args []string) int {
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	cfg := runner.DefaultConfig()
	cfg.AllowRoot, cfg.Idle, cfg.Answer, cfg.Ulimits = true, 2*time.Second, answerIn, nil
	for i, a := range args {
		switch {
		case a == "nogroups":
			cfg.NoGroups = true
		case a == "nounified":
			cfg.NoUnified = true
		case a == "noroot":
			cfg.AllowRoot = false
		case strings.HasPrefix(a, "ulimit="):
			cfg.Ulimits = append(cfg.Ulimits, strings.TrimPrefix(a, "ulimit="))
		case strings.HasPrefix(a, "version="):
			cfg.Version = strings.TrimPrefix(a, "version=")
		case a == "--dir":
			cfg.Dir = args[i+1]
		case a == "--generation":
			cfg.Generation, _ = strconv.Atoi(args[i+1])
		}
	}
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGTERM)
	defer stop()
	if err := runner.Main(ctx, cfg, log); err != nil {
		log.Error("runner failed", "error", err)
		return 1
	}
	return 0
}

// answerIn is how long files may take that a task's user named.
const answerIn = 5 * time.Second

// beDaemon runs one driver, starts the script that it is given, says its pid
// and waits to be killed.
func beDaemon(args []string) int {
	mode, dir, script := args[0], args[1], args[2]
	started := make(chan int, 1)
	d, err := New(config(mode, dir, "1"), func(e worker.DriverEvent) {
		if e.Kind == worker.DriverStarted {
			started <- e.PID
		}
	}, slog.New(slog.DiscardHandler))
	if err != nil {
		return 1
	}
	ctx := context.Background()
	go func() { _ = d.Run(ctx) }()
	if _, err := d.Adopt(ctx); err != nil {
		return 1
	}
	if err := d.Start(shellIn(dir, 1, script)); err != nil {
		return 1
	}
	fmt.Println(<-started)
	select {}
}

func config(mode, dir, version string) Config {
	self, err := os.Executable()
	if err != nil {
		panic(err)
	}
	args := []string{asRunner, "version=" + version, "ulimit=memlock=8MiB", "ulimit=nofile=2048:4096"}
	if mode != "groups" {
		args = append(args, mode)
	}
	return Config{Dir: dir, Binary: self, Args: args, Version: version, OutputLimit: DefaultOutputLimit}
}

// modes are the ways to hold the processes of a task together: whatever the host
// has, version 1 of control groups alone, and none. Where the host permits no
// control groups all are the last.
var modes = []string{"groups", "nounified", "nogroups"}

func eachMode(t *testing.T, f func(t *testing.T, mode string)) {
	for _, mode := range modes {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			f(t, mode)
		})
	}
}

// rig is a driver at work and all that it has told.
type rig struct {
	t      testing.TB
	d      *Driver
	dir    string
	mode   string
	events chan worker.DriverEvent
	found  []worker.DriverEvent // by Adopt
	stop   func()
}

// testDir is short, and gone at the end with every runner in it.
func testDir(t testing.TB) string {
	dir := t.TempDir()
	t.Cleanup(func() { endRunners(t, dir) })
	return dir
}

// endRunners ends the runners of a directory and waits until they are gone.
func endRunners(t testing.TB, dir string) {
	d := protocol.Dir(dir)
	all, err := d.Generations()
	if err != nil {
		t.Error(err)
	}
	for _, n := range all {
		if info, err := d.ReadInfo(n); err == nil && info.PID > 0 {
			if lock, err := d.TryLock(n); err == nil && lock == nil {
				_ = unix.Kill(info.PID, unix.SIGTERM)
			} else if lock != nil {
				_ = lock.Close()
			}
		}
		await(t, "end of runner", func() bool {
			lock, err := d.TryLock(n)
			if lock != nil {
				_ = lock.Close()
			}
			return err != nil || lock != nil
		})
	}
}

// nobody is that user's id and group, on every host.
const nobody = 65534

// rigForOthers runs tasks for other users, who may pass to what lies in its
// directory.
func rigForOthers(t *testing.T) *rig {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root runs tasks for others")
	}
	base := testDir(t)
	r := newRig(t, "groups", base, "1")
	for path := base; len(path) > len(os.TempDir()); path = filepath.Dir(path) {
		if err := os.Chmod(path, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

func newRig(t testing.TB, mode, dir, version string) *rig {
	t.Helper()
	r := &rig{t: t, dir: dir, mode: mode, events: make(chan worker.DriverEvent, 4096)}
	log := slog.New(slog.NewTextHandler(testWriter{t}, &slog.HandlerOptions{Level: slog.LevelWarn}))
	d, err := New(config(mode, dir, version), func(e worker.DriverEvent) { r.events <- e }, log)
	if err != nil {
		t.Fatal(err)
	}
	r.d = d
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx) }()
	r.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	t.Cleanup(r.stop)
	if r.found, err = d.Adopt(ctx); err != nil {
		t.Fatal(err)
	}
	await(t, "a runner", func() bool { // none is to appear while the test clears up
		answer := make(chan bool, 1)
		if err := d.inbox.put(func(s *state) { answer <- s.runners.current(processes) != 0 }); err != nil {
			t.Fatal(err)
		}
		return <-answer
	})
	return r
}

type testWriter struct{ t testing.TB }

func (w testWriter) Write(p []byte) (int, error) {
	w.t.Logf("%s", p)
	return len(p), nil
}

const patience = 20 * time.Second

// next is the next event.
func (r *rig) next() worker.DriverEvent {
	r.t.Helper()
	select {
	case e := <-r.events:
		return e
	case <-time.NewTimer(patience).C:
		r.t.Fatal("no event")
		panic("unreachable")
	}
}

func (r *rig) expect(kind worker.DriverKind) worker.DriverEvent {
	r.t.Helper()
	e := r.next()
	if e.Kind != kind {
		r.t.Fatalf("event %+v, want %s", e, kind)
	}
	return e
}

func (r *rig) start(task worker.Task) {
	r.t.Helper()
	if err := r.d.Start(task); err != nil {
		r.t.Fatal(err)
	}
}

// run starts a task and gives how it ended.
func (r *rig) run(task worker.Task) job.Exit {
	r.t.Helper()
	r.start(task)
	r.expect(worker.DriverStarted)
	return r.expect(worker.DriverExited).Exit
}

func (r *rig) output(a job.Attempt, s output.Stream) string {
	r.t.Helper()
	b, err := output.Rest(r.d.dir.Task(a), s, 0)
	if err != nil {
		r.t.Fatal(err)
	}
	return string(b)
}

// attemptIn names attempts that no other test has: marks of processes are
// looked for on the whole host.
func attemptIn(dir string, n int) job.Attempt {
	h := fnv.New64a()
	_, _ = io.WriteString(h, dir)
	return job.Attempt{Job: job.NewID(7, h.Sum64()), Task: n, N: 1}
}

func taskIn(dir string, n int, command ...string) worker.Task {
	spec := job.DefaultSpec()
	spec.Command = command
	a := attemptIn(dir, n)
	return worker.Task{
		Attempt: a, Spec: spec, User: "root", Hold: true, Grace: time.Second,
		Env: []string{
			"PATH=" + os.Getenv("PATH"), "MUSTER_JOB_ID=" + string(a.Job),
			"MUSTER_TASK=" + strconv.Itoa(a.Task), "MUSTER_ATTEMPT=" + strconv.Itoa(a.N),
		},
	}
}

func shellIn(dir string, n int, script string) worker.Task {
	t := taskIn(dir, n)
	t.Spec.Command, t.Spec.Script = nil, script
	return t
}

func (r *rig) attempt(n int) job.Attempt { return attemptIn(r.dir, n) }

func (r *rig) task(n int, command ...string) worker.Task { return taskIn(r.dir, n, command...) }

func (r *rig) shell(n int, script string) worker.Task { return shellIn(r.dir, n, script) }

// await looks until something is so: for what gives no event, such as the end
// of a process that is not ours.
func await(t testing.TB, what string, so func() bool) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(patience); !so(); <-tick.C {
		if time.Now().After(end) {
			t.Fatalf("waited in vain for: %s", what)
		}
	}
}

// alive says whether a process exists and is no zombie.
func alive(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	rest := string(b[strings.LastIndexByte(string(b), ')')+1:])
	state := strings.Fields(rest)[0]
	return state != "Z" && state != "X"
}

// pidIn waits for a pid that a task writes into a file.
func pidIn(t testing.TB, path string) int {
	t.Helper()
	pid := 0
	await(t, "pid in "+path, func() bool {
		b, err := os.ReadFile(path)
		text, whole := strings.CutSuffix(string(b), "\n")
		if err != nil || !whole {
			return false
		}
		pid, err = strconv.Atoi(text)
		return err == nil
	})
	return pid
}
