package runner

// The loop: the one goroutine that owns the state of all tasks.

import (
	"context"
	"log/slog"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker/cgroup"
	"github.com/musterhq/muster/worker/runner/protocol"
	"github.com/musterhq/muster/worker/runner/scratch"
	"github.com/musterhq/muster/worker/runner/spawn"
)

// loop joins the parts of a runner. Only its own goroutine changes their state; other goroutines send it functions to
// run.
type loop struct {
	cfg        Config
	info       protocol.Info
	dir        protocol.Dir
	do         chan func()
	detached   func() (context.Context, context.CancelFunc) // a context that does not end with the runner's
	tasks      *tasks
	starts     *starts
	procs      *processes
	graces     *graces
	execs      *execs
	containers *containerStarter
	leases     *leases
	guards     *guarding
	recorder   *recorder
	measurer   *measurer
	daemon     *daemonConn
	early      earlyDeaths
	draining   bool
	stopping   bool
	log        *slog.Logger
}

// waiting is how many functions may wait for the loop. A goroutine that sends one need not wait for the loop's turn.
const waiting = 32

func newLoop(cfg Config, info protocol.Info, s *spawn.Spawner, ends *journal, timer *timer, host hostClock, log *slog.Logger) *loop {
	l := &loop{
		cfg: cfg, info: info, dir: protocol.Dir(cfg.Dir), do: make(chan func(), waiting), tasks: newTasks(log), starts: newStarts(s),
		leases: newLeases(host, timer, log), guards: &guarding{slots: map[*task]int{}, fences: info.Fences, log: log}, daemon: newDaemonConn(cfg.Idle, log), early: earlyDeaths{}, log: log,
	}
	l.containers = &containerStarter{engine: cfg.Containers, spawner: s, dir: l.dir}
	l.containers.guardProcess = guardProcess{command: cfg.Guard, do: l.do, needed: func() bool { return len(l.tasks.all) > 0 }, log: log}
	l.guards.keep = func() bool { l.containers.keepGuard(); return l.containers.guard != 0 }
	l.execs = &execs{
		do: l.do, tasks: l.tasks, spawner: s, inputs: &inputs{do: l.do, tasks: l.tasks, leases: l.leases}, early: l.early, answer: cfg.Answer, running: map[int]*execution{}, perUser: map[int]int{},
	}
	l.procs = &processes{
		group: s.Group, walk: &walker{tasks: l.tasks, execs: l.execs, containers: l.containers, spaces: info.PIDNamespace}, tasks: l.tasks, oomKills: cgroup.OOMKills(),
	}
	l.graces = &graces{do: l.do, procs: l.procs, leases: l.leases, awaited: map[*task]bool{}}
	l.recorder = newRecorder(l.dir, ends, s, log)
	l.measurer = &measurer{dir: l.dir, wake: make(chan struct{}, 1)}
	return l
}

// serve starts the goroutines around the loop. They stay blocked when the loop ends, because the process exits then.
func (l *loop) serve(requests, commands net.Listener, ticked chan<- struct{}) {
	go accept(requests, l.log, func(conn *net.UnixConn) {
		k := &link{conn: conn, queue: make(chan []byte, maxQueue)}
		l.do <- func() {
			l.daemon.attach(k, l.tasks.welcome(l.info))
			for _, t := range l.tasks.all {
				t.told = false // this daemon has to be told, too
			}
			go func() {
				err := k.read(func(m protocol.Request) { l.do <- func() { l.request(k, m) } })
				l.do <- func() { l.daemon.detach(k, err) }
			}()
		}
	})
	go accept(commands, l.log, func(conn *net.UnixConn) {
		go func() {
			if err := l.execs.serve(conn); err != nil {
				l.log.Warn("request for a command refused", "error", err)
			}
		}()
	})
	go l.leases.timer.fired(ticked)
	for range spawners {
		go l.starts.spawner.Run(l.starts.orders)
	}
	go l.recorder.save(func(round []*task, err error) { l.do <- func() { l.saved(round, err) } })
	go l.measurer.run(func() []scratch.Bounded {
		answer := make(chan []scratch.Bounded, 1)
		l.do <- func() { answer <- l.measurer.bounded(l.tasks.all) }
		return <-answer
	}, func(a job.Attempt) []int {
		answer := make(chan []int, 1)
		l.do <- func() {
			var pids []int
			if t := l.tasks.all[a]; t != nil {
				pids = l.procs.members(t)
			}
			answer <- pids
		}
		return <-answer
	}, func(o scratch.Over) { l.do <- func() { l.overDisk(o) } })
}

// overDisk ends a task that holds too much of the disk.
func (l *loop) overDisk(o scratch.Over) {
	t := l.tasks.all[o.Attempt]
	if t == nil {
		return
	}
	grace := t.watch.grace
	if o.Full {
		grace = 0 // what it would save now has no room, and other tasks need some
	}
	if t.watch.cause == causeNone {
		l.log.Warn("task holds too much of the disk", "attempt", t.name, "user", t.disk.user, "reason", o.Why)
	}
	t.watch.end(l.now(), grace, causeScratch, o.Why)
	l.leases.look(t)
}

// run runs the loop until the runner has drained or shut down, or its daemon has left, and it has no task.
func (l *loop) run(ctx context.Context, deaths <-chan os.Signal, ticked <-chan struct{}) {
	stop := ctx.Done()
	for len(l.tasks.all) > 0 || !l.draining && !l.stopping && !l.daemon.left {
		orders, order := l.starts.next()
		rounds, round := l.recorder.next()
		select {
		case f := <-l.do:
			f()
		case <-deaths:
			l.reap()
		case <-ticked:
		case <-l.leases.host.set:
		case <-l.recorder.late.C:
			l.daemon.reportUnsaved(l.recorder.hangs())
		case orders <- order:
			l.tasks.move(l.starts.take(), spawning)
		case rounds <- round:
			l.recorder.sent()
		case <-l.daemon.idle.C:
			l.daemon.restart()
			if l.daemon.link == nil && len(l.tasks.all) == 0 {
				l.draining = true
			}
		case <-stop:
			stop = nil
			l.shutdown()
		}
		l.tick()
	}
	l.daemon.unlink()
}

// shutdownGrace is the time between TERM and KILL for tasks when the runner shuts down.
const shutdownGrace = 5 * time.Second

// shutdown ends all tasks, because the runner itself was told to end.
func (l *loop) shutdown() {
	l.stopping = true
	now := l.now()
	for _, t := range l.tasks.all {
		t.watch.end(now, shutdownGrace, causeShutdown, "the runner of this node was told to end")
		l.leases.look(t)
	}
	l.dropUnwanted(now)
}

// request carries out a request of the daemon.
func (l *loop) request(k *link, m protocol.Request) {
	if l.daemon.link != k {
		return // it was replaced, and the new daemon asks again for what it wants
	}
	now := l.now()
	switch {
	case m.Start != nil:
		l.begin(m.Start, now)
	case m.Stop != nil:
		if t := l.tasks.find(m.Stop.Attempt); t != nil {
			t.watch.end(now, m.Stop.Grace, causeStop, contract.Clip(m.Stop.Reason))
			l.leases.look(t)
			l.dropUnwanted(now)
		}
	case m.Signal != nil:
		if t := l.tasks.find(m.Signal.Attempt); t != nil && t.pid != 0 {
			l.procs.signal(t, unix.Signal(m.Signal.Number))
		}
	case len(m.Extend) > 0:
		for _, e := range m.Extend {
			if t := l.tasks.find(e.Attempt); t != nil {
				l.leases.extend(t, now, e)
				l.guards.extend(t, l.leases.skew.Skew())
			}
		}
	case m.Drain:
		l.draining = true
	case m.Leave:
		l.daemon.left = true
	}
}

// now reads CLOCK_BOOTTIME. It checks for a pause of this host first, so that every deadline has moved before it is
// compared with the time.
func (l *loop) now() time.Duration {
	now, missed := l.leases.now()
	if missed > 0 {
		l.paused(now, missed)
	}
	return now
}

// paused moves every deadline earlier by the time for which this host was paused, and ends the tasks whose lease has
// run out. The scheduler's clock went on meanwhile, so it may have given those tasks up.
func (l *loop) paused(now, missed time.Duration) {
	leases, lapsed := 0, 0
	for _, t := range l.tasks.all {
		if t.watch.deadline == 0 {
			continue
		}
		t.watch.missed(now, missed)
		l.leases.look(t)
		if leases++; !t.watch.lapsed(now) {
			continue
		}
		lapsed++
		if t.phase == queued || t.phase == spawning {
			t.watch.end(now, 0, causeLease, t.watch.over("lease ran out before its start"))
		}
	}
	l.log.Warn("this host was paused, or its wall clock was set forward: all leases end earlier by that time",
		"by", missed.Round(time.Millisecond).String(), "leases", leases, "ran_out", lapsed)
	l.dropUnwanted(now)
}

// tick sends every signal that is due and sets the timer to the next one. A task that has ended gets none: its exit is
// not the signal's. If this process stood still, it first hears what has happened meanwhile.
func (l *loop) tick() {
	now := l.now()
	if at, ok := l.leases.next.Next(); !ok || now < at {
		l.leases.arm(now)
		return
	}
	l.reap()
	if l.leases.catchingUp(now) {
		l.leases.arm(now)
		return
	}
	for t, due := l.leases.next.Take(now); due; t, due = l.leases.next.Take(now) {
		if sig := t.watch.step(now); sig != 0 {
			l.signal(t, sig, now)
		}
		l.leases.look(t)
	}
	l.leases.arm(now)
}

// signal sends the signal that a task's watch asked for.
func (l *loop) signal(t *task, sig unix.Signal, now time.Duration) {
	if t.phase == lingering {
		if l.settle(t, now); t.phase != lingering {
			return
		}
	}
	if t.watch.cause == causeNone && sig != unix.SIGKILL {
		l.procs.warn(t, sig)
		return
	}
	if sig == unix.SIGKILL && t.watch.isOverdue(now) {
		l.log.Warn("task does not end though it was killed", "attempt", t.name, "pid", t.pid)
	}
	l.procs.end(t, sig)
	if sig == unix.SIGTERM && t.inlet != nil && t.inlet.terminal {
		l.procs.signal(t, unix.SIGHUP) // a shell on a terminal ignores TERM
	}
	if sig == unix.SIGTERM || sig == unix.SIGHUP {
		l.procs.signal(t, unix.SIGCONT) // a stopped process would not handle it
	}
}
