package runner

// Tasks that are containers. The loop watches them as it watches processes; Containers talks to the engine.
// See docs/adr, ADR 25.

import (
	"context"
	"errors"
	"fmt"
	"os"
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
	guardProcess
	engine  Containers // nil: this runner has no engine
	spawner *spawn.Spawner
	dir     protocol.Dir
}

// run runs a container to its end, in a goroutine of its own. It calls progress with the reason why the container has
// not started yet, and began once the container has a process. Known says that an earlier runner has had the attempt.
func (b *containerStarter) run(ctx context.Context, o *spawn.Order, progress func(string), began func(int, spawn.Process, spawn.Sink)) (exit job.Exit, known bool) {
	if b.engine == nil {
		return spawn.ExitOf(spawn.RefuseHere("this runner has no container engine"), time.Now()), false
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
