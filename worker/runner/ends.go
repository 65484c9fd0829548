package runner

// From the exit of a task's main process to the report that no process of the task is left.

import (
	"errors"
	"fmt"
	"maps"
	"time"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker/runner/proc"
	"github.com/musterhq/muster/worker/runner/protocol"
)

// maxEarly is how long the exit of an unknown process is remembered. Its start is reported right after the fork.
const maxEarly = 10 * time.Second

// reap waits for every child that has ended. Then it checks which tasks without a main process have other processes
// left.
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
		l.reaped(pid, status, usage, now)
	}
	maps.DeleteFunc(l.early, func(_ int, d earlyDeath) bool { return now-d.at > maxEarly })
	for t := range l.tasks.left {
		l.settle(t, now)
	}
	l.procs.killStrangers()
}

// reaped handles the exit of one child.
func (l *loop) reaped(pid int, status unix.WaitStatus, usage unix.Rusage, now time.Duration) {
	switch t := l.tasks.mains[pid]; {
	case t != nil:
		l.exited(t, status, usage, now)
	case l.execs.reaped(pid, status):
	case pid == l.containers.guard:
		l.containers.guardDied()
	case l.tasks.starting()+l.execs.starting > 0:
		l.early[pid] = earlyDeath{status: status, usage: usage, at: proc.BootTime()}
	}
}

// exited records how the main process of a task exited.
func (l *loop) exited(t *task, status unix.WaitStatus, usage unix.Rusage, now time.Duration) {
	delete(l.tasks.mains, t.pid)
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
	t.watch.ended(now, exit.Signal, l.guards.killed(t))
	t.watch.limitAt, t.watch.warnAt = 0, 0
	t.watch.fed()
	t.inlet.close()
	outOfMemory := l.procs.outOfMemory(t)
	switch {
	case t.watch.cause != causeNone && t.watch.signalled():
		t.caused()
	case outOfMemory:
		protocol.EndOutOfMemory(exit, t.memory, l.procs.fullMemory(t))
	}
	l.settle(t, now)
}

// caused attributes the exit to the reason for which the task was stopped.
func (t *task) caused() {
	exit := &t.record.Exit
	exit.State, exit.Reason = t.watch.cause.state(), t.watch.detail
	if exit.State == job.Failed && exit.Code == 0 {
		exit.Code = 1 // it exited with 0 because of TERM
	}
}

// settle queues a task's exit for the disk if the task has no process left. Otherwise the remaining processes have the rest
// of the grace, or are killed if there is none.
func (l *loop) settle(t *task, now time.Duration) {
	if l.procs.empty(t) {
		outlived := t.phase == lingering
		if l.tasks.move(t, ended) {
			if outlived {
				t.record.Exit.Ended = time.Now()
			}
			t.watch.stage = off
			t.endSpace()
			l.leases.look(t)
			l.guards.free(t)
			l.recorder.add(t)
		}
		return
	}
	if t.phase == lingering || l.tasks.move(t, lingering) {
		l.graces.outlived(t, now, func(t *task) { l.settle(t, l.now()) })
	}
}

// saved reports the exits that are on disk. After an error they are told and written again.
func (l *loop) saved(round []*task, err error) {
	l.recorder.back()
	for _, t := range round {
		if t.tail != "" {
			t.record.Exit.Tail = t.tail
		}
	}
	if err != nil {
		l.recorder.failed(round, err)
		l.daemon.reportUnsaved(round)
		time.AfterFunc(saveAgain, func() {
			l.do <- func() { l.recorder.add(round...) }
		})
		return
	}
	l.recorder.faults = 0
	for _, t := range round {
		if l.tasks.move(t, gone) {
			l.daemon.report(protocol.Report{Ended: &protocol.Ended{
				Attempt: t.name, Exit: &t.record.Exit, Segment: t.segment, Silent: t.silent, CPU: t.record.CPU, MaxRSS: t.record.MaxRSS,
			}})
		}
	}
	if len(l.tasks.all) > 0 {
		return
	}
	if l.daemon.link == nil {
		l.daemon.restart()
	}
	if notes := l.starts.spawner.Notes; notes != nil {
		if err := notes.Truncate(0); err != nil { // all processes in it have ended
			l.log.Warn("list of main processes not emptied", "error", err)
		}
	}
}
