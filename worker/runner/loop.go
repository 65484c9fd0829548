package runner

// The one goroutine that knows the tasks.

import (
	"container/heap"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker/cgroup"
	"github.com/musterhq/muster/worker/leaseclock"
	"github.com/musterhq/muster/worker/runner/protocol"
	"github.com/musterhq/muster/worker/runner/pump"
	"github.com/musterhq/muster/worker/runner/spawn"
)

// task is one attempt from its Start until its end is on disk and told.
type task struct {
	attempt job.Attempt
	name    string       // of the attempt
	order   *spawn.Order // until its process exists
	watch   watch
	at      time.Duration // when its watch is next looked at, as the heap knows it
	index   int           // in the heap
	pid     int
	ticks   uint64
	out     *pump.Outlet // until its end goes to disk
	began   time.Time
	box     *box // nil: a process
	warned  bool // that it does not end
	killing time.Duration
	record  protocol.Record
	scratch job.Size      // bound of its scratch directory; 0: none
	who     spawn.Account // as whom it runs
	where   string        // the directory that it began in
	keeps   bool          // the daemon takes of it what it wants, and clears it
	segment int           // of the journal, that record was saved to

	handed bool // a starter has taken its order, or has had it
	back   bool // it is back from there
}

// hasStarted says what process the task has.
func (t *task) hasStarted() protocol.Started {
	return protocol.Started{Attempt: t.name, PID: t.pid, Began: t.began}
}

// loop owns all that changes. Its methods run in its own goroutine, but for
// those that other goroutines are started with: accept, read, ticks, save and
// started.
type loop struct {
	cfg       Config
	info      protocol.Info
	dir       protocol.Dir
	group     *cgroup.Tree
	notes     *os.File // of the starters
	journal   *journal // of the goroutine save
	starter   *spawn.Spawner
	lasting   func() (context.Context, context.CancelFunc) // of what outlasts a request
	guard     int                                          // process that ends the containers if this one dies; 0: none
	timer     *timer
	log       *slog.Logger
	do        chan func()
	starts    chan *spawn.Order
	rounds    chan []*task
	ticked    chan struct{}
	tasks     map[job.Attempt]*task
	mains     map[int]*task // by pid, until waited for
	starting  map[*task]bool
	stuck     map[*spawn.Order]string // in starters that hang: their users; also those that were withdrawn
	waiting   []*task                 // for a starter
	left      map[*task]bool          // their main process ended, others of them did not
	unsaved   []*task                 // their end has to go to disk
	early     map[int]earlyDeath      // of processes whose start is not yet known here
	execs     map[int]*execution      // by pid, until waited for
	execing   int                     // commands that are being started
	execsOf   map[int]int             // commands that run or are being started, by uid
	clocks    clocks
	link      *link // nil: no daemon is connected
	draining  bool
	stopping  bool
	idle      *time.Timer
	wake      chan struct{} // a task has a scratch directory to measure
	measuring bool
	clearing  chan struct{} // holds a token for each directory that is being removed
	oomKills  int64
	host      hostClock
	skew      leaseclock.Watch
	faults    int // rounds of ends in a row that could not be saved
}

// earlyDeath is a death that came before the word of its birth.
type earlyDeath struct {
	status unix.WaitStatus
	usage  unix.Rusage
	at     time.Duration
}

func newLoop(cfg Config, info protocol.Info, s *spawn.Spawner, ends *journal, timer *timer, host hostClock, log *slog.Logger) *loop {
	l := &loop{
		cfg: cfg, info: info, dir: protocol.Dir(cfg.Dir), group: s.Group, notes: s.Notes, journal: ends, starter: s, timer: timer, log: log,
		do: make(chan func()), starts: make(chan *spawn.Order), rounds: make(chan []*task), ticked: make(chan struct{}, 1),
		tasks: map[job.Attempt]*task{}, mains: map[int]*task{}, starting: map[*task]bool{}, stuck: map[*spawn.Order]string{}, left: map[*task]bool{},
		early: map[int]earlyDeath{}, execs: map[int]*execution{}, execsOf: map[int]int{}, idle: time.NewTimer(cfg.Idle),
		wake: make(chan struct{}, 1), clearing: make(chan struct{}, clearers), oomKills: cgroup.OOMKills(), host: host,
	}
	l.skew.Look(host.read())
	return l
}

// run lasts until the runner is not needed any more. The goroutines around it
// are left blocked: the process ends next.
func (l *loop) run(ctx context.Context, deaths <-chan os.Signal) {
	stop := ctx.Done()
	for !l.done() {
		var first *task
		var order *spawn.Order
		starts := l.starts
		if len(l.waiting) > 0 {
			first = l.waiting[0]
			order = first.order
		} else {
			starts = nil
		}
		rounds := l.rounds
		if len(l.unsaved) == 0 {
			rounds = nil
		}
		select {
		case f := <-l.do:
			f()
		case <-deaths:
			l.reap()
		case <-l.ticked:
		case <-l.host.set:
		case starts <- order:
			l.waiting = l.waiting[1:]
			first.handed = true
		case rounds <- l.unsaved:
			l.unsaved = nil
		case <-l.idle.C:
			l.idled()
		case <-stop:
			stop = nil
			l.shutdown()
		}
		l.tick()
	}
	if l.link != nil {
		l.unlink()
	}
}

// done says that nothing is left to do here.
func (l *loop) done() bool { return len(l.tasks) == 0 && (l.draining || l.stopping) }

// idled ends a runner that has neither task nor daemon.
func (l *loop) idled() {
	l.idle.Reset(l.cfg.Idle)
	if l.link == nil && len(l.tasks) == 0 {
		l.draining = true
	}
}

// shutdown ends all tasks: the runner was told to end.
func (l *loop) shutdown() {
	l.stopping = true
	now := l.now()
	for _, t := range l.tasks {
		t.watch.end(now, dead, causeShutdown, "the runner of this node was told to end")
		l.look(t)
	}
	l.dropWaiting(now)
	l.dropHanded()
}

// attach makes a connection the daemon's, in place of any other.
func (l *loop) attach(k *link) {
	if l.link != nil {
		l.log.Info("daemon replaced by a newer connection")
		l.unlink()
	}
	l.link = k
	w := protocol.Welcome{Info: l.info}
	for _, t := range l.tasks {
		if t.pid != 0 {
			w.Running = append(w.Running, t.hasStarted())
		} else {
			w.Starting = append(w.Starting, t.name)
		}
	}
	l.report(protocol.Report{Welcome: &w})
	go k.write()
	go l.read(k)
}

// detach forgets a connection that broke.
func (l *loop) detach(k *link, err error) {
	if l.link != k {
		return // replaced, and closed then
	}
	if !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) {
		l.log.Warn("connection of daemon broke", "error", err)
	}
	l.unlink()
}

func (l *loop) unlink() {
	close(l.link.queue)
	l.link = nil
	l.idle.Reset(l.cfg.Idle)
}

// report tells the daemon, if there is one.
func (l *loop) report(m protocol.Report) {
	if l.link == nil {
		return
	}
	frame, err := protocol.Frame(m)
	if err != nil {
		l.log.Error("report not sent", "error", err)
		return
	}
	select {
	case l.link.queue <- frame:
	default:
		l.log.Warn("daemon does not read, connection cut")
		_ = l.link.conn.Close() // the daemon sees it
		l.unlink()
	}
}

// request carries out what a daemon asks.
func (l *loop) request(k *link, m protocol.Request) {
	if l.link != k {
		return // replaced: what it asked for is asked again, or not wanted
	}
	now := l.now()
	switch {
	case m.Start != nil:
		l.begin(m.Start, now)
	case m.Stop != nil:
		if t := l.find(m.Stop.Attempt); t != nil {
			t.watch.end(now, m.Stop.Grace, causeStop, clip(m.Stop.Reason))
			l.look(t)
			l.dropWaiting(now)
			l.dropHanded()
		}
	case m.Signal != nil:
		if t := l.find(m.Signal.Attempt); t != nil && t.pid != 0 {
			l.signal(t, unix.Signal(m.Signal.Number))
		}
	case len(m.Extend) > 0:
		for _, e := range m.Extend {
			if t := l.find(e.Attempt); t != nil {
				l.extend(t, now, e)
			}
		}
	case m.Drain:
		l.draining = true
	}
}

func (l *loop) find(name string) *task {
	a, err := job.ParseAttempt(name)
	if err != nil {
		return nil
	}
	return l.tasks[a]
}

// begin queues a start for a starter.
func (l *loop) begin(s *protocol.Start, now time.Duration) {
	if t := l.find(s.Attempt); t != nil {
		if t.pid != 0 {
			l.report(protocol.Report{Started: new(t.hasStarted())})
		}
		return
	}
	a, err := job.ParseAttempt(s.Attempt)
	if err != nil {
		return // readRequest has checked it
	}
	t := &task{attempt: a, name: s.Attempt, order: spawn.NewOrder(a, s), watch: newWatch(s, now), index: -1}
	t.watch.missed(now, l.since(s.Skew))
	t.record.Attempt, t.scratch, t.keeps = s.Attempt, s.Limits.Scratch, s.Keeps
	l.tasks[a] = t
	if l.stopping {
		t.watch.end(now, 0, causeShutdown, "the runner of this node was told to end")
	}
	if s.Container != nil {
		l.contain(t)
		return
	}
	o := t.order
	o.Refused = l.hopeless(s.User)
	o.Slow = func() { l.do <- func() { l.slow(t, o) } }
	o.Done = func(r spawn.Result) { l.do <- func() { l.born(t, o, r) } }
	l.starting[t] = true
	l.waiting = append(l.waiting, t)
	l.dropWaiting(now)
}

// dropWaiting ends the queued starts that are not wanted any more.
func (l *loop) dropWaiting(now time.Duration) {
	keep := l.waiting[:0]
	for _, t := range l.waiting {
		if t.watch.lapsed(now) {
			t.watch.end(now, 0, causeLease, t.watch.over("lease ran out before its start"))
		}
		if t.watch.cause == causeNone {
			keep = append(keep, t)
			continue
		}
		l.neverStarted(t, spawn.Refuse(spawn.CodeNotExecutable, "%s", t.watch.detail))
	}
	clear(l.waiting[len(keep):])
	l.waiting = keep
}

// ticks passes on that the timer fired.
func (l *loop) ticks(timer *timer) {
	var count [8]byte
	for {
		if _, err := timer.Read(count[:]); err != nil {
			return // closed
		}
		select {
		case l.ticked <- struct{}{}:
		default:
		}
	}
}

// tick sends every signal that is due and sets the timer to the next.
func (l *loop) tick() {
	now := l.now()
	for len(l.clocks) > 0 && l.clocks[0].at <= now {
		t := l.clocks[0]
		if sig := t.watch.step(now); sig != 0 {
			l.due(t, sig, now)
		}
		l.look(t)
	}
	if len(l.clocks) > 0 {
		at := l.clocks[0].at
		if l.host.every != 0 {
			at = min(at, now+l.host.every)
		}
		if err := l.timer.set(at); err != nil {
			l.log.Error("timer not set", "error", err)
		}
	}
}

// look brings a task's place among the clocks up to date.
func (l *loop) look(t *task) {
	t.at = t.watch.next()
	switch {
	case t.at == 0 && t.index >= 0:
		heap.Remove(&l.clocks, t.index)
	case t.at != 0 && t.index >= 0:
		heap.Fix(&l.clocks, t.index)
	case t.at != 0:
		heap.Push(&l.clocks, t)
	}
}

// clocks orders the tasks by when their watch is next to be looked at.
type clocks []*task

// Len is of heap.Interface, as are the methods below.
func (c clocks) Len() int           { return len(c) }
func (c clocks) Less(i, j int) bool { return c[i].at < c[j].at }
func (c clocks) Swap(i, j int) {
	c[i], c[j] = c[j], c[i]
	c[i].index, c[j].index = i, j
}

// Push adds a task.
func (c *clocks) Push(x any) {
	t := x.(*task)
	t.index = len(*c)
	*c = append(*c, t)
}

// Pop takes the last task.
func (c *clocks) Pop() any {
	old := *c
	t := old[len(old)-1]
	old[len(old)-1] = nil
	*c = old[:len(old)-1]
	t.index = -1
	return t
}
