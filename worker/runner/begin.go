package runner

// From the Start of a task to its process, or to the reason why it has none.

import (
	"cmp"
	"time"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker/runner/proc"
	"github.com/musterhq/muster/worker/runner/protocol"
	"github.com/musterhq/muster/worker/runner/spawn"
)

// begin takes on a task: it queues the order for its process, or starts its container.
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
	t := &task{attempt: a, name: s.Attempt, order: spawn.NewOrder(a, s), watch: newWatch(s, now), memory: s.Limits.Memory, disk: diskLimits{user: s.User, scratch: s.Limits.Scratch, all: s.Limits.UserScratch}, keeps: s.Keeps}
	t.due.Value = t
	t.watch.missed(now, l.leases.since(s.Skew))
	t.record.Attempt = s.Attempt
	if l.stopping {
		t.watch.end(now, 0, causeShutdown, "the runner of this node was told to end")
	}
	refused := cmp.Or(l.recorder.room.hold(len(l.tasks.all)+1), l.guards.reserve(t, s, l.leases.skew.Skew()))
	if s.Container != nil && refused == nil {
		l.startContainer(t)
		return
	}
	o := t.order
	o.Making = l.guards.making(t, s)
	o.Refused = cmp.Or(refused, l.starts.refusal(s.User))
	o.Slow = func() { l.do <- func() { l.slow(t, o) } }
	o.Done = func(r spawn.Result) { l.do <- func() { l.spawned(t, o, r) } }
	l.tasks.move(t, queued)
	l.starts.waiting = append(l.starts.waiting, t)
	l.dropUnwanted(now)
}

// slow handles a start that takes longer than spawn.SlowStart. The task ends if the start does not return in time.
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
			l.withdraw(t, o, spawn.RefuseHere("%s did not answer within %s on this node", o.WaitsFor(), l.cfg.Answer))
		}
	})
}

// dropUnwanted ends the tasks that have no process yet and do not need one any more: they were stopped, or their
// lease ran out.
func (l *loop) dropUnwanted(now time.Duration) {
	for _, t := range l.starts.takeUnwanted(func(t *task) bool {
		if t.watch.lapsed(now) {
			t.watch.end(now, 0, causeLease, t.watch.over("lease ran out before its start"))
		}
		return t.watch.cause != causeNone
	}) {
		l.neverStarted(t, spawn.Refuse(spawn.CodeNotExecutable, "%s", t.watch.detail))
	}
	for o, t := range l.starts.taken {
		if t.watch.cause != causeNone {
			l.withdraw(t, o, spawn.Refuse(spawn.CodeNotExecutable, "%s", t.watch.detail))
		}
	}
}

// withdraw ends a task whose order a spawner has, unless its process is being made already.
func (l *loop) withdraw(t *task, o *spawn.Order, err error) {
	if t.phase == spawning && o.Withdraw() {
		l.neverStarted(t, err)
	}
}

// spawned handles the result of an order. The process may have ended already.
func (l *loop) spawned(t *task, o *spawn.Order, r spawn.Result) {
	l.starts.back(o)
	switch {
	case o.Withdrawn():
		l.procs.forget(t) // the spawner may have made its control group
		return
	case r.PID == 0 && r.Known:
		l.known(t)
		return
	case r.PID == 0:
		if now := l.now(); t.watch.lapsed(now) {
			t.watch.end(now, 0, causeLease, t.watch.over("lease ran out before its start"))
			r.Err = spawn.Refuse(spawn.CodeNotExecutable, "%s", t.watch.detail)
		}
		l.neverStarted(t, r.Err)
		return
	}
	t.pid, t.ticks, t.began, t.who, t.where, t.out = r.PID, r.Ticks, r.Began, r.Who, r.Where, r.Out
	t.space, t.tmp = r.Space, r.Tmp
	t.inlet = inletOf(r.In, o.Start.Input)
	if !l.started(t, r.From) {
		return
	}
	if d, ok := l.early.take(t.pid, r.From); ok {
		l.exited(t, d.status, d.usage, proc.BootTime())
	}
}

// started records that a task has a process. Since is a reading of CLOCK_BOOTTIME from before its start.
func (l *loop) started(t *task, since time.Duration) bool {
	if !l.tasks.move(t, running) {
		return false
	}
	t.order = nil
	t.record.PID = t.pid
	t.watch.started(since)
	l.leases.look(t)
	l.guards.started(t, l.procs.groupOf(t))
	l.measurer.need()
	l.daemon.report(protocol.Report{Started: new(t.asStarted())})
	return true
}

// known handles a Start of an attempt that an earlier runner has had. It reports how the attempt ended, if that is on
// disk.
func (l *loop) known(t *task) {
	if !l.tasks.move(t, gone) {
		return
	}
	l.guards.free(t)
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
	l.guards.free(t)
	t.record.Exit = spawn.ExitOf(err, time.Now())
	if t.watch.cause != causeNone {
		t.record.Exit.State = t.watch.cause.state()
	}
	t.record.Exit.Reason = contract.Clip(t.record.Exit.Reason)
	l.procs.forget(t)
	l.recorder.add(t)
}

// startContainer starts the container of a task. The task's watch is active from now on, because the lease may run
// out while the image is pulled.
func (l *loop) startContainer(t *task) {
	ctx, cancel := l.detached()
	t.container = &container{cancel: cancel}
	l.tasks.move(t, preparing)
	t.watch.begin()
	l.leases.look(t)
	l.guards.preparing(t)
	o := t.order
	progress := func(text string) { l.do <- func() { l.daemon.progress(t, text) } }
	began := func(pid int, p spawn.Process, in spawn.Sink) { l.do <- func() { l.containerStarted(t, pid, p, in) } }
	go func() {
		defer cancel()
		exit, known := l.containers.run(ctx, o, progress, began)
		l.do <- func() { l.containerEnded(t, exit, known) }
	}()
}

// containerStarted records that a container has a process. Its time limit begins here, so that the pull does not
// count.
func (l *loop) containerStarted(t *task, pid int, p spawn.Process, in spawn.Sink) {
	if in != nil {
		t.inlet = &inlet{sink: in, terminal: t.order.Start.Input.TTY}
	}
	t.pid, t.began, t.container.process = pid, time.Now(), p
	if l.started(t, proc.BootTime()) && t.watch.signalled() {
		p.End(unix.SIGTERM) // TERM was due before the process existed
	}
}

// containerEnded handles the exit of a container that has no process left. Known says that an earlier runner has had
// the attempt.
func (l *loop) containerEnded(t *task, exit job.Exit, known bool) {
	t.watch.ended(l.leases.boot(), exit.Signal, l.guards.killed(t))
	signalled := t.watch.signalled()
	l.guards.free(t)
	t.inlet.close()
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
	t.record.Exit.Reason = contract.Clip(t.record.Exit.Reason)
	l.recorder.add(t)
}
