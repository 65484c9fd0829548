// Package docker runs tasks that have an image on a Docker Engine. Engine implements runner.Containers.
//
// A container is named muster-ATTEMPT and has labels that say whose it is. Like any task it outlives the daemon,
// because the runner watches it. But it is not a child of the runner and does not die with it. Two things make up for
// that. First, a file lists every container that was started (notes). When the runner is dead, the guard, a process
// that waits for that, and the next daemon end the containers in the file (EndOrphans). Second, the runner signals a
// container's processes itself where it may, so that it can enforce a deadline while the engine is down.
package docker

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/moby/moby/client"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker/runner/protocol"
)

// DefaultHost is the address of the engine if none is configured.
const DefaultHost = client.DefaultDockerHost

// The labels of a container.
const (
	labelDir        = "muster.dir" // the runner's directory
	labelGeneration = "muster.generation"
	labelAttempt    = "muster.attempt"
	labelJob        = "muster.job"
	labelTask       = "muster.task"
)

// Config says which runner an Engine works for.
type Config struct {
	Dir        string // of the runner and its tasks
	Generation int    // of the runner
}

// Engine runs containers; it implements runner.Containers.
type Engine struct {
	cfg   Config
	notes *notes
	pins  *pins
	log   *slog.Logger

	mu   sync.Mutex
	link map[string]*link // by host; guarded by mu
}

// New returns an Engine. It connects to no engine before the first container.
func New(cfg Config, log *slog.Logger) *Engine {
	return &Engine{cfg: cfg, log: log, notes: &notes{path: protocol.Dir(cfg.Dir).Containers(cfg.Generation)}, pins: &pins{dir: protocol.Dir(cfg.Dir).Pins(cfg.Generation)}, link: map[string]*link{}}
}

// connect makes a client. Client and engine negotiate the API version at the first request.
func connect(host string) (*client.Client, error) {
	c, err := client.New(client.WithHost(host))
	if err != nil {
		return nil, fmt.Errorf("docker: engine at %s: %w", host, err)
	}
	return c, nil
}

// at returns the link to the engine at host.
func (e *Engine) at(host string) (*link, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if l := e.link[host]; l != nil {
		return l, nil
	}
	c, err := connect(host)
	if err != nil {
		return nil, err
	}
	l := &link{Client: c}
	e.link[host] = l
	return l, nil
}

// Probe returns the version of the engine at host, or an error if it does not answer.
func Probe(ctx context.Context, host string) (version string, err error) {
	c, err := connect(host)
	if err != nil {
		return "", err
	}
	defer c.Close() //nolint:errcheck // nothing was kept
	v, err := c.ServerVersion(ctx, client.ServerVersionOptions{})
	if err != nil {
		return "", fmt.Errorf("docker: %w", err)
	}
	return v.Version, nil
}

// isStopping reports whether an engine is shutting down, which also ends its containers. It then accepts no new
// connections, but still serves open ones.
func isStopping(ctx context.Context, host string) bool {
	c, err := connect(host)
	if err != nil {
		return false
	}
	defer c.Close() //nolint:errcheck // nothing was kept
	ctx, cancel := context.WithTimeout(ctx, stopsWithin)
	defer cancel()
	_, err = c.Ping(ctx, client.PingOptions{})
	return err != nil
}

const (
	// cleanWithin bounds the removal of the containers of dead runners.
	cleanWithin = time.Minute
	// removeTries and removePause bound the removal of a container that has exited.
	removeTries = 10
	removePause = 3 * time.Second
)

// clean removes the containers of dead runners of this directory, once for each engine. These are containers that
// could not be removed while their engine was down.
func (e *Engine) clean(ctx context.Context, l *link) {
	l.mu.Lock()
	done := l.cleaned
	l.cleaned = true
	l.mu.Unlock()
	if done {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, cleanWithin)
	defer cancel()
	all, err := l.ContainerList(ctx, client.ContainerListOptions{All: true, Filters: client.Filters{}.Add("label", labelDir+"="+e.cfg.Dir)})
	if err != nil {
		e.log.WarnContext(ctx, "containers of dead runners not listed", "error", err)
		return
	}
	dir := protocol.Dir(e.cfg.Dir)
	for _, c := range all.Items {
		var n int
		if _, err := fmt.Sscan(c.Labels[labelGeneration], &n); err != nil || n >= e.cfg.Generation {
			continue
		}
		lock, err := dir.TryLock(n)
		if err != nil || lock == nil {
			continue // it lives
		}
		_ = lock.Close()
		if err := dir.Remove(n); err != nil {
			e.log.DebugContext(ctx, "files of dead runner not removed", "generation", n, "error", err)
		}
		e.remove(ctx, l, c.ID, c.Labels[labelAttempt])
	}
}

// remove removes a container that has exited. The task does not wait for that.
func (e *Engine) remove(ctx context.Context, l *link, id, attempt string) {
	var err error
	for range removeTries {
		if err = forceRemove(ctx, l.Client, id); err == nil {
			e.notes.removed(id)
			return
		}
		if !pause(ctx, removePause) {
			break
		}
	}
	e.log.WarnContext(ctx, "container not removed", "attempt", attempt, "container", id, "error", err)
}

// nameOf returns the name of an attempt's container.
func nameOf(a job.Attempt) string { return "muster-" + a.String() }

// pause waits for d. It returns false if ctx ended first.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// CheckHost returns an error if host is no valid address of an engine.
func CheckHost(host string) error {
	if _, err := client.ParseHostURL(host); err != nil {
		return fmt.Errorf("%.200q: want an address such as %s", host, DefaultHost)
	}
	return nil
}

// AwaitLoss returns nil when an engine that answers goes away, or an error if the engine could not be watched.
func AwaitLoss(ctx context.Context, host string) error {
	c, err := connect(host)
	if err != nil {
		return err
	}
	defer c.Close() //nolint:errcheck // nothing was kept
	began := time.Now()
	got := c.Events(ctx, ownEvents())
	for {
		select {
		case <-got.Messages:
		case err := <-got.Err:
			if time.Since(began) < time.Second {
				return fmt.Errorf("docker: watch engine: %w", err) // it never began
			}
			return nil
		}
	}
}
