package runner

// From the birth of a task's process to the word that nothing of it is left.

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker/cgroup"
	"github.com/musterhq/muster/worker/runner/proc"
	"github.com/musterhq/muster/worker/runner/protocol"
	"github.com/musterhq/muster/worker/runner/scratch"
	"github.com/musterhq/muster/worker/runner/spawn"
)

const (
	// maxEarly is how long the death of an unknown process is remembered: its
	// birth is told right after the fork that made it.
	maxEarly = 10 * time.Second
	// maxReason bounds the sentence in an exit: it travels between hosts.
	maxReason = 1024
	// saveAgain is the pause before ends that could not be written, on a full
	// disk say, are tried again.
	saveAgain = time.Second
	// warnAfter is how long after KILL a process that still is there is a
	// person's business: it hangs in the kernel.
	warnAfter = 10 * time.Second
)

// born takes note of a process, which may be dead already.
func (l *loop) born(t *task, o *spawn.Order, r spawn.Result) {
	delete(l.starting, t)
	delete(l.stuck, o)
	t.back = true
	now := proc.BootTime()
	if o.Withdrawn() {
		if l.group != nil {
			l.group.Empty(t.name) // it has been made since
		}
		return
	}
	if r.PID == 0 {
		if r.Known {
			l.seen(t)
			return
		}
		l.neverStarted(t, r.Err)
		return
	}
	t.order = nil
	t.pid, t.ticks, t.began, t.who, t.where, t.out = r.PID, r.Ticks, r.Began, r.Who, r.Where, r.Out
	t.record.PID = r.PID
	t.watch.started(r.From)
	l.mains[t.pid] = t
	if t.scratch > 0 && !l.measuring {
		l.measuring = true
		l.wake <- struct{}{} // the one place in it is free: it is asleep, or not yet awake
	}
	l.report(protocol.Report{Started: new(t.hasStarted())})
	if d, ok := l.early[t.pid]; ok && d.at >= r.From {
		delete(l.early, t.pid)
		l.died(t, d.status, d.usage, now)
		return
	}
	l.look(t)
}

// seen answers a Start of an attempt that an earlier runner had.
func (l *loop) seen(t *task) {
	delete(l.tasks, t.attempt)
	e := protocol.Ended{Attempt: t.name}
	if end, err := l.dir.FindEnd(t.attempt); err == nil {
		e.Exit = &end.Exit
		if end.Segment.Runner == l.cfg.Generation {
			e.Segment = end.Segment.Number
		}
	}
	l.report(protocol.Report{Ended: &e})
}

// neverStarted ends a task that has no process.
func (l *loop) neverStarted(t *task, err error) {
	delete(l.starting, t)
	t.order = nil
	t.record.Exit = spawn.ExitOf(err, time.Now())
	if t.watch.cause != causeNone {
		t.record.Exit.State = t.watch.cause.state()
	}
	t.record.Exit.Reason = clip(t.record.Exit.Reason)
	if l.group != nil {
		l.group.Empty(t.name) // it has no process
	}
	l.unsaved = append(l.unsaved, t)
}

// reap waits for every child that has died, and looks again for what ended
// tasks left behind.
func (l *loop) reap() {
	now := proc.BootTime()
	for {
		var status unix.WaitStatus
		var usage unix.Rusage
		pid, err := unix.Wait4(-1, &status, unix.WNOHANG, &usage)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || pid <= 0 {
			break
		}
		l.buried(pid, status, usage, now)
	}
	maps.DeleteFunc(l.early, func(_ int, d earlyDeath) bool { return now-d.at > maxEarly })
	for t := range l.left {
		l.settle(t, now)
	}
	if l.group == nil && len(l.mains) == 0 && len(l.starting) == 0 {
		for _, pid := range l.strangers() { // no task is left that they could belong to
			if start := proc.StartTicks(pid); start != 0 {
				proc.SignalProcess(pid, start, unix.SIGKILL)
			}
		}
	}
}

// buried notes the death of a child.
func (l *loop) buried(pid int, status unix.WaitStatus, usage unix.Rusage, now time.Duration) {
	if t := l.mains[pid]; t != nil {
		l.died(t, status, usage, now)
	} else if x := l.execs[pid]; x != nil {
		delete(l.execs, pid)
		l.execExited(x, status)
	} else if pid == l.guard {
		l.guardDied()
	} else if len(l.starting)+l.execing > 0 {
		// The clock is read after the wait: it tells this death from that of an
		// older process with the same number.
		l.early[pid] = earlyDeath{status: status, usage: usage, at: proc.BootTime()}
	}
}

// died notes how the main process of a task ended.
func (l *loop) died(t *task, status unix.WaitStatus, usage unix.Rusage, now time.Duration) {
	delete(l.mains, t.pid)
	exit := &t.record.Exit
	exit.Started, exit.Began, exit.Ended, exit.Isolation = true, t.began, time.Now(), l.info.Isolation
	t.record.CPU = time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
	t.record.MaxRSS = job.Size(usage.Maxrss) << 10
	switch {
	case status.Signaled():
		exit.Signal = int(status.Signal())
		exit.Code = 128 + exit.Signal
		exit.State = job.Failed
		exit.Reason = fmt.Sprintf("ended by signal %d (%s)", exit.Signal, unix.SignalName(status.Signal()))
	case status.ExitStatus() == 0:
		exit.State = job.Succeeded
	default:
		exit.State, exit.Code = job.Failed, status.ExitStatus()
	}
	t.watch.limitAt, t.watch.warnAt = 0, 0
	outOfMemory := l.outOfMemory(t)
	switch {
	case t.watch.cause != causeNone && (t.watch.termed || t.watch.killed):
		t.caused()
	case outOfMemory && exit.State == job.Failed:
		exit.State, exit.Reason = job.OutOfMemory, "the kernel ended it for lack of memory"
	}
	l.settle(t, now)
}

// caused makes a task's end that of whoever ended it.
func (t *task) caused() {
	exit := &t.record.Exit
	exit.State, exit.Reason = t.watch.cause.state(), t.watch.detail
	if exit.State == job.Failed && exit.Code == 0 {
		exit.Code = 1 // it took TERM for a reason to end well
	}
}

// outOfMemory says whether a task failed because the kernel ended processes
// for lack of memory. Where tasks have no count of their own, the runner's
// tells, and each count is used once.
func (l *loop) outOfMemory(t *task) bool {
	if l.group != nil {
		if n := l.group.OOMKills(t.name); n >= 0 {
			l.oomKills += n // they are in the runner's count, too
			return n > 0
		}
	}
	if t.record.Exit.Code != 128+int(unix.SIGKILL) {
		return false
	}
	if n := cgroup.OOMKills(); n > l.oomKills {
		l.oomKills++
		return true
	}
	return false
}

// settle sends a task's end to disk once nothing of it is left, and kills what is.
func (l *loop) settle(t *task, now time.Duration) {
	empty := false
	if l.group != nil {
		empty = l.group.Empty(t.name)
	} else {
		empty = l.walkEmpty(t)
	}
	if !empty {
		l.left[t] = true
		t.watch.leftovers(now)
		l.look(t)
		return
	}
	delete(l.left, t)
	t.watch.alive = false
	l.look(t)
	l.unsaved = append(l.unsaved, t)
}

// due sends a signal that the watch gave.
func (l *loop) due(t *task, sig unix.Signal, now time.Duration) {
	if l.left[t] {
		if l.settle(t, now); !l.left[t] {
			return
		}
	}
	if t.watch.cause == causeNone && sig != unix.SIGKILL {
		l.warn(t, sig)
		return
	}
	if sig == unix.SIGKILL {
		if t.killing == 0 {
			t.killing = now
		}
		if now-t.killing > warnAfter && !t.warned {
			t.warned = true
			l.log.Warn("task does not end though it was killed", "attempt", t.name, "pid", t.pid)
		}
	}
	l.signal(t, sig)
	if sig == unix.SIGTERM {
		l.signal(t, unix.SIGCONT) // a stopped process would not hear it
	}
}

// warn reaches the processes of a task that handle a signal. A shell around a
// program that does would die of it, and the program's work with it; only where
// none handles it all get it, as they were meant to.
func (l *loop) warn(t *task, sig unix.Signal) {
	members := l.members(t)
	handled := false
	for _, pid := range members {
		if start := proc.StartTicks(pid); start != 0 && proc.Handles(pid, sig) {
			proc.SignalProcess(pid, start, sig)
			handled = true
		}
	}
	if !handled {
		l.signal(t, sig)
	}
}

// members are the processes of a task.
func (l *loop) members(t *task) []int {
	if t.box != nil {
		if t.box.process == nil {
			return nil
		}
		return t.box.process.Members()
	}
	if l.group != nil {
		return l.group.Members(t.name)
	}
	return l.walkMembers(t)
}

// signal reaches all processes of a task.
func (l *loop) signal(t *task, sig unix.Signal) {
	if t.box != nil {
		t.box.signal(sig)
		return
	}
	if l.group != nil {
		l.group.Signal(t.name, sig)
		return
	}
	if sig == unix.SIGKILL {
		l.walkKill(t)
		return
	}
	l.walkSignal(t, sig)
}

// save is the goroutine that takes the ends of tasks to disk, a round at a
// time: what came while it was syncing is the next round.
func (l *loop) save() {
	for round := range l.rounds {
		err := l.journal.save(round)
		l.do <- func() { l.saved(round, err) }
		if err == nil {
			l.clear(round)
		}
	}
}

// clearers bounds the scratch directories that are removed at once.
const clearers = 2

// clear removes the scratch directories of tasks whose end is told. Large ones
// do not keep the next ends waiting.
func (l *loop) clear(round []*task) {
	for _, t := range round {
		if t.keeps || unix.Rmdir(l.dir.Scratch(t.attempt)) == nil {
			continue
		}
		go func() {
			l.clearing <- struct{}{}
			defer func() { <-l.clearing }()
			if err := scratch.Clear(l.dir, t.attempt); err != nil {
				l.log.Warn("scratch directory not removed", "attempt", t.name, "error", err)
			}
		}()
	}
}

// saved tells of the ends that are on disk, or tries again.
func (l *loop) saved(round []*task, err error) {
	if err != nil {
		if l.faults++; l.faults == 1 {
			l.log.Error("ends of tasks not saved, trying again", "tasks", len(round), "error", err)
		}
		time.AfterFunc(saveAgain, func() {
			l.do <- func() { l.unsaved = append(l.unsaved, round...) }
		})
		return
	}
	l.faults = 0
	for _, t := range round {
		delete(l.tasks, t.attempt)
		l.report(protocol.Report{Ended: &protocol.Ended{Attempt: t.name, Exit: &t.record.Exit, Segment: t.segment}})
	}
	if len(l.tasks) > 0 {
		return
	}
	if l.link == nil {
		l.idle.Reset(l.cfg.Idle)
	}
	if l.notes != nil {
		if err := l.notes.Truncate(0); err != nil { // all that it names have ended
			l.log.Warn("notes not cut", "error", err)
		}
	}
}

// clip makes a sentence fit to travel.
func clip(s string) string {
	if len(s) > maxReason {
		s = s[:maxReason]
	}
	return strings.ToValidUTF8(strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, s), "")
}
