package runner

// Tasks that are containers. The loop watches them as it watches processes; Containers talks to the engine.
// See docs/adr, ADR 25.

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"syscall"
	"time"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker/runner/protocol"
	"github.com/musterhq/muster/worker/runner/spawn"
)

// Containers runs containers. Package docker implements it.
type Containers interface {
	// Run runs a container, from the pull of its image until no process of it is left. It calls b.Began once the
	// container has a process; until then the end of ctx ends the container. The exit's Started says whether a
	// process ever ran.
	Run(ctx context.Context, b spawn.Container) job.Exit
}

// containerStarter starts the containers of a runner, and its guard.
type containerStarter struct {
	engine  Containers // nil: this runner has no engine
	spawner *spawn.Spawner
	dir     protocol.Dir
	command []string // of the guard; nil: there is none
	guard   int      // pid of the guard; 0: it does not run
	table   *os.File // of the leases, for the guard; nil: there is none
	log     *slog.Logger
}

// run runs a container to its end, in a goroutine of its own. It calls progress with the reason why the container has
// not started yet, and began once the container has a process. Known says that an earlier runner has had the attempt.
func (b *containerStarter) run(ctx context.Context, o *spawn.Order, progress func(string), began func(int, spawn.Process, spawn.Sink)) (exit job.Exit, known bool) {
	if b.engine == nil {
		return spawn.ExitOf(spawn.Refuse(spawn.CodeOurs, "this runner has no container engine"), time.Now()), false
	}
	if err := os.Mkdir(b.dir.Task(o.Attempt), b.spawner.Mode()); err != nil {
		return spawn.ExitOf(fmt.Errorf("runner: make task directory: %w", err), time.Now()), errors.Is(err, os.ErrExist)
	}
	c, out, err := b.spawner.PrepareContainer(ctx, o)
	if err != nil {
		return spawn.ExitOf(err, time.Now()), false
	}
	defer c.Sources.Close()
	c.Progress, c.Began = progress, began
	exit = b.engine.Run(ctx, c)
	c.Cut()
	exit.Tail = out.Finish()
	return exit, false
}

// keepGuard starts the guard if it does not run. It ends tasks whose lease is over if this runner stands still. Unlike
// processes, containers do not die with their runner, and neither do descendants of a task's main process: the guard waits
// until the runner's lock is free and then ends them.
func (b *containerStarter) keepGuard() {
	if b.guard != 0 || b.command == nil {
		return
	}
	p, err := os.StartProcess(b.command[0], b.command, &os.ProcAttr{
		Env: os.Environ(), Files: []*os.File{nil, os.Stdout, os.Stderr, b.table}, Sys: &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		b.log.Error("guard not started: what tasks leave would outlive this runner", "error", err)
		return
	}
	b.guard = p.Pid
	_ = p.Release() // the loop reaps every child
}

// guardDied starts another guard if there is any task.
func (b *containerStarter) guardDied(all map[job.Attempt]*task) {
	if b.guard = 0; len(all) > 0 {
		b.log.Warn("guard died, starting another")
		b.keepGuard()
	}
}
