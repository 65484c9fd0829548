package daemon

// The hardware of this host.

import (
	"context"
	"errors"
	"runtime"
	"strings"

	"github.com/musterhq/muster/gpu/nvml"
	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/internal/hostinfo"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker/supervisor"
)

// hardware holds what this host had when the daemon started.
type hardware struct {
	gpus    *devices
	engine  *engine
	profile contract.Profile // at the start of the daemon; live holds the present one
	boot    string           // ID of this boot of the host
	scratch *scratchQuota
}

// examineHost finds the resources of this host, whether tasks use them now or not.
func examineHost(ctx context.Context, b base) (*hardware, error) {
	facts, err := hostinfo.Read(ctx, b.cfg.DataDir)
	if err != nil {
		return nil, err
	}
	only, err := onlyUser(b.cfg)
	if err != nil {
		return nil, err
	}
	boot, err := hostinfo.BootID(ctx)
	if err != nil {
		return nil, err
	}
	h := &hardware{boot: facts.Incarnation}
	if h.gpus, err = newDevices(b.cfg, b.part("gpu")); err != nil {
		return nil, err
	}
	h.gpus.list(ctx, firstWait)
	if err := h.gpus.missing(); err != nil {
		return nil, errors.Join(err, h.gpus.driver.Close())
	}
	gpus, _ := h.gpus.listed() // list has logged the error
	h.profile = contract.Profile{
		Peer: b.host.Peer(), Name: b.cfg.Name, Version: b.cfg.Version, Store: b.store.ID(), Labels: b.cfg.Labels,
		Arch: runtime.GOARCH, OS: runtime.GOOS,
		CPUs: facts.CPUs, Memory: facts.Memory, Disk: facts.Disk, GPUs: gpus, Drivers: []string{contract.DriverExec, contract.DriverInput, contract.DriverSigned}, Worker: !b.cfg.NoWorker, OnlyUser: only, NoRoot: noRoot(b.cfg),
		Fencing: job.Fencing{Boot: boot}, // the runner reports the rest later
	}
	h.profile.Sign(b.host.Credential().Labels)
	if b.cfg.CPUs > 0 {
		h.profile.CPUs = b.cfg.CPUs
	}
	if b.cfg.Memory > 0 {
		h.profile.Memory = b.cfg.Memory
	}
	if h.scratch, err = newScratchQuota(b.cfg, h.profile.Disk); err != nil {
		return nil, err
	}
	h.engine = &engine{host: b.cfg.DockerHost, mounts: b.cfg.DockerMounts, log: b.part("docker")}
	h.engine.first(ctx, &h.profile)
	return h, nil
}

// taskLimits returns the limits that apply to each task on this host.
func (h *hardware) taskLimits(cfg Config) supervisor.Limits {
	return supervisor.Limits{CPUQuota: cfg.CPUQuota, PIDs: cfg.TaskPIDs, Scratch: cfg.Scratch, UserScratch: h.scratch.of, Grant: h.gpus.grant}
}

// gpuLibraries returns the directories with libraries of the GPU driver that the dynamic linker does not search by itself.
func (c Config) gpuLibraries() []string {
	if c.GPUs == "none" || strings.HasPrefix(c.GPUs, simulated) {
		return nil
	}
	return nvml.Libraries(c.GPULibraries)
}
