package runner

// What the process does that guards a runner.

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"runtime/debug"
	"time"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/worker/leaseclock"
	"github.com/musterhq/muster/worker/runner/guard"
	"github.com/musterhq/muster/worker/runner/proc"
	"github.com/musterhq/muster/worker/runner/protocol"
	"github.com/musterhq/muster/worker/runner/spawn"
)

// GuardFlag is the last argument of the guard of a runner. The arguments before it are those of the runner.
const GuardFlag = "--guard"

// guardMemory keeps the heap of the guard small.
const guardMemory = 8 << 20

// GuardCommand is the whole program of a guard, from the flags of its runner to its exit code.
func GuardCommand(ctx context.Context, args []string, orphans func(context.Context, Config) error) int {
	cfg, err := Parse(args)
	table, tableErr := guard.Inherited()
	runnerFD := inheritedRunner()
	log := slog.New(slog.NewTextHandler(newLogFile(protocol.Dir(cfg.Dir).Log(cfg.Generation)), nil))
	if err == nil {
		err = spawn.CloseInherited()
	}
	if err == nil {
		if tableErr != nil {
			log.WarnContext(ctx, "guard goes by no leases", "error", tableErr)
		}
		err = beGuard(ctx, cfg, table, runnerFD, orphans, log)
	}
	if err != nil {
		log.ErrorContext(ctx, "guard ended", "error", err)
		return 1
	}
	return 0
}

// inheritedFD is the descriptor by which a guard gets the pidfd of its runner.
const inheritedFD = guard.InheritedFD + 1

// inheritedRunner returns the pidfd of the runner that this process has inherited, or -1. No child of this process gets it.
func inheritedRunner() int {
	if err := unix.PidfdSendSignal(inheritedFD, 0, nil, 0); errors.Is(err, unix.EBADF) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) {
		return -1 // nothing, or another file
	}
	unix.CloseOnExec(inheritedFD)
	return inheritedFD
}

// beGuard ends the runner's tasks whose lease is over, until the runner is dead. Then it ends all that the runner has
// left, and calls orphans, unless that is nil, for its containers. Without a table it knows no leases.
func beGuard(ctx context.Context, cfg Config, table *guard.Table, runnerFD int, orphans func(context.Context, Config) error, log *slog.Logger) error {
	runtime.GOMAXPROCS(1)
	debug.SetMemoryLimit(guardMemory)
	dir := protocol.Dir(cfg.Dir)
	if cfg.Scope {
		if err := enterScope(ctx); err != nil {
			log.WarnContext(ctx, "no systemd scope for the guard: it ends with the control group of its runner", "error", err)
		}
	}
	dead := make(chan error, 1)
	go func() { dead <- awaitRunner(runnerFD, dir, cfg.Generation) }()
	var err error
	if table == nil {
		err = <-dead
	} else {
		err = goBy(table, dead, log)
	}
	if err != nil || orphans == nil {
		return err // with an error the runner may live
	}
	return orphans(context.WithoutCancel(ctx), cfg)
}

// awaitRunner returns nil when the runner of this guard is dead, or an error if it cannot find out. It uses the
// inherited pidfd, because the runner's files may be gone while the runner lives. On a kernel without pidfds none is
// inherited; then it waits for the runner's lock.
func awaitRunner(runnerFD int, dir protocol.Dir, generation int) error {
	if runnerFD < 0 {
		return dir.AwaitDeath(generation)
	}
	return proc.AwaitDeath(runnerFD)
}

// goBy ends tasks by the table until the runner is dead, and then all that are left.
func goBy(table *guard.Table, dead <-chan error, log *slog.Logger) error {
	read, watch := leaseclock.Reader(), guard.NewWatch(table, guard.After)
	look := time.NewTimer(0)
	defer look.Stop()
	for {
		select {
		case err := <-dead:
			if err == nil {
				endAll(table)
			}
			return err
		case <-look.C:
		}
		over, wait := watch.Look(read())
		for _, e := range over {
			table.MarkKilled(e.Attempt)
			if e.Kill() {
				log.Warn("guard ended a task: its lease is over, and its runner did not end it", "attempt", e.Attempt.String())
			}
		}
		look.Reset(wait)
	}
}

// endAll ends all tasks of the table, again and again until none is left.
func endAll(table *guard.Table) {
	for pause, left := retryFirst, true; left; pause = min(2*pause, retryMost) {
		left = false
		for _, e := range table.All() {
			table.MarkKilled(e.Attempt)
			left = e.Kill() || left
		}
		if left {
			time.Sleep(pause)
		}
	}
}
