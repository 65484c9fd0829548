package node

// The container engine of this host: whether there is one, which the profile
// says, and which may change at any time.

import (
	"context"
	"fmt"
	"log/slog"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/musterhq/muster/api"
	"github.com/musterhq/muster/lease"
	"github.com/musterhq/muster/worker/runner/docker"
	"github.com/musterhq/muster/worker/runner/spawn"
)

const (
	noEngine = "none" // the setting docker-host of a host that runs no containers
	// engineWait bounds the wait for an engine's answer.
	engineWait = 3 * time.Second
	// engineAgain is how soon an engine that does not answer is asked again.
	engineAgain = 5 * time.Second
)

// engine watches the engine.
type engine struct {
	host   string
	mounts []string
	log    *slog.Logger
	up     bool // as it was told last
}

// first adds to the profile what is true at the start.
func (e *engine) first(ctx context.Context, p *lease.Profile) {
	version, err := e.probe(ctx)
	e.up = err == nil
	e.describe(p)
	if e.up {
		e.log.InfoContext(ctx, "container engine answers", "host", e.host, "version", version)
	}
}

func (e *engine) probe(ctx context.Context) (string, error) {
	if e.host == noEngine {
		return "", fmt.Errorf("docker: not wanted")
	}
	ctx, cancel := context.WithTimeout(ctx, engineWait)
	defer cancel()
	return docker.Probe(ctx, e.host)
}

// describe says in a profile whether there is an engine.
func (e *engine) describe(p *lease.Profile) {
	p.Drivers, p.Mounts = slices.DeleteFunc(slices.Clone(p.Drivers), func(d string) bool { return d == lease.DriverDocker }), nil
	if e.up {
		p.Drivers, p.Mounts = append(p.Drivers, lease.DriverDocker), e.mounts
	}
}

// run tells when the engine comes and goes, until ctx ends.
func (e *engine) run(ctx context.Context, become func(func(*lease.Profile))) error {
	if e.host == noEngine {
		<-ctx.Done()
		return nil
	}
	for ctx.Err() == nil {
		version, err := e.probe(ctx)
		if up := err == nil; up != e.up && ctx.Err() == nil {
			e.up = up
			become(e.describe)
			e.log.InfoContext(ctx, "container engine came or went", "host", e.host, "up", up, "version", version)
		}
		if err == nil && docker.AwaitLoss(ctx, e.host) == nil {
			continue // it answered until now
		}
		again := time.NewTimer(engineAgain)
		select {
		case <-ctx.Done():
		case <-again.C:
		}
		again.Stop()
	}
	return nil
}

// CheckMount says what is wrong with a directory of docker-mount.
func CheckMount(dir string) error {
	if !strings.HasPrefix(dir, "/") || path.Clean(dir) != dir || strings.ContainsAny(dir, ":\n") {
		return fmt.Errorf("%.200q: want a whole path from the root with neither . nor .. in it", dir)
	}
	return nil
}

func (c Config) checkDocker() error {
	if len(c.DockerMounts) > lease.MaxMounts {
		return badSetting("docker-mount", "%d directories; at most %d", len(c.DockerMounts), lease.MaxMounts)
	}
	for _, d := range c.DockerMounts {
		if err := CheckMount(d); err != nil {
			return badSetting("docker-mount", "%w", err)
		}
	}
	if c.DockerUser != "" {
		if _, _, err := spawn.ParseUser(c.DockerUser); err != nil {
			return badSetting("docker-user", "%w", err)
		}
	}
	if c.DockerHost != noEngine {
		if err := docker.CheckHost(c.DockerHost); err != nil {
			return badSetting("docker-host", "%w", err)
		}
	}
	return nil
}

func dockerFact(ctx context.Context, cfg Config) api.Fact {
	e := engine{host: cfg.DockerHost}
	version, err := e.probe(ctx)
	switch {
	case cfg.DockerHost == noEngine:
		return api.Fact{Name: "docker", State: api.FactSkip, Detail: "not wanted (docker-host: none)"}
	case err != nil:
		return api.Fact{
			Name: "docker", State: api.FactSkip, Detail: "no Docker engine: " + strings.TrimPrefix(err.Error(), "docker: "),
			Advice: "for jobs with --image start Docker, or say with --docker-host where it listens",
		}
	}
	f := api.Fact{Name: "docker", State: api.FactOK, Detail: fmt.Sprintf("engine %s at %s", version, cfg.DockerHost)}
	if len(cfg.DockerMounts) > 0 {
		f.Detail += ", containers may see " + strings.Join(cfg.DockerMounts, ", ")
	}
	return f
}
