package daemon

// The container engine of this host. The profile of the host says whether the engine answers, which may change at any time.

import (
	"context"
	"fmt"
	"log/slog"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/musterhq/muster/api"
	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/worker/runner/docker"
	"github.com/musterhq/muster/worker/runner/spawn"
)

const (
	noEngine = "none" // value of the setting docker-host on a host that runs no containers
	// engineWait bounds the wait for an engine's answer.
	engineWait = 3 * time.Second
	// engineAgain is the pause before an engine that does not answer is probed again.
	engineAgain = 5 * time.Second
)

// engine watches whether the container engine answers.
type engine struct {
	host   string
	mounts []string
	log    *slog.Logger
	up     bool // it answered the last probe
}

// first probes the engine for the first time and sets the profile.
func (e *engine) first(ctx context.Context, p *contract.Profile) {
	version, err := e.probe(ctx)
	e.up = err == nil
	e.describe(p)
	if e.up {
		e.log.InfoContext(ctx, "container engine answers", "host", e.host, "version", version)
	}
}

func (e *engine) probe(ctx context.Context) (string, error) {
	if e.host == noEngine {
		return "", fmt.Errorf("docker: disabled")
	}
	ctx, cancel := context.WithTimeout(ctx, engineWait)
	defer cancel()
	return docker.Probe(ctx, e.host)
}

// describe sets the fields of the profile that depend on the engine.
func (e *engine) describe(p *contract.Profile) {
	p.Drivers, p.Mounts = slices.DeleteFunc(slices.Clone(p.Drivers), func(d string) bool { return d == contract.DriverDocker }), nil
	if e.up {
		p.Drivers, p.Mounts = append(p.Drivers, contract.DriverDocker), e.mounts
	}
}

// run updates the profile when the engine begins or ceases to answer, until ctx ends.
func (e *engine) run(ctx context.Context, become func(func(*contract.Profile))) error {
	if e.host == noEngine {
		<-ctx.Done()
		return nil
	}
	for ctx.Err() == nil {
		version, err := e.probe(ctx)
		if up := err == nil; up != e.up && ctx.Err() == nil {
			e.up = up
			become(e.describe)
			e.log.InfoContext(ctx, "container engine changed state", "host", e.host, "up", up, "version", version)
		}
		if err == nil && docker.AwaitLoss(ctx, e.host) == nil {
			continue // the engine has just gone away: probe it at once
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

// CheckMount returns an error if a directory of the setting docker-mount is not valid.
func CheckMount(dir string) error {
	if !strings.HasPrefix(dir, "/") || path.Clean(dir) != dir || strings.ContainsAny(dir, ":\n") {
		return fmt.Errorf("%.200q: want an absolute path without ., .. or : in it", dir)
	}
	return nil
}

// CheckDocker returns an error if a setting for containers is not valid.
func (c Config) CheckDocker() error {
	if len(c.DockerMounts) > contract.MaxMounts {
		return badSetting("docker-mount", "%d directories; at most %d", len(c.DockerMounts), contract.MaxMounts)
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
		return api.Fact{Name: "docker", State: api.FactSkip, Detail: "disabled (docker-host: none)"}
	case err != nil:
		return api.Fact{
			Name: "docker", State: api.FactSkip, Detail: "no Docker engine: " + strings.TrimPrefix(err.Error(), "docker: "),
			Advice: "to run jobs with --image, start Docker, or give its address with --docker-host",
		}
	}
	f := api.Fact{Name: "docker", State: api.FactOK, Detail: fmt.Sprintf("engine %s at %s", version, cfg.DockerHost)}
	if len(cfg.DockerMounts) > 0 {
		f.Detail += ", containers may mount " + strings.Join(cfg.DockerMounts, ", ")
	}
	return f
}
