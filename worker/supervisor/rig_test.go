package supervisor

// The tools of the tests of this package: a driver, and the test binary, which is also the runner and sometimes the
// daemon.

import (
	"context"
	"flag"
	"fmt"
	"hash/fnv"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker/driver"
	"github.com/musterhq/muster/worker/output"
	"github.com/musterhq/muster/worker/runner"
	"github.com/musterhq/muster/worker/runner/proc"
	"github.com/musterhq/muster/worker/runner/spawn"
)

// The first argument of the test binary makes it a runner or a daemon.
const (
	asRunner = "as-runner"
	guarded  = "guarded"  // a flag of the runner: it has a guard, as in cmd/muster-runner
	noSpaces = "nospaces" // a flag of the runner: tasks have no PID namespaces
	asDaemon = "as-daemon"
)

func TestMain(m *testing.M) {
	if code, failed := spawn.Become(); failed {
		os.Exit(code)
	}
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case asRunner:
			if n := len(os.Args) - 1; os.Args[n] == runner.GuardFlag {
				os.Exit(runner.GuardCommand(context.Background(), os.Args[n-4:n], nil))
			}
			os.Exit(beRunner(os.Args[2:]))
		case asDaemon:
			os.Exit(beDaemon(os.Args[2:]))
		}
	}
	// Most tests wait more than they compute. A flag of the command line takes precedence.
	if err := flag.Set("test.parallel", "6"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// beRunner reads flags like cmd/muster-runner: [nogroups] [bare] [nounified] [nospaces] [sharedtmp] [noroot] [patient]
// [staying] [ulimit=U]... [version=V] --dir D --generation N.
func beRunner(args []string) int {
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	cfg := runner.DefaultConfig()
	cfg.AllowRoot, cfg.Idle, cfg.Answer, cfg.Ulimits = true, 2*time.Second, answerIn, nil
	for i, a := range args {
		switch {
		case a == "nogroups":
			cfg.NoGroups = true
		case a == "bare":
			cfg.NoGroups, cfg.NoSpaces = true, true
		case a == "nounified":
			cfg.NoUnified = true
		case a == "sharedtmp":
			cfg.SharedTmp = true
		case a == noSpaces:
			cfg.NoSpaces = true
		case a == guarded:
			cfg.Guard = append(append([]string{"/proc/self/exe"}, os.Args[1:]...), runner.GuardFlag)
		case a == "noroot":
			cfg.AllowRoot = false
		case a == patientMode:
			cfg.Answer = time.Hour
		case a == stayingMode:
			cfg.Idle = time.Hour
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
	// As in cmd/muster-runner. SIGINT too: tasks inherit a signal that is ignored but not caught, and a shell without
	// job control has its background processes ignore SIGINT.
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM)
	defer stop()
	if err := runner.Main(ctx, cfg, log); err != nil {
		log.Error("runner failed", "error", err)
		return 1
	}
	return 0
}

// answerIn is runner.Config.Answer of the runners in the tests, except in patientMode. There no start is abandoned,
// however slow the machine is.
const (
	answerIn    = 5 * time.Second
	patientMode = "patient"
	// stayingMode is for runners that no idle timer ends.
	stayingMode = "staying"
)

// beDaemon runs a driver, starts the script, prints its PID and waits to be killed.
func beDaemon(args []string) int {
	mode, dir, script := args[0], args[1], args[2]
	started := make(chan int, 1)
	d, err := New(config(mode, dir, "1"), func(e driver.Event) {
		if e.Kind == driver.Started {
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

// modes are the ways to isolate the processes of a task: with all control groups that the host has, with those of
// version 1 only, without control groups, and also without PID namespaces. On a host without control groups and
// namespaces all modes are the same.
var modes = []string{"groups", "nounified", "nogroups", "bare"}

func eachMode(t *testing.T, f func(t *testing.T, mode string)) {
	for _, mode := range modes {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			f(t, mode)
		})
	}
}

// rig is a running driver and its events.
type rig struct {
	t      testing.TB
	d      *Driver
	dir    string
	mode   string
	events chan driver.Event
	found  []driver.Event // what Adopt returned
	stop   func()
}

// testDir returns a directory that is removed at the end of the test. Its runners are ended first.
func testDir(t testing.TB) string {
	dir := t.TempDir()
	t.Cleanup(func() { endRunners(t, dir) })
	return dir
}

// endRunners ends the runners of a directory and waits until they have ended, including one that was just started and
// has no files there yet.
func endRunners(t testing.TB, dir string) {
	for _, pid := range runnersOf(t, dir) {
		_ = unix.Kill(pid, unix.SIGTERM)
	}
	await(t, "end of runners", func() bool { return len(runnersOf(t, dir)) == 0 })
}

// runnersOf returns the processes that were started as runners of a directory.
func runnersOf(t testing.TB, dir string) (pids []int) {
	all, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range all {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		words, err := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline")) // empty for a process that has ended
		if err == nil && strings.Contains(string(words), "\x00--dir\x00"+dir+"\x00") {
			pids = append(pids, pid)
		}
	}
	return pids
}

// nobody is the id of the user nobody and of its group.
const nobody = 65534

// rigForOthers returns a rig that can run tasks of other users. They can reach the files in its directory.
func rigForOthers(t *testing.T) *rig { return rigForOthersIn(t, "groups") }

// rigForOthersIn is rigForOthers in another mode.
func rigForOthersIn(t *testing.T, mode string) *rig {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root runs tasks for others")
	}
	base := testDir(t)
	r := newRig(t, mode, base, "1")
	for path := base; len(path) > len(os.TempDir()); path = filepath.Dir(path) {
		if err := os.Chmod(path, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

func newRig(t testing.TB, mode, dir, version string) *rig {
	t.Helper()
	return newRigOf(t, config(mode, dir, version), mode)
}

func newRigOf(t testing.TB, cfg Config, mode string) *rig {
	t.Helper()
	r := launchRig(t, cfg, mode)
	r.adopt()
	await(t, "a runner", func() bool { // no runner must start later, while the test cleans up
		answer := make(chan bool, 1)
		if err := r.d.inbox.put(func(s *state) { answer <- s.runners.current(processes) != 0 }); err != nil {
			t.Fatal(err)
		}
		return <-answer
	})
	return r
}

// adopt adopts the tasks of earlier daemons.
func (r *rig) adopt() {
	r.t.Helper()
	var err error
	if r.found, err = r.d.Adopt(r.t.Context()); err != nil {
		r.t.Fatal(err)
	}
}

// launchRig starts a driver that has adopted nothing yet.
func launchRig(t testing.TB, cfg Config, mode string) *rig {
	t.Helper()
	r := &rig{t: t, dir: cfg.Dir, mode: mode, events: make(chan driver.Event, 4096)}
	log := slog.New(slog.NewTextHandler(testWriter{t}, &slog.HandlerOptions{Level: slog.LevelWarn}))
	d, err := New(cfg, func(e driver.Event) { r.events <- e }, log)
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
	return r
}

type testWriter struct{ t testing.TB }

func (w testWriter) Write(p []byte) (int, error) {
	w.t.Logf("%s", p)
	return len(p), nil
}

const patience = 20 * time.Second

// next returns the next event.
func (r *rig) next() driver.Event {
	r.t.Helper()
	select {
	case e := <-r.events:
		return e
	case <-time.NewTimer(patience).C:
		r.t.Fatal("no event within the time-out")
		panic("unreachable")
	}
}

func (r *rig) expect(kind driver.Kind) driver.Event {
	r.t.Helper()
	e := r.next()
	if e.Kind != kind {
		r.t.Fatalf("event %+v, want %s", e, kind)
	}
	return e
}

func (r *rig) start(task driver.Task) {
	r.t.Helper()
	if err := r.d.Start(task); err != nil {
		r.t.Fatal(err)
	}
}

// run starts a task and returns its exit.
func (r *rig) run(task driver.Task) job.Exit {
	r.t.Helper()
	r.start(task)
	r.expect(driver.Started)
	return r.expect(driver.Exited).Exit
}

func (r *rig) output(a job.Attempt, s output.Stream) string {
	r.t.Helper()
	b, err := output.Rest(r.d.dir.Task(a), s, 0)
	if err != nil {
		r.t.Fatal(err)
	}
	return string(b)
}

// attemptIn returns an attempt that no other test has, because tests look for its processes on the whole host.
func attemptIn(dir string, n int) job.Attempt {
	h := fnv.New64a()
	_, _ = io.WriteString(h, dir)
	return job.Attempt{Job: job.NewID(7, h.Sum64()), Task: n, N: 1}
}

func taskIn(dir string, n int, command ...string) driver.Task {
	spec := job.DefaultSpec()
	spec.Command = command
	a := attemptIn(dir, n)
	return driver.Task{
		Attempt: a, Spec: spec, User: "root", Hold: true, Grace: time.Second,
		Env: []string{
			"PATH=" + os.Getenv("PATH"), "MUSTER_JOB_ID=" + string(a.Job),
			"MUSTER_TASK=" + strconv.Itoa(a.Task), "MUSTER_ATTEMPT=" + strconv.Itoa(a.N),
		},
	}
}

func shellIn(dir string, n int, script string) driver.Task {
	t := taskIn(dir, n)
	t.Spec.Command, t.Spec.Script = nil, script
	return t
}

func (r *rig) attempt(n int) job.Attempt { return attemptIn(r.dir, n) }

func (r *rig) task(n int, command ...string) driver.Task { return taskIn(r.dir, n, command...) }

func (r *rig) shell(n int, script string) driver.Task { return shellIn(r.dir, n, script) }

// await polls until a condition holds. It is for conditions without an event, such as the end of a process that is not
// our child.
func await(t testing.TB, what string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(patience); !holds(); <-tick.C {
		if time.Now().After(end) {
			t.Fatalf("after %s still waiting for: %s", patience, what)
		}
	}
}

// alive reports whether a process exists and is not a zombie.
func alive(pid int) bool {
	state := stateIn(fmt.Sprintf("/proc/%d/stat", pid))
	return state != "" && state != "Z" && state != "X"
}

// stateIn returns the state of a process or thread from its stat file, or none if there is no such file.
func stateIn(stat string) string {
	b, err := os.ReadFile(stat)
	if err != nil {
		return ""
	}
	return strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))[0]
}

// freeze stops a process, and waits until each of its threads is stopped.
func freeze(t testing.TB, pid int) {
	t.Helper()
	if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Kill(pid, unix.SIGCONT) }) // it may already go on, or have ended
	await(t, "a process to stand still", func() bool {
		all, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
		return err == nil && !slices.ContainsFunc(all, func(stat string) bool { s := stateIn(stat); return s != "" && s != "T" })
	})
}

// writerOf waits until a shell of a task has written to a file that its command line names, and returns its PID, or 0
// if it has ended. The shell itself knows only its PID in the namespace of the task.
func writerOf(t testing.TB, path string) int {
	t.Helper()
	await(t, "a line in "+path, func() bool {
		b, err := os.ReadFile(path)
		return err == nil && strings.HasSuffix(string(b), "\n")
	})
	for _, pid := range proc.AllPIDs() {
		words, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)) // empty for a process that has ended
		if err == nil && strings.HasPrefix(string(words), "sh\x00-c\x00trap ") && strings.Contains(string(words), path) {
			return pid
		}
	}
	return 0
}
