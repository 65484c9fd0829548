package runner

// A paused host, from the requests of a daemon to the ends of tasks. The test binary also acts as the runner. The
// runner's wall clock is ahead by what the test writes into a file.

import (
	"bufio"
	"context"
	"errors"
	"log/slog"
	"math"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker/leaseclock"
	"github.com/musterhq/muster/worker/runner/protocol"
	"github.com/musterhq/muster/worker/runner/spawn"
)

const asRunner = "as-runner"

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == asRunner {
		os.Exit(beRunner(os.Args[2], os.Args[3]))
	}
	os.Exit(m.Run())
}

// The two ways in which the runner learns that the wall clock was set.
const (
	notified = "notified"
	polls    = "polls"
)

// beRunner acts as a runner whose wall clock is the host's plus gained. In mode notified, SIGUSR1 announces a change.
func beRunner(dir, mode string) int {
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	read := leaseclock.Reader()
	host := hostClock{read: func() leaseclock.Reading {
		r := read()
		r.Wall += gained(dir)
		return r
	}}
	if mode == notified {
		set, signals := make(chan struct{}), make(chan os.Signal, 1)
		signal.Notify(signals, unix.SIGUSR1)
		go func() {
			for range signals {
				set <- struct{}{}
			}
		}()
		host.set = set
	} else {
		host.every = 10 * time.Millisecond
	}
	cfg := DefaultConfig()
	cfg.Dir, cfg.AllowRoot, cfg.NoGroups, cfg.Ulimits, cfg.Containers = dir, true, true, nil, someContainers{}
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGTERM)
	defer stop()
	if err := live(ctx, cfg, host, log); err != nil {
		log.Error("runner failed", "error", err)
		return 1
	}
	return 0
}

// gained returns by how much the wall clock of a runner was set forward.
func gained(dir string) time.Duration {
	b, err := os.ReadFile(filepath.Join(dir, "gained"))
	if err != nil {
		return 0
	}
	n, _ := strconv.ParseInt(string(b), 10, 64)
	return time.Duration(n)
}

// someContainers runs two kinds of containers: some wait for their image for ever, the others run until they are
// killed.
type someContainers struct{}

func (someContainers) Run(ctx context.Context, b spawn.Container) job.Exit {
	if b.Image == "absent" {
		<-ctx.Done()
		return job.Exit{State: job.Failed, Code: spawn.CodeOurs, Reason: "pull was broken off"}
	}
	p := someProcess{killed: make(chan struct{}, 1)}
	b.Began(os.Getpid(), p, nil)
	<-p.killed
	return job.Exit{Started: true, State: job.Failed, Code: 137, Signal: 9, Reason: "killed"}
}

type someProcess struct{ killed chan struct{} }

func (p someProcess) Signal(sig unix.Signal) {
	if sig == unix.SIGKILL {
		select {
		case p.killed <- struct{}{}:
		default:
		}
	}
}

func (p someProcess) End(unix.Signal) {}

func (p someProcess) Members() []int { return nil }

// daemon is the daemon's side of a connection to a runner.
type daemon struct {
	t    *testing.T
	dir  string
	mode string
	pid  int
	conn net.Conn
	r    *bufio.Reader
	read func() leaseclock.Reading
}

func newDaemon(t *testing.T, mode string) *daemon {
	t.Helper()
	d := &daemon{t: t, dir: t.TempDir(), mode: mode, read: leaseclock.Reader()}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self, asRunner, d.dir, mode)
	cmd.Stderr = os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(unix.SIGTERM) }
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	d.pid = cmd.Process.Pid
	exited := make(chan error, 1)
	go func() { exited <- cmd.Wait() }()
	t.Cleanup(func() { // by then the test's context has ended, so the runner has ended its tasks
		if err := <-exited; err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("runner: %v", err)
		}
	})
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(20 * time.Second); d.conn == nil; <-tick.C {
		if d.conn, err = protocol.Dial(protocol.Dir(d.dir).Socket(1)); err != nil && time.Now().After(end) {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { d.conn.Close() })
	if err := d.conn.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	d.r = bufio.NewReader(d.conn)
	if m := d.next(); m.Welcome == nil {
		t.Fatalf("first message %+v, want a welcome", m)
	}
	return d
}

func (d *daemon) next() protocol.Report {
	d.t.Helper()
	m, err := protocol.ReadReport(d.r)
	if err != nil {
		d.t.Fatal(err)
	}
	return m
}

func (d *daemon) ask(m protocol.Request) {
	d.t.Helper()
	frame, err := protocol.Frame(m)
	if err == nil {
		_, err = d.conn.Write(frame)
	}
	if err != nil {
		d.t.Fatal(err)
	}
}

// pause sets the runner's wall clock forward, as if its host had been paused.
func (d *daemon) pause(by time.Duration) {
	d.t.Helper()
	path := filepath.Join(d.dir, "gained")
	if err := os.WriteFile(path+".new", []byte(strconv.FormatInt(int64(by), 10)), 0o600); err != nil {
		d.t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		d.t.Fatal(err)
	}
	if d.mode == notified {
		if err := unix.Kill(d.pid, unix.SIGUSR1); err != nil {
			d.t.Fatal(err)
		}
	}
}

func nameOf(n int) string { return job.Attempt{Job: job.NewID(7, 9), Task: n, N: 1}.String() }

// start returns the request to start a task under a lease. A task without a lease is on hold.
func (d *daemon) start(n int, lease time.Duration) *protocol.Start {
	s := &protocol.Start{
		Attempt: nameOf(n), Command: []string{"sleep", "1000"}, User: "root", Env: []string{"PATH=" + os.Getenv("PATH")},
		Lead: 10 * sec, Grace: sec, OutputLimit: 1 << 20, Hold: lease == 0,
	}
	if now := d.read(); lease != 0 {
		s.Deadline, s.Skew = now.Boot+lease, now.Skew()
	}
	return s
}

// ends waits until the given attempts have ended and returns their exits. No other attempt may end.
func (d *daemon) ends(want ...int) map[int]job.Exit {
	d.t.Helper()
	left, got := map[string]int{}, map[int]job.Exit{}
	for _, n := range want {
		left[nameOf(n)] = n
	}
	for len(left) > 0 {
		m := d.next()
		if m.Ended == nil {
			continue
		}
		n, wanted := left[m.Ended.Attempt]
		if !wanted || m.Ended.Exit == nil {
			d.t.Fatalf("%s ended unexpectedly: %+v", m.Ended.Attempt, m.Ended.Exit)
		}
		delete(left, m.Ended.Attempt)
		got[n] = *m.Ended.Exit
	}
	return got
}

// TestPauseEndsTasksWithoutALease checks that a task whose lease ended during the pause ends at once, and that no other
// task does.
func TestPauseEndsTasksWithoutALease(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{notified, polls} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			d := newDaemon(t, mode)
			const short, long, hold, pulls, runs, late = 1, 2, 3, 4, 5, 6
			d.ask(protocol.Request{Start: d.start(short, 100*sec)})
			d.ask(protocol.Request{Start: d.start(long, 600*sec)})
			d.ask(protocol.Request{Start: d.start(hold, 0)})
			for _, n := range []int{pulls, runs} {
				s := d.start(n, 100*sec)
				s.Command, s.Container = nil, &protocol.Container{Host: "none", Image: map[int]string{pulls: "absent", runs: "present"}[n]}
				d.ask(protocol.Request{Start: s})
			}
			tardy := d.start(late, 100*sec)
			for begun := 0; begun < 4; {
				if m := d.next(); m.Started != nil {
					begun++
				}
			}
			d.pause(120 * sec)
			const why = "lease ran out: this host was paused for 2m, or its wall clock was set forward"
			for n, e := range d.ends(short, pulls, runs) {
				if e.State != job.NodeFail || e.Reason != why || e.Started != (n != pulls) {
					t.Errorf("attempt %d: %+v, want State %v, Reason %v and Started %v", n, e, job.NodeFail, why, (n != pulls))
				}
			}
			d.ask(protocol.Request{Start: tardy}) // made before the pause, sent after it
			if e := d.ends(late)[late]; e.State != job.NodeFail || e.Started || !strings.Contains(e.Reason, "paused for 2m") {
				t.Errorf("a start that was requested before the pause: %+v, want NODE_FAIL, not started, with the pause as the reason", e)
			}
			for _, n := range []int{long, hold} {
				d.ask(protocol.Request{Stop: &protocol.Stop{Attempt: nameOf(n), Reason: "enough"}})
				if e := d.ends(n)[n]; e.State != job.Cancelled {
					t.Errorf("attempt %d did not outlive the pause: %+v, want State %v", n, e, job.Cancelled)
				}
			}
		})
	}
}

// TestExtensionFromBeforeAPauseIsShortened sends extensions with deadlines that the daemon computed before or after a
// pause. The runner subtracts the pause from a deadline from before it.
func TestExtensionFromBeforeAPauseIsShortened(t *testing.T) {
	t.Parallel()
	const now, before, missed = 1000 * sec, 5000 * sec, 120 * sec
	for _, tt := range []struct {
		name string
		skew time.Duration
		want time.Duration
	}{
		{"computed after the pause", before + missed, now + 300*sec},
		{"computed before the pause", before, now + 180*sec},
		{"without a skew", 0, now + 300*sec},
		{"skew within the bound", before + missed - 4900*time.Millisecond, now + 300*sec},
		{"skew beyond the bound", before + missed - 5100*time.Millisecond, now + 294900*time.Millisecond},
		{"computed before the wall clock was set back", before + time.Hour, now + 300*sec},
		{"skew that no host has", math.MinInt64, now + 60*sec},
	} {
		l := &leases{}
		l.skew.Look(leaseclock.Reading{Boot: now, Wall: now + before + missed})
		task := &task{watch: newWatch(&protocol.Start{Deadline: now + 60*sec, Lead: 10 * sec}, now)}
		l.extend(task, now, protocol.Extension{Deadline: now + 300*sec, Skew: tt.skew})
		if task.watch.deadline != tt.want {
			t.Errorf("%s: deadline in %s, want %s", tt.name, task.watch.deadline-now, tt.want-now)
		}
	}
}

// TestChangesOfTheWallClockAreReported checks that each cancelled timer is reported, and that no other end of the wait is.
func TestChangesOfTheWallClockAreReported(t *testing.T) {
	t.Parallel()
	set, waits := make(chan struct{}, 1), make(chan error)
	done := make(chan struct{})
	go func() {
		defer close(done)
		tellSet(func([]byte) (int, error) { return 0, <-waits }, set)
	}()
	for range 2 {
		waits <- &os.PathError{Op: "read", Err: unix.ECANCELED}
		<-set
	}
	waits <- os.ErrClosed
	<-done
	if len(set) != 0 {
		t.Error("reported a clock that was not set")
	}
	if _, err := wallClockSet(); err != nil {
		t.Logf("this host does not report it: %v", err)
	}
}
