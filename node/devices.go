package node

// The GPUs of this host: their driver, and the loop that reads their status.

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/gpu/nvml"
	"github.com/musterhq/muster/gpu/simgpu"
	"github.com/musterhq/muster/lease"
	"github.com/musterhq/muster/worker"
)

const (
	listEvery     = 30 * time.Second
	listTimeout   = 5 * time.Minute // without persistence mode the driver initializes each GPU first, which takes seconds
	firstWait     = 5 * time.Second // the start of the daemon waits no longer for the GPUs; listing goes on
	doctorWait    = time.Minute
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

// devices lists the GPUs and reads their status, again and again, and keeps the newest answers.
type devices struct {
	driver gpu.Driver
	only   []int         // indexes of the GPUs to offer; nil: all
	poll   chan struct{} // holds a token if run must read the status now
	relist chan struct{} // holds a token if the GPUs are to be listed now
	log    *slog.Logger

	mu     sync.Mutex
	all    []gpu.Device // guarded by mu
	err    error        // guarded by mu; why the last list failed
	status []gpu.Status // guarded by mu
}

// newDevices returns the GPUs that the configuration selects. None is listed yet.
func newDevices(cfg Config, log *slog.Logger) (*devices, error) {
	driver, only, err := gpuDriver(cfg, log)
	if err != nil {
		return nil, err
	}
	return &devices{driver: driver, only: only, poll: make(chan struct{}, 1), relist: make(chan struct{}, 1), log: log}, nil
}

// list lists the GPUs, and returns whether they have changed. After an error the last list holds.
func (d *devices) list(ctx context.Context, wait time.Duration) (changed bool) {
	timed, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	listed, err := d.driver.List(timed)
	if ctx.Err() != nil {
		return false
	}
	var all []gpu.Device
	for _, dev := range listed {
		if d.only == nil || slices.Contains(d.only, dev.Index) {
			all = append(all, dev)
		}
	}
	d.mu.Lock()
	before, was := d.err, d.all
	d.err = err
	changed = err == nil && !reflect.DeepEqual(d.all, all)
	if changed {
		d.all = all
	}
	d.mu.Unlock()
	switch {
	case errors.Is(err, context.DeadlineExceeded) && wait < listTimeout:
		d.log.InfoContext(ctx, "GPUs are not listed yet", "waited", wait)
	case err != nil && before == nil:
		d.log.ErrorContext(ctx, "GPUs cannot be listed", "error", err, "again_in", listEvery)
	case err == nil && before != nil:
		d.log.InfoContext(ctx, "GPUs can be listed again")
	}
	if changed && len(all) > 0 {
		d.log.InfoContext(ctx, "GPUs found", "count", len(all), "class", all[0].Class, "simulated", all[0].Simulated, "before", len(was))
	} else if changed {
		d.log.WarnContext(ctx, "no GPU is left", "before", len(was))
	}
	return changed
}

// listed returns the GPUs of the last list that succeeded, and why the last one failed.
func (d *devices) listed() ([]gpu.Device, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.all, d.err
}

// node returns the device file of a GPU, or "" if it is not known. It returns false for a GPU that has none, because it
// is simulated, or that is not listed.
func (d *devices) node(uuid string) (string, bool) {
	all, _ := d.listed()
	for _, dev := range all {
		if dev.UUID == uuid {
			return dev.Node, !dev.Simulated
		}
	}
	return "", false
}

// latest returns the newest status of all GPUs.
func (d *devices) latest() []gpu.Status {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.status
}

// ask makes run read the status soon. It does not wait.
func (d *devices) ask() { ring(d.poll) }

// ring puts a token into a channel that has none.
func ring(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// run passes list, status and faults of the GPUs to the worker until ctx ends. Then it closes the driver.
func (d *devices) run(ctx context.Context, w *worker.Loop, become func(func(*lease.Profile))) error {
	var lists sync.WaitGroup
	defer func() {
		if err := d.driver.Close(); err != nil {
			d.log.DebugContext(ctx, "GPU driver closed uncleanly", "error", err)
		}
		lists.Wait()
	}()
	lists.Go(func() { d.keepListed(ctx, become) })
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
				continue
			}
			w.Fault(f)
			ring(d.relist)
		case <-tick.C:
		case <-d.poll:
		}
	}
}

// keepListed lists the GPUs now and then, and after each fault, until ctx ends.
func (d *devices) keepListed(ctx context.Context, become func(func(*lease.Profile))) {
	tick := time.NewTicker(listEvery)
	defer tick.Stop()
	for {
		if d.list(ctx, listTimeout) {
			all, _ := d.listed()
			become(func(p *lease.Profile) { p.GPUs = all })
			d.ask()
		}
		select {
		case <-ctx.Done():
			return
		case <-d.relist:
		case <-tick.C:
		}
	}
}

func (d *devices) look(ctx context.Context, w *worker.Loop) {
	all, _ := d.listed()
	if len(all) == 0 {
		return
	}
	timed, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	status, err := d.driver.Status(timed)
	if err != nil {
		if ctx.Err() != nil {
			return
		}
		d.log.WarnContext(ctx, "GPU status unknown", "error", err)
		status = nil
		for _, dev := range all {
			status = append(status, gpu.NotKnown(dev.UUID, err.Error()))
		}
	}
	d.mu.Lock()
	d.status = status
	d.mu.Unlock()
	mps := ""
	if !all[0].Simulated {
		mps = nvml.MPS()
	}
	w.Devices(status, mps)
}
