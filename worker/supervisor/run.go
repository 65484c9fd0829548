package supervisor

// The one goroutine that knows which runner has which attempt.

import (
	"context"
	"errors"
	"os"
	"sync"
	"time"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker/driver"
	"github.com/musterhq/muster/worker/leaseclock"
	"github.com/musterhq/muster/worker/runner/guard"
	"github.com/musterhq/muster/worker/runner/protocol"
)

// extendBatch bounds the deadlines in one frame.
const extendBatch = 4096

// entry is an attempt whose exit is not known yet.
type entry struct {
	attempt   job.Attempt
	role      role   // what kind of runner it needs
	user      string // that the task runs as
	plain     bool   // its directory holds only its output, once it has ended
	runner    int    // generation; 0: none has it yet
	start     []byte // the frame of its Start, until it has a process
	pid       int
	isolation string
	began     time.Time
	deadline  leaseclock.BootTime // the newest; 0: none is known
	stop      *protocol.Stop      // the last one requested
}

// state is what Run's goroutine owns.
type state struct {
	d        *Driver
	keepers  sync.WaitGroup // goroutines that keep connected to a runner
	wg       sync.WaitGroup // all others
	entries  map[job.Attempt]*entry
	ends     *ends
	runners  *runners
	adopters []chan adopted
	adopted  bool // Adopt has answered, so events are passed on
	out      []driver.Event
}

// Run runs the driver until ctx ends. The runners and their tasks live on.
func (d *Driver) Run(ctx context.Context) error {
	if err := d.dir.Make(); err != nil {
		return err
	}
	s := &state{d: d, entries: map[job.Attempt]*entry{}, runners: newRunners(d.cfg.Version, d.log)}
	s.ends = newEnds(d.dir, func(generation int) bool { return s.runners.links[generation] != nil }, d.log)
	s.ends.remove = func(file func()) { go file() } // a disk that does not answer holds up nothing else
	d.clearLogs(ctx)
	left, err := protocol.LeftTmps(d.dir)
	if err != nil {
		return err
	}
	d.removeTmps(ctx, left...)
	s.runners.run = s.wg.Go
	s.runners.launch = func(n int, r role, pause time.Duration) { s.keepers.Go(func() { s.live(ctx, n, r, pause) }) }
	generations, err := d.dir.Generations()
	if err != nil {
		return err
	}
	if err := d.follows.Open(); err != nil {
		d.log.WarnContext(ctx, "output of tasks cannot be followed", "error", err)
	}
	out := make(chan driver.Event)
	s.wg.Go(func() {
		for e := range out {
			d.tell(e)
		}
	})
	s.wg.Go(d.follows.Run)
	w := &sweeper{dir: d.dir, activity: d.activity, log: d.log, unforgotten: s.unforgotten}
	s.wg.Go(func() { w.run(ctx, d.reached) })
	if s.runners.newest, err = s.ends.newestRunner(); err != nil {
		return err
	}
	for _, n := range generations {
		s.runners.newest = max(s.runners.newest, n)
		s.runners.links[n] = &link{}
		k := &keeper{s: s, d: d, n: n}
		s.keepers.Go(func() { k.run(ctx) })
	}
	s.loop(ctx, out)
	d.inbox.close()
	d.spares.close()
	d.follows.Close()
	close(out)
	s.drop()
	return nil
}

func (s *state) loop(ctx context.Context, out chan<- driver.Event) {
	s.advance()
	f := newFence(s.runners)
	defer f.timer.Stop()
	for {
		var first driver.Event
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
		case <-f.timer.C:
			f.look()
			continue
		case <-ctx.Done():
			return
		}
		s.advance()
	}
}

// drop closes every connection and waits for the goroutines that Run started.
func (s *state) drop() {
	s.await(&s.keepers) // a runner is told that this daemon ends before its connection is closed
	for _, k := range s.runners.links {
		k.cut()
	}
	s.await(&s.wg)
}

// await waits for goroutines that may be sending functions to this one.
func (s *state) await(all *sync.WaitGroup) {
	done := make(chan struct{})
	go func() {
		all.Wait()
		close(done)
	}()
	for {
		select {
		case <-s.d.do: // not executed: the caller only needs not to block
		case <-done:
			return
		}
	}
}

// advance does what has become possible: it starts the runners that are needed and answers Adopt.
func (s *state) advance() {
	if !s.runners.settled() {
		return
	}
	closeOnce(s.d.reached)
	for _, r := range []role{processes, containers} {
		if s.runners.current(r) == 0 && s.runners.spawning[r] == 0 && (r == processes || s.wanted(r)) {
			s.runners.spawn(r)
		}
	}
	for _, answer := range s.adopters {
		answer <- s.found()
	}
	s.adopters = nil
}

// found returns the attempts that are alive and the exits that were not forgotten.
func (s *state) found() adopted {
	s.adopted = true
	var a adopted
	written, err := s.ends.read()
	if err != nil {
		a.err = err
		return a
	}
	for _, e := range s.entries {
		kind := driver.Starting
		if e.pid != 0 {
			kind = driver.Started
		}
		a.events = append(a.events, driver.Event{Attempt: e.attempt, Kind: kind, PID: e.pid, Isolation: e.isolation, Began: e.began})
	}
	for _, e := range written {
		attempt, err := job.ParseAttempt(e.Attempt)
		if err != nil || s.entries[attempt] != nil {
			continue // its exit is reported as an event
		}
		a.events = append(a.events, endOf(attempt, e.Exit))
	}
	return a
}

// wanted reports whether a task waits for a runner of this role. Few hosts run containers, so their runner is started
// only when it is needed.
func (s *state) wanted(r role) bool {
	for _, e := range s.entries {
		if e.role == r && e.runner == 0 {
			return true
		}
	}
	return false
}

func (s *state) begin(e *entry) {
	if old := s.entries[e.attempt]; old != nil {
		if old.pid != 0 {
			s.report(driver.Event{Attempt: old.attempt, Kind: driver.Started, PID: old.pid, Isolation: old.isolation, Began: old.began})
		}
		return
	}
	s.entries[e.attempt] = e
	s.dispatch(e)
}

// dispatch sends an attempt to the current runner. Without one it waits for the next Welcome.
func (s *state) dispatch(e *entry) {
	e.runner = s.runners.current(e.role)
	k := s.runners.links[e.runner]
	if k == nil || k.conn == nil {
		return // it is sent after the next Welcome
	}
	s.runners.send(k, e.start)
	s.again(k, e)
}

// again sends a runner the requests about an attempt that followed its Start.
func (s *state) again(k *link, e *entry) {
	if e.deadline != 0 {
		s.runners.request(k, protocol.Request{Extend: []protocol.Extension{e.extension()}})
	}
	if e.stop != nil {
		s.runners.request(k, protocol.Request{Stop: e.stop})
	}
}

// extension returns the newest deadline on the clock of the host.
func (e *entry) extension() protocol.Extension {
	boot, skew := e.deadline.OnHost()
	return protocol.Extension{Attempt: e.attempt.String(), Deadline: boot, Skew: skew}
}

func (s *state) stop(a job.Attempt, m protocol.Stop) {
	e := s.entries[a]
	if e == nil {
		return // it has ended, and that was reported
	}
	if e.stop == nil || m.Grace < e.stop.Grace {
		e.stop = &m
	}
	s.runners.request(s.runners.links[e.runner], protocol.Request{Stop: &m})
}

func (s *state) signal(a job.Attempt, m protocol.Signal) {
	if e := s.entries[a]; e != nil {
		s.runners.request(s.runners.links[e.runner], protocol.Request{Signal: &m})
	}
}

func (s *state) extend(deadlines map[job.Attempt]leaseclock.BootTime) {
	frames, inTables := map[int][]protocol.Extension{}, map[int]map[string]guard.Extension{}
	for a, at := range deadlines {
		e := s.entries[a]
		if e == nil || at <= e.deadline {
			continue
		}
		e.deadline = at
		x := e.extension()
		if k := s.runners.links[e.runner]; k != nil && k.table != nil {
			if inTables[e.runner] == nil {
				inTables[e.runner] = map[string]guard.Extension{}
			}
			inTables[e.runner][x.Attempt] = guard.Extension{Deadline: x.Deadline, Skew: x.Skew}
		}
		batch := append(frames[e.runner], x)
		if len(batch) == extendBatch {
			s.runners.request(s.runners.links[e.runner], protocol.Request{Extend: batch})
			batch = nil
		}
		frames[e.runner] = batch
	}
	for n, all := range inTables { // a runner that stands still reads no request, but its guard reads the table
		s.runners.links[n].table.ExtendAll(all)
	}
	for n, batch := range frames {
		if len(batch) > 0 {
			s.runners.request(s.runners.links[n], protocol.Request{Extend: batch})
		}
	}
}

// report queues an event. The queue is bounded because each attempt has only a few events.
func (s *state) report(e driver.Event) {
	if s.adopted {
		s.out = append(s.out, e)
	}
}

// started records the process of an attempt.
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
	s.d.activity.run(a)
	s.d.spares.settled(a)
	if e.pid == 0 {
		e.pid, e.isolation, e.began = m.PID, s.runners.links[n].isolation, m.Began
		s.report(driver.Event{Attempt: a, Kind: driver.Started, PID: m.PID, Isolation: e.isolation, Began: e.began})
	}
}

// ended records the exit of an attempt; nil means that the exit is not known.
func (s *state) ended(a job.Attempt, exit *job.Exit) {
	if s.entries[a] == nil {
		if exit != nil { // reported already, before it was on disk: the worker may have forgotten it
			s.report(endOf(a, *exit))
		}
		return
	}
	delete(s.entries, a)
	s.d.activity.end(a)
	s.d.spares.settled(a)
	if exit == nil {
		s.report(driver.Event{Attempt: a, Kind: driver.Lost, Exit: job.Exit{
			State: job.NodeFail, Reason: "the runner of its node died, and the task with it",
		}})
		return
	}
	s.report(endOf(a, *exit))
}

// withUsage adds to the exit of an attempt what the attempt used.
func (d *Driver) withUsage(a job.Attempt, exit *job.Exit, cpu time.Duration, rss job.Size) *job.Exit {
	if d.cfg.Usage != nil && exit != nil {
		exit.Usage = d.cfg.Usage(a, cpu, rss)
	}
	return exit
}

func endOf(a job.Attempt, exit job.Exit) driver.Event {
	kind := driver.Exited
	if !exit.Started {
		kind = driver.Failed
	}
	return driver.Event{Attempt: a, Kind: kind, Exit: exit}
}

// missing decides about an attempt that no living runner has. If its exit is on disk, it has ended; if no runner has
// begun it, it is dispatched again; otherwise it died with its runner.
func (s *state) missing(e *entry) {
	end, err := s.d.dir.FindEnd(e.attempt)
	switch {
	case err == nil:
		s.ends.add(e.attempt, end.Segment)
		s.ended(e.attempt, s.d.withUsage(e.attempt, &end.Exit, end.CPU, end.MaxRSS))
	case !errors.Is(err, os.ErrNotExist):
		s.d.log.Error("exit of task is unreadable", "attempt", e.attempt.String(), "error", err)
		s.ended(e.attempt, nil)
	case e.start != nil && s.d.NeverBegun(e.attempt):
		s.dispatch(e)
	default:
		s.ended(e.attempt, nil)
	}
}

// unforgotten returns the attempts whose exits are still needed, and those whose directories later attempts may take; nil
// when ctx has ended. It is called outside of Run's goroutine.
func (s *state) unforgotten(ctx context.Context) map[job.Attempt]bool {
	answer := make(chan map[job.Attempt]bool, 1)
	select {
	case s.d.do <- func() { names := s.ends.names(); s.d.spares.addTo(names); answer <- names }:
		return <-answer
	case <-ctx.Done():
		return nil
	}
}
