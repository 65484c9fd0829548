// Package docker runs tasks of images on a Docker Engine, for a runner:
// Engine is its runner.Containers.
//
// A container has the name muster-ATTEMPT and labels that say whose it is. It
// outlives the daemon like any task, as the runner watches over it, but it is
// no child of the runner, so that two things are added. What has been begun is
// noted in a file (notes), and whoever finds the runner dead ends what that
// names (EndOrphans): the guard, a process that waits for the runner's death,
// and the next daemon. And the runner signals a container's processes itself
// where it may, so that a deadline is kept while the engine is away.
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

// DefaultHost is where an engine listens unless told otherwise.
const DefaultHost = client.DefaultDockerHost

// The labels of a container.
const (
	labelDir        = "muster.dir" // of the runner
	labelGeneration = "muster.generation"
	labelAttempt    = "muster.attempt"
	labelJob        = "muster.job"
	labelTask       = "muster.task"
)

// Config says for which runner an Engine works.
type Config struct {
	Dir        string // of the tasks
	Generation int    // of the runner
}

// Engine runs containers; see runner.Containers.
type Engine struct {
	cfg   Config
	notes *notes
	pins  *pins
	log   *slog.Logger

	mu   sync.Mutex
	link map[string]*link // by host; guarded by mu
}

// New returns an Engine that talks to nobody before it is asked to run
// something.
func New(cfg Config, log *slog.Logger) *Engine {
	return &Engine{cfg: cfg, log: log, notes: &notes{path: protocol.Dir(cfg.Dir).Containers(cfg.Generation)}, pins: &pins{dir: protocol.Dir(cfg.Dir).Pins(cfg.Generation)}, link: map[string]*link{}}
}

// link is a client of one engine and what that engine can do.
type link struct {
	*client.Client

	mu      sync.Mutex
	facts   *facts // nil: not asked yet; guarded by mu
	cleaned bool   // what dead runners left was removed; guarded by mu
}

// connect makes a client. The version of the API is agreed on at its first use.
func connect(host string) (*client.Client, error) {
	c, err := client.New(client.WithHost(host))
	if err != nil {
		return nil, fmt.Errorf("docker: engine at %s: %w", host, err)
	}
	return c, nil
}

// at is the link to the engine of a host.
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

// Probe says whether an engine answers, and in which version.
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

// stops says whether an engine is about to go, as it does after it has ended its
// containers: it closes its door first, and still serves who is inside.
func stops(ctx context.Context, host string) bool {
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
	// cleanWithin bounds the removal of what dead runners left.
	cleanWithin = time.Minute
	// removeTries and removePause bound the removal of a container that ended.
	removeTries = 10
	removePause = 3 * time.Second
)

// clean removes the containers of runners of this directory that are dead, once
// a life: those that could not be removed while their engine was away.
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
		e.log.WarnContext(ctx, "containers of dead runners not looked for", "error", err)
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

// remove removes a container that has ended, in the background of its task.
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

// nameOf is the container's name.
func nameOf(a job.Attempt) string { return "muster-" + a.String() }

// pause waits; false if ctx ended first.
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

// CheckHost says what is wrong with the address of an engine.
func CheckHost(host string) error {
	if _, err := client.ParseHostURL(host); err != nil {
		return fmt.Errorf("%.200q: want an address such as %s", host, DefaultHost)
	}
	return nil
}

// AwaitLoss returns nil when an engine that answers goes away, or else why it
// could not be watched.
func AwaitLoss(ctx context.Context, host string) error {
	c, err := connect(host)
	if err != nil {
		return err
	}
	defer c.Close() //nolint:errcheck // nothing was kept
	began := time.Now()
	// Nothing is told of this kind in an ordinary day: the connection is the watch.
	got := c.Events(ctx, client.EventsListOptions{Filters: client.Filters{}.Add("type", "daemon")})
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
