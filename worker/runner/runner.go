// Package runner is the small process between a daemon and its tasks: it starts them, ends them in time, and records
// how they ended, whatever becomes of the daemon.
//
// One runner serves one directory (protocol.Dir). A daemon finds it by its unix socket, and its lock says that it
// lives, so that there are never two of one generation. A daemon of another version starts the next generation and
// lets the older one drain. One daemon is connected at a time; a newer connection replaces it.
//
// Leases are deadlines of CLOCK_BOOTTIME, and the runner alone keeps them: TERM before and KILL at the deadline (R4).
// When the wall clock jumps forward against CLOCK_BOOTTIME, this host was paused while its leases ran on, so every
// deadline moves earlier by the jump (package leaseclock). A task dies with its runner.
//
// One goroutine, the loop, owns all state. Package spawn starts processes for it and package pump reads their output.
package runner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"time"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/worker/runner/proc"
	"github.com/musterhq/muster/worker/runner/protocol"
	"github.com/musterhq/muster/worker/runner/spawn"
)

// Config is what a runner is told on its command line.
type Config struct {
	Dir        string // of the daemon's tasks
	Generation int    // from 1; a newer runner of the directory has a higher one
	Version    string // of the binary
	AllowRoot  bool   // run tasks of root, if the runner is root's
	// Scope asks systemd for a scope of the runner's own.
	Scope bool
	// Idle is how long the runner stays without a task and without a daemon.
	Idle time.Duration
	// Answer is how long a task's start may wait for files that its user named.
	Answer time.Duration
	// Containers runs tasks of images; nil: none.
	Containers Containers
	// Guard is the command that ends this runner's containers when it dies.
	Guard []string
	// NoGroups does without control groups, as on a host that permits none.
	NoGroups bool
	// NoUnified does without version 2 of them, as on a host that has only 1.
	NoUnified bool
	// Ulimits are NAME=SOFT[:HARD] of each process of a task.
	Ulimits []string
}

// DefaultConfig is a runner of the first generation.
func DefaultConfig() Config {
	return Config{Generation: 1, Idle: time.Minute, Answer: time.Minute, Ulimits: spawn.DefaultUlimits()}
}

// Validate says what is wrong with the configuration.
func (c Config) Validate() error {
	switch {
	case c.Dir == "":
		return errors.New("runner: dir: not given")
	case c.Generation < 1:
		return fmt.Errorf("runner: generation %d: from 1", c.Generation)
	case c.Idle <= 0:
		return fmt.Errorf("runner: idle %s: above 0s", c.Idle)
	case c.Answer <= spawn.SlowStart:
		return fmt.Errorf("runner: answer %s: above %s", c.Answer, spawn.SlowStart)
	}
	return nil
}

const (
	// procs bounds the threads that run Go code: one decides, one talks. More
	// would cost memory on each of thousands of hosts for nothing.
	procs = 2
	// gcPercent and memoryLimit keep the heap small: it holds a few hundred
	// bytes a task, and the frames in flight.
	gcPercent   = 40
	memoryLimit = 24 << 20
	// dead is what the shutdown of the runner gives its tasks between TERM and KILL.
	dead = 5 * time.Second
)

// Main is the whole life of the runner process. It returns when ctx ends, after
// ending all tasks, or when it is idle or has drained. It must be given the
// process for itself: it reaps every child.
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
			log.WarnContext(ctx, "no scope of systemd: tasks stay in the control group of the service", "error", err)
		}
	}
	if err := spawn.ApplyUlimits(cfg.Ulimits, log); err != nil {
		return err
	}
	s, err := spawn.New(spawn.Config{Dir: dir, Generation: cfg.Generation, Answer: cfg.Answer, AllowRoot: cfg.AllowRoot, NoGroups: cfg.NoGroups, NoUnified: cfg.NoUnified}, log)
	if err != nil {
		return err
	}
	defer s.Close()
	go s.Pump.Run()
	info := protocol.Info{Generation: cfg.Generation, PID: os.Getpid(), Version: cfg.Version, Boot: proc.BootID()}
	info.Isolation = spawn.ProcessGroup
	if info.Containers = cfg.Containers != nil; info.Containers {
		info.Isolation = "container"
	}
	if s.Group != nil {
		info.Cgroup, info.Groups, info.Isolation = s.Group.Dir(), s.Group.Dirs(), s.Group.String()
	}
	if err := protocol.WriteInfo(lock, info); err != nil {
		return err
	}
	defer dir.Remove(cfg.Generation) //nolint:errcheck // whoever finds the files sees that the lock is free
	return serve(ctx, cfg, info, s, host, log)
}

// serve runs the loop between its sources: connections, deaths and the clock.
func serve(ctx context.Context, cfg Config, info protocol.Info, s *spawn.Spawner, host hostClock, log *slog.Logger) error {
	listener, err := protocol.Listen(protocol.Dir(cfg.Dir).Socket(cfg.Generation))
	if err != nil {
		return err
	}
	defer listener.Close()
	execs, err := protocol.Listen(protocol.Dir(cfg.Dir).ExecSocket(cfg.Generation))
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
	signal.Notify(make(chan os.Signal, 1), unix.SIGHUP) // meant for the daemon, when it is sent to all of a service

	ends, err := openJournal(protocol.Dir(cfg.Dir), cfg.Generation)
	if err != nil {
		return err
	}
	l := newLoop(cfg, info, s, ends, timer, host, log)
	l.lasting = func() (context.Context, context.CancelFunc) { return context.WithCancel(context.WithoutCancel(ctx)) }
	ticked := make(chan struct{}, 1)
	l.serve(listener, execs, ticked) //nolint:contextcheck // a container outlasts the request for it
	log.InfoContext(ctx, "runner started", "pid", info.PID, "generation", info.Generation, "version", info.Version, "isolation", info.Isolation)
	l.run(ctx, deaths, ticked)
	log.InfoContext(ctx, "runner ended", "pid", info.PID, "generation", info.Generation)
	return nil
}
