package runner

// A host that was paused, from the requests of a daemon to the ends of tasks. The
// test binary is the runner, too; its wall clock gains what the test writes into
// a file.

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

// The two ways to learn that the wall clock was set.
const (
	notified = "is told"
	looks  = "looks by itself"
)

// beRunner is a runner whose wall clock is that of the host plus what gained
// says. Where it is told of a change, that is by SIGUSR1.
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

// gained is by how much the wall clock of a runner was set forward.
func gained(dir string) time.Duration {
	b, err := os.ReadFile(filepath.Join(dir, "gained"))
	if err != nil {
		return 0
	}
	n, _ := strconv.ParseInt(string(b), 10, 64)
	return time.Duration(n)
}

// someContainers runs containers of two kinds: some wait for their image for ever, others
// run until they are killed.
type someContainers struct{}

func (someContainers) Run(ctx context.Context, b spawn.Container) job.Exit {
	if b.Image == "absent" {
		<-ctx.Done()
		return job.Exit{State: job.Failed, Code: spawn.CodeOurs, Reason: "pull was broken off"}
	}
	p := someProcess{killed: make(chan struct{}, 1)}
	b.Began(os.Getpid(), p)
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

func (p someProcess) Members() []int { return nil }

// daemon is the other side of a runner's connection.
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
	t.Cleanup(func() { // the test's context has ended, and the runner its tasks
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
		t.Fatalf("first word %+v", m)
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

// paused has the runner's wall clock gain, as if its host had stood still.
func (d *daemon) paused(by time.Duration) {
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

// start is a task under a lease; none is on hold.
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

// ends waits until attempts have ended and gives how; others must not end.
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
			d.t.Fatalf("%s ended: %+v", m.Ended.Attempt, m.Ended.Exit)
		}
		delete(left, m.Ended.Attempt)
		got[n] = *m.Ended.Exit
	}
	return got
}

// TestPausedHost: what ran out while the host stood still is ended at once, and
// nothing else is.
func TestPausedHost(t *testing.T) {
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
			const why = "lease ran out: this host was paused for 2m0s, or its wall clock was set forward"
			for n, e := range d.ends(short, pulls, runs) {
				if e.State != job.NodeFail || e.Reason != why || e.Started != (n != pulls) {
					t.Errorf("attempt %d: %+v", n, e)
				}
			}
			d.ask(protocol.Request{Start: tardy}) // asked for before the pause
			if e := d.ends(late)[late]; e.State != job.NodeFail || e.Started || !strings.Contains(e.Reason, "paused for 2m0s") {
				t.Errorf("a start that the pause overtook: %+v", e)
			}
			for _, n := range []int{long, hold} {
				d.ask(protocol.Request{Stop: &protocol.Stop{Attempt: nameOf(n), Reason: "enough"}})
				if e := d.ends(n)[n]; e.State != job.Cancelled {
					t.Errorf("attempt %d did not outlive the pause: %+v", n, e)
				}
			}
		})
	}
}

// TestExtendUnderWay has a pause overtake what a daemon has reckoned before it:
// the runner takes the pause off.
func TestExtendUnderWay(t *testing.T) {
	t.Parallel()
	const now, before, missed = 1000 * sec, 5000 * sec, 120 * sec
	for _, tt := range []struct {
		name string
		skew time.Duration
		want time.Duration
	}{
		{"reckoned after the pause", before + missed, now + 300*sec},
		{"reckoned before it", before, now + 180*sec},
		{"by a daemon that does not say", 0, now + 300*sec},
		{"under a skew within the bound", before + missed - 4900*time.Millisecond, now + 300*sec},
		{"under a skew out of it", before + missed - 5100*time.Millisecond, now + 294900*time.Millisecond},
		{"before the wall clock was set back", before + time.Hour, now + 300*sec},
		{"under a skew that no host has", math.MinInt64, now + 60*sec},
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

// TestWallClockSet is told of each time that a timer was cancelled, and of no
// other end of its wait.
func TestWallClockSet(t *testing.T) {
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
		t.Error("told of a clock that was not set")
	}
	if _, err := wallClockSet(); err != nil {
		t.Logf("this host does not tell: %v", err)
	}
}
