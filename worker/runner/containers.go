package runner

// Tasks that are containers. The loop watches over them as over processes, and Containers does what takes an engine.

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker/runner/protocol"
	"github.com/musterhq/muster/worker/runner/spawn"
)

// Containers runs containers. Package docker has the one for Docker.
type Containers interface {
	// Run takes a container from the pull of its image to its end, and returns when no process of it is left. It
	// calls b.Began once its process exists; until then the end of ctx ends it. The exit's Started says whether a
	// process ever ran.
	Run(ctx context.Context, b spawn.Box) job.Exit
}

// box is the container of a task, as the loop sees it.
type box struct {
	cancel  context.CancelFunc // ends what comes before its process
	process spawn.Process      // nil: it has none yet
}

func (b *box) signal(sig unix.Signal) {
	if b.process == nil {
		b.cancel()
		return
	}
	b.process.Signal(sig)
}

// boxes starts the containers of a runner, and the guard that removes them if the runner dies.
type boxes struct {
	containers Containers // nil: this runner has none
	spawner    *spawn.Spawner
	dir        protocol.Dir
	command    []string // of the guard; nil: there is none
	guard      int      // pid of the guard; 0: it does not run
	log        *slog.Logger
}

// run is the life of a container, in a goroutine of its own. It calls progress with what keeps the container from
// starting, and began once it has a process. Known says that an earlier runner had the attempt.
func (b *boxes) run(ctx context.Context, o *spawn.Order, progress func(string), began func(int, spawn.Process)) (exit job.Exit, known bool) {
	if b.containers == nil {
		return spawn.ExitOf(spawn.Refuse(spawn.CodeNotExecutable, "this runner has no container engine"), time.Now()), false
	}
	if err := os.Mkdir(b.dir.Task(o.Attempt), b.spawner.Mode()); err != nil {
		return spawn.ExitOf(fmt.Errorf("runner: make task directory: %w", err), time.Now()), errors.Is(err, os.ErrExist)
	}
	c, out, err := b.spawner.Pack(ctx, o)
	if err != nil {
		return spawn.ExitOf(err, time.Now()), false
	}
	defer c.Sources.Close()
	c.Progress, c.Began = progress, began
	exit = b.containers.Run(ctx, c)
	exit.Tail = out.Finish()
	return exit, false
}

// keepGuard starts the guard, if it does not run. Containers do not die with their runner as processes do: the guard
// waits for the runner's lock and ends them.
func (b *boxes) keepGuard() {
	if b.guard != 0 || b.command == nil {
		return
	}
	p, err := os.StartProcess(b.command[0], b.command, &os.ProcAttr{
		Env: os.Environ(), Files: []*os.File{nil, os.Stdout, os.Stderr}, Sys: &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		b.log.Error("guard of containers not started: they would outlive this runner", "error", err)
		return
	}
	b.guard = p.Pid
	_ = p.Release() // the loop waits for every child
}

// guardDied starts another guard, if any of the tasks is a container.
func (b *boxes) guardDied(all map[job.Attempt]*task) {
	b.guard = 0
	for _, t := range all {
		if t.box != nil {
			b.log.Warn("guard of containers died, starting another")
			b.keepGuard()
			return
		}
	}
}
