package runner

// From the Start of a task to its process, or to the reason why it has none.

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/lease"
	"github.com/musterhq/muster/worker/runner/proc"
	"github.com/musterhq/muster/worker/runner/protocol"
	"github.com/musterhq/muster/worker/runner/spawn"
)

// begin takes a task and queues its order, or begins its container.
func (l *loop) begin(s *protocol.Start, now time.Duration) {
	if t := l.tasks.find(s.Attempt); t != nil {
		if t.pid != 0 {
			l.daemon.report(protocol.Report{Started: new(t.asStarted())})
		}
		return
	}
	a, err := job.ParseAttempt(s.Attempt)
	if err != nil {
		return // ReadRequest has checked it
	}
	t := &task{attempt: a, name: s.Attempt, order: spawn.NewOrder(a, s), watch: newWatch(s, now), index: -1, scratch: s.Limits.Scratch, keeps: s.Keeps}
	t.watch.missed(now, l.leases.since(s.Skew))
	t.record.Attempt = s.Attempt
	if l.stopping {
		t.watch.end(now, 0, causeShutdown, "the runner of this node was told to end")
	}
	if s.Container != nil {
		l.contain(t)
		return
	}
	o := t.order
	o.Refused = l.starts.refusal(s.User)
	o.Slow = func() { l.do <- func() { l.slow(t, o) } }
	o.Done = func(r spawn.Result) { l.do <- func() { l.spawned(t, o, r) } }
	l.tasks.move(t, queued)
	l.starts.waiting = append(l.starts.waiting, t)
	l.dropUnwanted(now)
}

// slow notes that a start takes long. If it does not return in time, the task ends.
func (l *loop) slow(t *task, o *spawn.Order) {
	if !l.starts.hangs(o) {
		return
	}
	l.log.Warn("start hangs", "attempt", t.name, "user", o.Start.User, "waits_for", o.WaitsFor())
	l.daemon.progress(t, "waits for "+o.WaitsFor()+", which does not answer")
	if l.dropUnwanted(l.now()); o.Withdrawn() {
		return
	}
	time.AfterFunc(l.cfg.Answer-spawn.SlowStart, func() {
		l.do <- func() {
			l.withdraw(t, o, spawn.Refuse(spawn.CodeNotExecutable, "%s did not answer within %s on this node", o.WaitsFor(), l.cfg.Answer))
		}
	})
}

// dropUnwanted ends the tasks that are to end and have no process yet.
func (l *loop) dropUnwanted(now time.Duration) {
	for _, t := range l.starts.takeUnwanted(func(t *task) bool {
		if t.watch.lapsed(now) {
			t.watch.end(now, 0, causeLease, t.watch.over("lease ran out before its start"))
		}
		return t.watch.cause != causeNone
	}) {
		l.neverStarted(t, spawn.Refuse(spawn.CodeNotExecutable, "%s", t.watch.detail))
	}
	for o, t := range l.starts.out {
		if t.watch.cause != causeNone {
			l.withdraw(t, o, spawn.Refuse(spawn.CodeNotExecutable, "%s", t.watch.detail))
		}
	}
}

// withdraw ends a task whose order a spawner has, unless its process is being made.
func (l *loop) withdraw(t *task, o *spawn.Order, err error) {
	if t.phase == spawning && o.Withdraw() {
		l.neverStarted(t, err)
	}
}

// spawned takes what came of an order. The process may have ended already.
func (l *loop) spawned(t *task, o *spawn.Order, r spawn.Result) {
	l.starts.back(o)
	switch {
	case o.Withdrawn():
		l.procs.forget(t) // its control group was made since
		return
	case r.PID == 0 && r.Known:
		l.known(t)
		return
	case r.PID == 0:
		l.neverStarted(t, r.Err)
		return
	}
	t.pid, t.ticks, t.began, t.who, t.where, t.out = r.PID, r.Ticks, r.Began, r.Who, r.Where, r.Out
	if !l.started(t, r.From) {
		return
	}
	if d, ok := l.early.take(t.pid, r.From); ok {
		l.exited(t, d.status, d.usage, proc.BootTime())
	}
}

// started notes that a task has a process since a reading of CLOCK_BOOTTIME.
func (l *loop) started(t *task, since time.Duration) bool {
	if !l.tasks.move(t, running) {
		return false
	}
	t.order = nil
	t.record.PID = t.pid
	t.watch.started(since)
	l.leases.look(t)
	if t.scratch > 0 {
		l.measurer.need()
	}
	l.daemon.report(protocol.Report{Started: new(t.asStarted())})
	return true
}

// known ends a Start of an attempt that an earlier runner had.
func (l *loop) known(t *task) {
	if !l.tasks.move(t, gone) {
		return
	}
	e := protocol.Ended{Attempt: t.name}
	if end, err := l.dir.FindEnd(t.attempt); err == nil {
		e.Exit = &end.Exit
		if end.Segment.Runner == l.cfg.Generation {
			e.Segment = end.Segment.Number
		}
	}
	l.daemon.report(protocol.Report{Ended: &e})
}

// neverStarted ends a task that has no process.
func (l *loop) neverStarted(t *task, err error) {
	if !l.tasks.move(t, ended) {
		return
	}
	t.order = nil
	t.record.Exit = spawn.ExitOf(err, time.Now())
	if t.watch.cause != causeNone {
		t.record.Exit.State = t.watch.cause.state()
	}
	t.record.Exit.Reason = lease.Clip(t.record.Exit.Reason)
	l.procs.forget(t)
	l.recorder.unsaved = append(l.recorder.unsaved, t)
}

// contain begins the container of a task. The watch looks after it from now on: the
// pull of its image may outlast its lease.
func (l *loop) contain(t *task) {
	ctx, cancel := l.lasting()
	t.box = &box{cancel: cancel}
	l.tasks.move(t, preparing)
	t.watch.begin()
	l.leases.look(t)
	l.boxes.keepGuard()
	o := t.order
	progress := func(text string) { l.do <- func() { l.daemon.progress(t, text) } }
	began := func(pid int, p spawn.Process) { l.do <- func() { l.boxStarted(t, pid, p) } }
	go func() {
		defer cancel()
		exit, known := l.boxes.run(ctx, o, progress, began)
		l.do <- func() { l.boxEnded(t, exit, known) }
	}()
}

// boxStarted notes that a container has a process. Its time limit begins here: the
// pull does not count.
func (l *loop) boxStarted(t *task, pid int, p spawn.Process) {
	t.pid, t.began, t.box.process = pid, time.Now(), p
	if l.started(t, proc.BootTime()) && t.watch.signalled() {
		p.Signal(unix.SIGTERM) // there was no process when it was sent first
	}
}

// boxEnded takes the end of a container that has no process left. Known says that an
// earlier runner had the attempt.
func (l *loop) boxEnded(t *task, exit job.Exit, known bool) {
	signalled := t.watch.signalled()
	t.watch.stage = off
	l.leases.look(t)
	if known {
		l.known(t)
		return
	}
	if !l.tasks.move(t, ended) {
		return
	}
	t.order = nil
	t.record.Exit = exit
	if exit.Started {
		t.record.Exit.Isolation = l.info.Isolation
	}
	if t.watch.cause != causeNone && (!exit.Started || signalled) {
		t.caused()
	}
	t.record.Exit.Reason = lease.Clip(t.record.Exit.Reason)
	l.recorder.unsaved = append(l.recorder.unsaved, t)
}
