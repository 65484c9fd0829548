// Package runner is the small process between a daemon and its tasks. It starts tasks, ends them in time and records
// how they exited, even if the daemon dies meanwhile.
//
// One runner serves one directory (protocol.Dir). A daemon finds the runner by its unix socket. A file lock shows
// that the runner lives, so that no two runners of one generation exist. A daemon of another version starts a runner
// of the next generation and lets the older one drain. One daemon is connected at a time; a newer connection replaces
// it.
//
// Leases are deadlines on CLOCK_BOOTTIME, and the runner enforces them: it sends TERM before the deadline and
// KILL at the deadline (R4). If the runner itself is stopped, its guard does this instead (package guard). If the wall
// clock jumps forward against CLOCK_BOOTTIME, this host was paused while its leases ran on. Every deadline then moves
// earlier by the jump (package leaseclock). A task dies with its runner.
//
// One goroutine, the loop, owns all state. Package spawn starts processes for it and package pump reads their output.
package runner

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/internal/keptsocket"
	"github.com/musterhq/muster/worker/runner/guard"
	"github.com/musterhq/muster/worker/runner/proc"
	"github.com/musterhq/muster/worker/runner/protocol"
	"github.com/musterhq/muster/worker/runner/spawn"
)

const (
	// procs bounds the threads that run Go code: one for the loop, one for connections. More would only cost memory.
	procs = 2
	// gcPercent and memoryLimit keep the heap small. It holds a few hundred bytes for each task and the frames in
	// flight.
	gcPercent   = 100
	memoryLimit = 24 << 20
)

// Main runs the runner process. It returns when ctx ends, after ending all tasks, or when the runner is idle or has
// drained. It needs a process of its own, because it waits for every child.
func Main(ctx context.Context, cfg Config, log *slog.Logger) error {
	if err := cfg.Validate(); err != nil {
		return err
	}
	return live(ctx, cfg, thisHost(log), log)
}

func live(ctx context.Context, cfg Config, host hostClock, log *slog.Logger) error {
	runtime.GOMAXPROCS(procs)
	debug.SetGCPercent(gcPercent)
	debug.SetMemoryLimit(memoryLimit)
	dir := protocol.Dir(cfg.Dir)
	if err := dir.Make(); err != nil {
		return err
	}
	lock, err := dir.TryLock(cfg.Generation)
	if err != nil {
		return err
	}
	if lock == nil {
		return fmt.Errorf("runner: generation %d of %s runs already", cfg.Generation, dir)
	}
	defer lock.Close()
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("runner: become subreaper: %w", err)
	}
	if cfg.Scope {
		if err := enterScope(ctx); err != nil {
			log.WarnContext(ctx, "no systemd scope: tasks stay in the control group of the service", "error", err)
		}
	}
	if err := spawn.ApplyUlimits(cfg.Ulimits, log); err != nil {
		return err
	}
	s, err := spawn.New(spawn.Config{Dir: dir, Generation: cfg.Generation, Answer: cfg.Answer, AllowRoot: cfg.AllowRoot, NoGroups: cfg.NoGroups, NoUnified: cfg.NoUnified, NoSpaces: cfg.NoSpaces || cfg.Containers != nil, SharedTmp: cfg.SharedTmp}, log)
	if err != nil {
		return err
	}
	defer s.Close()
	go s.Pump.Run()
	info := protocol.Info{Generation: cfg.Generation, PID: os.Getpid(), Version: cfg.Version, Boot: proc.BootID(), PIDNamespace: s.Spaces != nil}
	info.Isolation = spawn.ProcessGroup
	if info.Containers = cfg.Containers != nil; info.Containers {
		info.Isolation = "container"
	}
	if s.Group != nil {
		info.Cgroup, info.Groups, info.Isolation = s.Group.Dir(), s.Group.Dirs(), s.Group.String()
	}
	if info.PIDNamespace {
		info.Isolation += ", PID namespace"
	}
	if s.Tmps != nil {
		info.Isolation += spawn.PrivateTmp
	} else if !info.Containers {
		info.SharedTmp = s.WhyShared
	}
	table, err := guard.New()
	if err != nil {
		log.WarnContext(ctx, "tasks have no guard", "error", err)
	} else {
		defer table.Close()
		info.Leases = int(table.File().Fd())
		info.Fences = cfg.Guard != nil && (info.PIDNamespace || s.Group != nil || info.Containers)
	}
	if err := protocol.WriteInfo(lock, info); err != nil {
		return err
	}
	keeper := &lockKeeper{dir: dir, info: info, lock: lock, log: log}
	defer keeper.release()
	go keeper.run()
	return serve(ctx, cfg, info, table, s, host, log)
}

// serve runs the loop and feeds it connections, ended children and the timer.
func serve(ctx context.Context, cfg Config, info protocol.Info, table *guard.Table, s *spawn.Spawner, host hostClock, log *slog.Logger) error {
	listen := func(path string) (net.Listener, error) {
		return keptsocket.Listen(path, func() (net.Listener, error) { return protocol.Listen(path) }, log)
	}
	listener, err := listen(protocol.Dir(cfg.Dir).Socket(cfg.Generation))
	if err != nil {
		return err
	}
	defer listener.Close()
	execs, err := listen(protocol.Dir(cfg.Dir).ExecSocket(cfg.Generation))
	if err != nil {
		return err
	}
	defer execs.Close()
	timer, err := newTimer()
	if err != nil {
		return err
	}
	defer timer.Close()
	deaths := make(chan os.Signal, 1)
	signal.Notify(deaths, unix.SIGCHLD)
	defer signal.Stop(deaths)
	signal.Notify(make(chan os.Signal, 1), unix.SIGHUP) // ignored: systemd may send it to every process of the service

	ends, err := openJournal(protocol.Dir(cfg.Dir), cfg.Generation)
	if err != nil {
		return err
	}
	if err := ends.prepare(); err != nil {
		log.WarnContext(ctx, "no room for the ends of tasks yet", "error", err) // no task starts before there is some
	}
	l := newLoop(cfg, info, s, ends, timer, host, log)
	if l.guards.table = table; table != nil {
		l.containers.table = table.File()
	}
	if cfg.Guard != nil {
		l.containers.self = openSelf(log)
	}
	l.detached = func() (context.Context, context.CancelFunc) { return context.WithCancel(context.WithoutCancel(ctx)) }
	ticked := make(chan struct{}, 1)
	l.serve(listener, execs, ticked) //nolint:contextcheck // a container outlives the request that starts it
	log.InfoContext(ctx, "runner started", "pid", info.PID, "generation", info.Generation, "version", info.Version, "isolation", info.Isolation, "pid_namespace", info.PIDNamespace, "fences", info.Fences)
	l.run(ctx, deaths, ticked)
	log.InfoContext(ctx, "runner ended", "pid", info.PID, "generation", info.Generation)
	return nil
}
