package node

// The GPUs of this host: their driver, and the loop that reads their status.

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/gpu/nvml"
	"github.com/musterhq/muster/gpu/simgpu"
	"github.com/musterhq/muster/worker"
)

const (
	listTimeout   = 90 * time.Second // without persistence mode the driver initializes each GPU first, which takes seconds
	statusEvery   = 10 * time.Second
	statusTimeout = 10 * time.Second
)

// noGPUs is the driver of a host that offers no GPUs.
type noGPUs struct{}

func (noGPUs) List(context.Context) ([]gpu.Device, error)   { return nil, nil }
func (noGPUs) Status(context.Context) ([]gpu.Status, error) { return nil, nil }
func (noGPUs) Faults(ctx context.Context) (<-chan gpu.Fault, error) {
	c := make(chan gpu.Fault)
	context.AfterFunc(ctx, func() { close(c) })
	return c, nil
}
func (noGPUs) Close() error { return nil }

// parseGPUs parses the setting gpus. It returns simulated devices, or the indexes of the GPUs to offer (nil: all).
func parseGPUs(text, name string) (sim *simgpu.Driver, only []int, err error) {
	switch {
	case text == "auto" || text == "none":
		return nil, nil, nil
	case strings.HasPrefix(text, "sim:"):
		sim, err = simgpu.Parse(text, name)
		return sim, nil, err
	}
	for index := range strings.SplitSeq(text, ",") {
		i, err := strconv.Atoi(strings.TrimSpace(index))
		if err != nil || i < 0 {
			return nil, nil, fmt.Errorf("%.80q: want auto, none, indexes such as 0,1 or sim:8xH100-80GB", text)
		}
		only = append(only, i)
	}
	return nil, only, nil
}

// gpuDriver returns the driver that the setting gpus selects, and the indexes of the GPUs to offer (nil: all).
//
//nolint:ireturn // it is one of several drivers
func gpuDriver(cfg Config, log *slog.Logger) (gpu.Driver, []int, error) {
	sim, only, err := parseGPUs(cfg.GPUs, cfg.Name)
	switch {
	case err != nil:
		return nil, nil, fmt.Errorf("gpus: %w", err)
	case cfg.GPUs == "none":
		return noGPUs{}, nil, nil
	case sim != nil:
		log.Warn("GPUs are simulated: tasks get no hardware", "gpus", cfg.GPUs)
		return sim, nil, nil
	}
	nc := nvml.DefaultConfig()
	nc.Command = []string{cfg.Program, "nvml-agent"}
	d, err := nvml.New(nc, log)
	if err != nil {
		return nil, nil, fmt.Errorf("gpus: %w", err)
	}
	return d, only, nil
}

// devices reads the status of the GPUs and keeps the newest one.
type devices struct {
	driver gpu.Driver
	all    []gpu.Device
	poll   chan struct{} // holds a token if run must read the status now
	log    *slog.Logger

	mu     sync.Mutex
	status []gpu.Status // guarded by mu
}

// newDevices lists the GPUs once. If the driver fails, it logs the error, and the daemon starts without GPUs.
func newDevices(ctx context.Context, cfg Config, log *slog.Logger) (*devices, error) {
	driver, only, err := gpuDriver(cfg, log)
	if err != nil {
		return nil, err
	}
	d := &devices{driver: driver, poll: make(chan struct{}, 1), log: log}
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	all, err := driver.List(ctx)
	if err != nil {
		log.ErrorContext(ctx, "GPUs cannot be listed; this host offers none until the daemon is restarted", "error", err)
	}
	for _, dev := range all {
		if only == nil || slices.Contains(only, dev.Index) {
			d.all = append(d.all, dev)
		}
	}
	if len(d.all) > 0 {
		log.InfoContext(ctx, "GPUs found", "count", len(d.all), "class", d.all[0].Class, "simulated", d.all[0].Simulated)
	}
	return d, nil
}

// latest returns the newest status of all GPUs.
func (d *devices) latest() []gpu.Status {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.status
}

// ask makes run read the status soon. It does not wait.
func (d *devices) ask() {
	select {
	case d.poll <- struct{}{}:
	default:
	}
}

// run passes status and faults of the GPUs to the worker until ctx ends. Then it closes the driver.
func (d *devices) run(ctx context.Context, w *worker.Loop) error {
	defer func() {
		if err := d.driver.Close(); err != nil {
			d.log.DebugContext(ctx, "GPU driver closed uncleanly", "error", err)
		}
	}()
	if len(d.all) == 0 {
		<-ctx.Done()
		return nil
	}
	faults, err := d.driver.Faults(ctx)
	if err != nil {
		d.log.WarnContext(ctx, "GPU faults are not reported", "error", err)
	}
	tick := time.NewTicker(statusEvery)
	defer tick.Stop()
	for {
		d.look(ctx, w)
		select {
		case <-ctx.Done():
			return nil
		case f, open := <-faults:
			if !open {
				faults = nil
			} else if w != nil {
				w.Fault(f)
			}
		case <-tick.C:
		case <-d.poll:
		}
	}
}

func (d *devices) look(ctx context.Context, w *worker.Loop) {
	timed, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	status, err := d.driver.Status(timed)
	if err != nil {
		if ctx.Err() != nil {
			return
		}
		d.log.WarnContext(ctx, "GPU status unknown", "error", err)
		status = nil
		for _, dev := range d.all {
			status = append(status, gpu.NotKnown(dev.UUID, err.Error()))
		}
	}
	d.mu.Lock()
	d.status = status
	d.mu.Unlock()
	if w != nil {
		mps := ""
		if !d.all[0].Simulated {
			mps = nvml.MPS()
		}
		w.Devices(status, mps)
	}
}
