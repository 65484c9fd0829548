package runner

// Tasks that are containers: the loop watches over them as over processes, and
// asks Containers for all that an engine has to do.

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker/runner/proc"
	"github.com/musterhq/muster/worker/runner/protocol"
	"github.com/musterhq/muster/worker/runner/spawn"
)

// Containers runs containers. Package docker has the one for Docker.
type Containers interface {
	// Run takes a container from the pull of its image to its end, and returns
	// when no process of it is left. It calls b.Began once its process exists;
	// until then the end of ctx ends it. The exit says by Started whether a
	// process ever ran.
	Run(ctx context.Context, b spawn.Box) job.Exit
}

// box is the container of a task, as the loop sees it.
type box struct {
	cancel  context.CancelFunc // ends what comes before its process
	process spawn.Process      // nil: not begun
}

func (b *box) signal(sig unix.Signal) {
	if b.process == nil {
		b.cancel()
		return
	}
	b.process.Signal(sig)
}

// contain begins the container of a task. The watch looks after it from now on,
// as its pull may outlast the lease.
func (l *loop) contain(t *task) {
	ctx, cancel := l.lasting()
	t.box = &box{cancel: cancel}
	t.watch.alive = true
	l.look(t)
	l.keepGuard()
	o := t.order
	go func() {
		defer cancel()
		exit, known := l.runBox(ctx, t, o)
		if known {
			l.do <- func() {
				t.watch.alive = false
				l.look(t)
				l.seen(t)
			}
			return
		}
		l.do <- func() { l.boxEnded(t, exit) }
	}()
}

// runBox is the life of a container, in a goroutine of its own; Known says that an earlier runner had
// the attempt.
func (l *loop) runBox(ctx context.Context, t *task, o *spawn.Order) (exit job.Exit, known bool) {
	if l.cfg.Containers == nil {
		return spawn.ExitOf(spawn.Refuse(spawn.CodeNotExecutable, "this runner has no container engine"), time.Now()), false
	}
	if err := os.Mkdir(l.dir.Task(o.Attempt), l.starter.Mode()); err != nil {
		return spawn.ExitOf(fmt.Errorf("runner: make task directory: %w", err), time.Now()), errors.Is(err, os.ErrExist)
	}
	b, out, err := l.starter.Pack(ctx, o)
	if err != nil {
		return spawn.ExitOf(err, time.Now()), false
	}
	defer b.Sources.Close()
	b.Progress = func(text string) { l.do <- func() { l.boxWaits(t, text) } }
	b.Began = func(pid int, p spawn.Process) { l.do <- func() { l.boxBegan(t, pid, p) } }
	exit = l.cfg.Containers.Run(ctx, b)
	exit.Tail = out.Finish()
	return exit, false
}

// boxWaits passes on what keeps a container from beginning.
func (l *loop) boxWaits(t *task, text string) {
	if t.pid == 0 {
		l.report(protocol.Report{Progress: &protocol.Progress{Attempt: t.name, Detail: clip(text)}})
	}
}

// boxBegan takes note that a container runs. Its time limit begins here: the
// pull does not count.
func (l *loop) boxBegan(t *task, pid int, p spawn.Process) {
	t.order = nil
	t.pid, t.began, t.box.process = pid, time.Now(), p
	t.record.PID = pid
	t.watch.started(proc.BootTime())
	if t.scratch > 0 && !l.measuring {
		l.measuring = true
		l.wake <- struct{}{} // as for a process
	}
	l.report(protocol.Report{Started: new(t.hasStarted())})
	if t.watch.termed {
		p.Signal(unix.SIGTERM) // it was sent when there was nobody to hear it
	}
	l.look(t)
}

// boxEnded takes the end of a container, of which nothing is left.
func (l *loop) boxEnded(t *task, exit job.Exit) {
	t.order = nil
	t.watch.alive = false
	l.look(t)
	t.record.Exit = exit
	if exit.Started {
		t.record.Exit.Isolation = l.info.Isolation
	}
	if t.watch.cause != causeNone && (!exit.Started || t.watch.termed || t.watch.killed) {
		t.caused()
	}
	t.record.Exit.Reason = clip(t.record.Exit.Reason)
	l.unsaved = append(l.unsaved, t)
}

// keepGuard starts the guard of this runner's containers, which do not die with
// their parent as processes do: it waits for the runner's lock and ends them.
func (l *loop) keepGuard() {
	if l.guard != 0 || l.cfg.Guard == nil {
		return
	}
	p, err := os.StartProcess(l.cfg.Guard[0], l.cfg.Guard, &os.ProcAttr{
		Env: os.Environ(), Files: []*os.File{nil, os.Stdout, os.Stderr}, Sys: &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		l.log.Error("guard of containers not started: they would outlive this runner", "error", err)
		return
	}
	l.guard = p.Pid
	_ = p.Release() // the loop waits for every child
}

// guardDied starts another, if there is something to guard.
func (l *loop) guardDied() {
	l.guard = 0
	for _, t := range l.tasks {
		if t.box != nil {
			l.log.Warn("guard of containers died, starting another")
			l.keepGuard()
			return
		}
	}
}
