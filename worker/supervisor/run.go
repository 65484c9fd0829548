package supervisor

// The one goroutine that knows which runner has which attempt.

import (
	"context"
	"errors"
	"net"
	"os"
	"sync"
	"time"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker"
	"github.com/musterhq/muster/worker/runner/protocol"
)

const (
	// maxQueue bounds the requests that a runner has not read; one that does
	// not read is cut off, and told everything again.
	maxQueue = 8192
	// respawnFirst and respawnMost bound the pause before a runner that would
	// not live is started again.
	respawnFirst = 100 * time.Millisecond
	respawnMost  = 5 * time.Second
	// extendBatch bounds the deadlines of one frame.
	extendBatch = 4096
)

// entry is an attempt whose end is not yet known here.
type entry struct {
	attempt   job.Attempt
	role      role   // of the runner that it needs
	runner    int    // generation; 0: none has it yet
	start     []byte // its Start, until its process is known to exist
	pid       int
	isolation string
	began     time.Time
	deadline  worker.BootTime // the newest; 0: none is known
	stop      *protocol.Stop  // the last one asked for
}

// role is what a runner runs. Containers have a runner of their own: it knows
// the engine's client, which that of the processes is too small for.
type role bool

const (
	processes  role = false
	containers role = true
)

// link is one runner as this daemon sees it.
type link struct {
	role    role
	conn    net.Conn // nil: not connected
	queue   chan []byte
	settled bool // it does not keep Adopt waiting: it was reached, or is new
	// welcomed: it was reached once, and version is its own.
	welcomed  bool
	version   string
	isolation string // what holds its tasks, for people
	own       bool   // this daemon started it; a new version may lie at the path of its binary
}

// state is all that Run's goroutine owns.
type state struct {
	d        *Driver
	launch   func(n int, r role, pause time.Duration) // starts a runner in the background
	wg       sync.WaitGroup
	entries  map[job.Attempt]*entry
	ends     *ends
	links    map[int]*link
	spawning map[role]int // generation that is being started; 0 for none
	newest   int          // generation that ever was
	failures map[role]int // runners in a row that did not live
	adopters []chan adopted
	tells    bool // Adopt has answered
	out      []worker.DriverEvent
}

// Run lasts until ctx ends; the runners and their tasks live on.
func (d *Driver) Run(ctx context.Context) error {
	if err := d.dir.Make(); err != nil {
		return err
	}
	s := &state{d: d, entries: map[job.Attempt]*entry{}, links: map[int]*link{}, spawning: map[role]int{}, failures: map[role]int{}}
	s.ends = newEnds(d.dir, func(generation int) bool { return s.links[generation] != nil }, d.log)
	d.clearLogs(ctx)
	s.launch = func(n int, r role, pause time.Duration) { s.wg.Go(func() { s.live(ctx, n, r, pause) }) }
	generations, err := d.dir.Generations()
	if err != nil {
		return err
	}
	if err := d.follows.Open(); err != nil {
		d.log.WarnContext(ctx, "outputs cannot be followed", "error", err)
	}
	out := make(chan worker.DriverEvent)
	s.wg.Go(func() {
		for e := range out {
			d.tell(e)
		}
	})
	s.wg.Go(d.follows.Run)
	s.wg.Go(func() { s.sweeps(ctx) })
	if s.newest, err = s.ends.newestRunner(); err != nil {
		return err
	}
	for _, n := range generations {
		s.newest = max(s.newest, n)
		s.links[n] = &link{}
		k := &keeper{s: s, d: d, n: n}
		s.wg.Go(func() { k.run(ctx) })
	}
	s.loop(ctx, out)
	d.inbox.close()
	d.follows.Close()
	close(out)
	s.drop()
	return nil
}

func (s *state) loop(ctx context.Context, out chan<- worker.DriverEvent) {
	s.advance()
	for {
		var first worker.DriverEvent
		to := out
		if len(s.out) > 0 {
			first = s.out[0]
		} else {
			to = nil
		}
		select {
		case <-s.d.inbox.wake:
			for _, f := range s.d.inbox.take() {
				f(s)
			}
		case f := <-s.d.do:
			f()
		case to <- first:
			s.out = s.out[1:]
			continue
		case <-ctx.Done():
			return
		}
		s.advance()
	}
}

// drop closes every connection and waits for what Run started.
func (s *state) drop() {
	done := make(chan struct{})
	go func() {
		s.wg.Wait()
		close(done)
	}()
	for _, k := range s.links {
		k.cut()
	}
	for {
		select {
		case <-s.d.do: // whoever asks now is on its way out
		case <-done:
			return
		}
	}
}

func (k *link) cut() {
	if k.conn != nil {
		close(k.queue)
		k.conn = nil
	}
}

// advance does what has become possible: a runner for new tasks, an answer to
// those that wait for Adopt.
func (s *state) advance() {
	for _, k := range s.links {
		if !k.settled {
			return
		}
	}
	for _, r := range []role{processes, containers} {
		if s.current(r) == 0 && s.spawning[r] == 0 && (r == processes || s.wanted(r)) {
			s.spawn(r)
		}
	}
	for _, answer := range s.adopters {
		answer <- s.found()
	}
	s.adopters = nil
}

// found lists all that lives or whose end is not forgotten.
func (s *state) found() adopted {
	s.tells = true
	var a adopted
	written, err := s.ends.read()
	if err != nil {
		a.err = err
		return a
	}
	for _, e := range s.entries {
		kind := worker.DriverStarting
		if e.pid != 0 {
			kind = worker.DriverStarted
		}
		a.events = append(a.events, worker.DriverEvent{Attempt: e.attempt, Kind: kind, PID: e.pid, Isolation: e.isolation, Began: e.began})
	}
	for _, e := range written {
		attempt, err := job.ParseAttempt(e.Attempt)
		if err != nil || s.entries[attempt] != nil {
			continue // it will be told
		}
		a.events = append(a.events, endOf(attempt, e.Exit))
	}
	return a
}

// wanted says whether a task waits for a runner of the role. Few hosts have
// containers, so that their runner is not started before.
func (s *state) wanted(r role) bool {
	for _, e := range s.entries {
		if e.role == r && e.runner == 0 {
			return true
		}
	}
	return false
}

// current is the runner that new tasks go to: the newest of this version, or
// that this daemon has started.
func (s *state) current(r role) int {
	best := 0
	for n, k := range s.links {
		if k.welcomed && k.role == r && (k.own || k.version == s.d.cfg.Version) {
			best = max(best, n)
		}
	}
	return best
}

func (s *state) begin(e *entry) {
	if old := s.entries[e.attempt]; old != nil {
		if old.pid != 0 {
			s.tell(worker.DriverEvent{Attempt: old.attempt, Kind: worker.DriverStarted, PID: old.pid, Isolation: old.isolation, Began: old.began})
		}
		return
	}
	s.entries[e.attempt] = e
	s.dispatch(e)
}

// dispatch gives an attempt to the current runner, or leaves it waiting for one.
func (s *state) dispatch(e *entry) {
	e.runner = s.current(e.role)
	k := s.links[e.runner]
	if k == nil || k.conn == nil {
		return // it is sent on the next Welcome
	}
	s.send(k, e.start)
	s.again(k, e)
}

// again tells a runner what has been asked of an attempt since its Start.
func (s *state) again(k *link, e *entry) {
	if e.deadline != 0 {
		s.ask(k, protocol.Request{Extend: []protocol.Extension{e.extension()}})
	}
	if e.stop != nil {
		s.ask(k, protocol.Request{Stop: e.stop})
	}
}

// extension is the newest deadline as the runner's clock has it.
func (e *entry) extension() protocol.Extension {
	boot, skew := e.deadline.OnHost()
	return protocol.Extension{Attempt: e.attempt.String(), Deadline: boot, Skew: skew}
}

func (s *state) stop(a job.Attempt, m protocol.Stop) {
	e := s.entries[a]
	if e == nil {
		return // it has ended, and that was told
	}
	if e.stop == nil || m.Grace < e.stop.Grace {
		e.stop = &m
	}
	s.ask(s.links[e.runner], protocol.Request{Stop: &m})
}

func (s *state) signal(a job.Attempt, m protocol.Signal) {
	if e := s.entries[a]; e != nil {
		s.ask(s.links[e.runner], protocol.Request{Signal: &m})
	}
}

func (s *state) extend(deadlines map[job.Attempt]worker.BootTime) {
	frames := map[int][]protocol.Extension{}
	for a, at := range deadlines {
		e := s.entries[a]
		if e == nil || at <= e.deadline {
			continue
		}
		e.deadline = at
		batch := append(frames[e.runner], e.extension())
		if len(batch) == extendBatch {
			s.ask(s.links[e.runner], protocol.Request{Extend: batch})
			batch = nil
		}
		frames[e.runner] = batch
	}
	for n, batch := range frames {
		if len(batch) > 0 {
			s.ask(s.links[n], protocol.Request{Extend: batch})
		}
	}
}

// ask sends a request if the runner is connected; what is lasting of it is
// told again on its next Welcome.
func (s *state) ask(k *link, m protocol.Request) {
	if k == nil || k.conn == nil {
		return
	}
	frame, err := protocol.Frame(m)
	if err != nil {
		s.d.log.Error("request not sent to runner", "error", err)
		return
	}
	s.send(k, frame)
}

func (s *state) send(k *link, frame []byte) {
	select {
	case k.queue <- frame:
	default:
		s.d.log.Warn("runner does not read, connection cut")
		k.cut()
	}
}

// tell queues an event, in order; there are few for each attempt that a worker
// has given out, which bounds the queue.
func (s *state) tell(e worker.DriverEvent) {
	if s.tells {
		s.out = append(s.out, e)
	}
}

// started notes the process of an attempt.
func (s *state) started(n int, m protocol.Started) {
	a, err := job.ParseAttempt(m.Attempt)
	if err != nil {
		return // ReadReport has checked it
	}
	e := s.entries[a]
	if e == nil {
		e = &entry{attempt: a}
		s.entries[a] = e
	}
	e.runner, e.start = n, nil
	s.d.lives.run(a)
	if e.pid == 0 {
		e.pid, e.isolation, e.began = m.PID, s.links[n].isolation, m.Began
		s.tell(worker.DriverEvent{Attempt: a, Kind: worker.DriverStarted, PID: m.PID, Isolation: e.isolation, Began: e.began})
	}
}

// ended notes the end of an attempt; nil means that nothing is known of it.
func (s *state) ended(a job.Attempt, exit *job.Exit) {
	if s.entries[a] == nil {
		return // told already
	}
	delete(s.entries, a)
	s.d.lives.end(a)
	if exit == nil {
		s.tell(worker.DriverEvent{Attempt: a, Kind: worker.DriverLost, Exit: job.Exit{
			State: job.NodeFail, Reason: "the runner of its node died, and the task with it",
		}})
		return
	}
	s.tell(endOf(a, *exit))
}

func endOf(a job.Attempt, exit job.Exit) worker.DriverEvent {
	kind := worker.DriverExited
	if !exit.Started {
		kind = worker.DriverFailed
	}
	return worker.DriverEvent{Attempt: a, Kind: kind, Exit: exit}
}

// missing decides about an attempt that no living runner has: it ended, or was
// never begun and is given to a runner again, or died with its runner.
func (s *state) missing(e *entry) {
	end, err := s.d.dir.FindEnd(e.attempt)
	switch {
	case err == nil:
		s.ends.add(e.attempt, end.Segment)
		s.ended(e.attempt, &end.Exit)
	case !errors.Is(err, os.ErrNotExist):
		s.d.log.Error("end of task is unreadable", "attempt", e.attempt.String(), "error", err)
		s.ended(e.attempt, nil)
	case e.start != nil && s.untouched(e.attempt):
		s.dispatch(e)
	default:
		s.ended(e.attempt, nil)
	}
}

// untouched says that no runner has begun with an attempt.
func (s *state) untouched(a job.Attempt) bool {
	_, err := os.Lstat(s.d.dir.Task(a))
	return errors.Is(err, os.ErrNotExist)
}
