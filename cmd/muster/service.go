package main

// The daemon as a service: it starts and restarts the node, reloads settings on SIGHUP, and reports its state to
// systemd.

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"sync"
	"syscall"
	"time"

	systemd "github.com/coreos/go-systemd/v22/daemon"

	"github.com/musterhq/muster/api"
	"github.com/musterhq/muster/internal/daemon"
)

const (
	// beatEvery is how often the status line is updated if there is no watchdog.
	beatEvery = 30 * time.Second
	// beatsWithin is the number of beats within the watchdog's timeout, so that a late one does no harm.
	beatsWithin = 3
	// rebuildMost bounds the time to build a new node while the watchdog runs: GPUs may take 90 s to answer.
	rebuildMost = 3 * time.Minute
)

// running is a node that accepts work.
type running interface {
	// Health returns an error that names the parts that do not answer before ctx ends.
	Health(ctx context.Context) error
	// Summary describes in one line what the node does.
	Summary(ctx context.Context) (string, error)
	// Reload applies new values of the settings that can change at run time.
	Reload(cfg daemon.Config) error
}

// service is one daemon process.
type service struct {
	reread func() (daemonConfig, error) // reads the present settings
	level  *slog.LevelVar               // of log
	log    *slog.Logger

	mu      sync.Mutex
	cfg     daemonConfig // guarded by mu: as last read
	node    running      // guarded by mu: nil until it accepts work
	absent  time.Time    // guarded by mu: since when there is no node that accepts work
	started bool         // guarded by mu: systemd has been told READY=1
}

// run runs a node until ctx ends. When the node joins another cluster, it runs a new one on the same data directory.
func (s *service) run(ctx context.Context) error {
	debug.SetGCPercent(gcPercent)
	defer context.AfterFunc(ctx, func() { s.tell(systemd.SdNotifyStopping, "STATUS=stopping; tasks run on") })()
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	limitHeap(ctx)
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)
	wg.Go(func() { s.reloads(ctx, hangups) })
	wg.Go(func() { s.beats(ctx) })
	wg.Go(func() { rest(ctx, releaseMemory) })

	s.mu.Lock()
	cfg := s.cfg.Config
	s.mu.Unlock()
	for {
		err := s.runNode(ctx, cfg)
		switch {
		case errors.Is(err, daemon.ErrRejoin):
			s.log.InfoContext(ctx, "restarting in the joined cluster")
			cfg.Token, cfg.Bootstrap = "", nil // both are in the data directory by now
		case err != nil && ctx.Err() == nil:
			return fmt.Errorf("daemon: %w", err)
		default:
			s.log.InfoContext(ctx, "stopped; tasks run on")
			return nil
		}
	}
}

// runNode runs one node until it ends.
func (s *service) runNode(ctx context.Context, cfg daemon.Config) error {
	n, err := daemon.New(ctx, cfg, s.log)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		select {
		case <-n.Started():
			s.takes(ctx, n)
		case <-ctx.Done():
		}
	})
	err = n.Run(ctx)
	stop()
	wg.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.node, s.absent = nil, time.Now()
	return err
}

// takes records that a node accepts work now.
func (s *service) takes(ctx context.Context, n running) {
	status := s.status(ctx, n)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.node, s.started = n, true
	s.tell(systemd.SdNotifyReady, status)
}

// tell sends lines to the service manager, if one started this daemon.
func (s *service) tell(lines ...string) {
	if _, err := systemd.SdNotify(false, strings.Join(lines, "\n")); err != nil {
		s.log.Warn("cannot notify the service manager", "lines", lines, "error", err)
	}
}

func (s *service) status(ctx context.Context, n running) string {
	text, err := n.Summary(ctx)
	if err != nil {
		return "STATUS=" + err.Error()
	}
	return "STATUS=" + text
}

// beats notifies the watchdog as long as the daemon is healthy. If a loop of the daemon is silent for the whole timeout,
// systemd ends the daemon by SIGABRT, which prints all stacks.
func (s *service) beats(ctx context.Context) {
	watchdog, err := systemd.SdWatchdogEnabled(false)
	if err != nil {
		s.log.WarnContext(ctx, "cannot read the watchdog's timeout", "error", err)
	}
	every := beatEvery
	switch {
	case watchdog > 0:
		every = watchdog / beatsWithin
	case os.Getenv("NOTIFY_SOCKET") == "":
		return
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		within, cancel := context.WithTimeout(ctx, every)
		s.beat(within)
		cancel()
	}
}

// beat makes one health check.
func (s *service) beat(ctx context.Context) {
	s.mu.Lock()
	n, absent, started := s.node, s.absent, s.started
	s.mu.Unlock()
	switch {
	case !started: // the watchdog does not run yet
	case n == nil && time.Since(absent) < rebuildMost:
		s.tell(systemd.SdNotifyWatchdog)
	case n == nil:
		s.log.ErrorContext(ctx, "the daemon does not become ready; the watchdog is not notified", "since", absent)
	default:
		if err := n.Health(ctx); err != nil {
			s.log.ErrorContext(ctx, "a part of the daemon does not answer; the watchdog is not notified", "error", err)
			return
		}
		s.tell(systemd.SdNotifyWatchdog, s.status(ctx, n))
	}
}

// reloads reloads the settings on each SIGHUP.
func (s *service) reloads(ctx context.Context, hangups <-chan os.Signal) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-hangups:
			s.reload(ctx)
		}
	}
}

// reload applies changed settings that a running daemon can take, and names the others. If the settings cannot be
// read, all stay as they are. The unit has Type=notify and ExecReload=kill -HUP, which every systemd understands. 252 and
// older take a service of Type=notify-reload for a simple one. So systemctl reload may return just before the change.
func (s *service) reload(ctx context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.node == nil {
		s.log.WarnContext(ctx, "not reloaded: the daemon is starting; send SIGHUP again once it is ready")
		return
	}
	s.tell(systemd.SdNotifyReloading, strings.TrimSpace(systemd.SdNotifyMonotonicUsec()))
	defer s.tell(systemd.SdNotifyReady)
	next, err := s.reread()
	if err != nil {
		s.log.ErrorContext(ctx, "not reloaded, all settings stay as they are", "error", err)
		return
	}
	merged, taken := s.merge(next)
	if err := s.node.Reload(merged.Config); err != nil {
		s.log.ErrorContext(ctx, "some settings could not be applied", "error", err)
	}
	s.level.Set(merged.level())
	s.cfg = merged
	s.log.InfoContext(ctx, "reloaded", "file", next.File, "changed", taken)
}

// merge returns the present settings with the new values of those that a running daemon can take, and the names of
// those that changed.
func (s *service) merge(next daemonConfig) (merged daemonConfig, taken []string) {
	merged = s.cfg
	merged.Settings = append([]api.Setting{}, s.cfg.Settings...)
	for i, known := range settings() {
		switch {
		case known.get(s.cfg) == known.get(next):
			merged.Settings[i].Origin = next.Settings[i].Origin
		case !known.live:
			s.log.Warn("setting has changed and needs a restart", "setting", known.name)
		default:
			known.take(&merged, next)
			merged.Settings[i] = next.Settings[i]
			taken = append(taken, known.name)
		}
	}
	return merged, taken
}
