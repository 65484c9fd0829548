package daemon

// The GPUs of this host: their list, and the loop that reads their status. The GPUs are listed again and again, because a
// driver may be loaded later, cards are lost and found, and MIG instances change. After an error the last list counts:
// nothing is known then.

import (
	"context"
	"errors"
	"log/slog"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker/loop"
	"github.com/musterhq/muster/worker/meter"
)

const (
	listEvery     = 30 * time.Second
	listTimeout   = 5 * time.Minute // without persistence mode the driver initializes each GPU first, which takes seconds
	firstWait     = 5 * time.Second // bounds how long the start of the daemon waits for the GPUs; listing goes on after it
	doctorWait    = time.Minute
	statusEvery   = meter.Every // so that each sample of the meter has new values
	statusTimeout = 10 * time.Second
)

// devices lists the GPUs and reads their status periodically, and keeps the newest answers.
type devices struct {
	driver gpu.Driver
	only   selection     // the GPUs to offer
	poll   chan struct{} // holds a token if run must read the status now
	relist chan struct{} // holds a token if the GPUs must be listed now
	fresh  atomic.Bool   // the next list must also try GPUs that failed before
	log    *slog.Logger
	letGo

	mu     sync.Mutex
	all    []gpu.Device // guarded by mu
	err    error        // guarded by mu; why the last list failed
	absent string       // guarded by mu; which GPUs of only were not in the last list
	status []gpu.Status // guarded by mu
	read   time.Time    // guarded by mu; when status was read
}

// newDevices returns the devices that the configuration selects. It does not list them yet.
func newDevices(cfg Config, log *slog.Logger) (*devices, error) {
	driver, only, err := gpuDriver(cfg, log)
	if err != nil {
		return nil, err
	}
	return &devices{
		driver: driver, only: only, poll: make(chan struct{}, 1), relist: make(chan struct{}, 1), log: log, letGo: letGo{takeUp: make(chan chan struct{})},
	}, nil
}

// list lists the GPUs, and returns whether they have changed. After an error it keeps the last list.
func (d *devices) list(ctx context.Context, wait time.Duration) (changed bool) {
	timed, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	listed, err := d.driver.List(timed)
	if ctx.Err() != nil || errors.Is(err, gpu.ErrReleased) {
		return false
	}
	all, absent := d.only.of(listed)
	d.mu.Lock()
	before, was, lacked := d.err, d.all, d.absent
	d.err = err
	if err == nil {
		d.absent = absent
	}
	changed = err == nil && len(d.all)+len(all) > 0 && !reflect.DeepEqual(d.all, all)
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
	if err == nil && absent != lacked && absent != "" {
		d.log.ErrorContext(ctx, "GPUs of the setting gpus are not there", "missing", absent)
	}
	if changed && len(all) > 0 {
		d.log.InfoContext(ctx, "GPUs found", "count", len(all), "class", all[0].Class, "simulated", all[0].Simulated, "before", len(was))
	} else if changed {
		d.log.WarnContext(ctx, "no GPU is left", "before", len(was))
	}
	return changed
}

// listed returns the GPUs of the last list that succeeded, and the error of the last list if that failed.
func (d *devices) listed() ([]gpu.Device, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.all, d.err
}

// missing returns an error if the last list lacks GPUs of the setting gpus.
func (d *devices) missing() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.absent == "" {
		return nil
	}
	return badSetting("gpus", "%s", d.absent)
}

// grant returns what a task with these GPUs gets access to.
func (d *devices) grant(uuids []string, need job.Resources) gpu.Grant {
	all, _ := d.listed()
	given := make([]gpu.Device, len(uuids))
	for i, uuid := range uuids {
		given[i] = gpu.Device{UUID: uuid, Nodes: []gpu.Node{}} // a GPU that has disappeared has no device files
		if at := slices.IndexFunc(all, func(dev gpu.Device) bool { return dev.UUID == uuid }); at >= 0 {
			given[i] = all[at]
		}
	}
	return d.driver.Grant(given, need)
}

// latest returns the newest status of all GPUs, and when it was read.
func (d *devices) latest() ([]gpu.Status, time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.status, d.read
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

// whose returns which processes belong to tasks; see worker.DeviceStatus.
type whose func(ctx context.Context, pids []int) map[int]bool

// watcher is the part of the worker that gets status and faults of the GPUs.
type watcher interface {
	Devices(s []gpu.Status, tasks map[int]bool)
	Fault(f gpu.Fault)
}

var _ watcher = (*loop.Loop)(nil)

// run passes list, status and faults of the GPUs to the worker until ctx ends. Then it closes the driver.
func (d *devices) run(ctx context.Context, w watcher, of whose, become func(func(*contract.Profile))) error {
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
		d.follow(ctx, w, of)
		select {
		case <-ctx.Done():
			return nil
		case done := <-d.takeUp:
			d.drained.Store(false)
			d.follow(ctx, w, of)
			close(done)
			ring(d.relist)
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

// relist makes run list the GPUs and read their status now, including GPUs that failed before. It does not wait.
func (d *devices) listAgain() {
	d.fresh.Store(true)
	ring(d.relist)
	d.ask()
}

// keepListed lists the GPUs every listEvery, after each fault, and on request, until ctx ends.
func (d *devices) keepListed(ctx context.Context, become func(func(*contract.Profile))) {
	tick := time.NewTicker(listEvery)
	defer tick.Stop()
	for {
		if r, pauses := d.driver.(gpu.Renewer); pauses && d.fresh.Swap(false) {
			if err := r.Anew(ctx); err != nil && ctx.Err() == nil {
				d.log.WarnContext(ctx, "GPUs that failed are left out as before", "error", err)
			}
		}
		if d.list(ctx, listTimeout) {
			all, _ := d.listed()
			become(func(p *contract.Profile) { p.GPUs = all })
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

// look reads the status of the GPUs and passes it to the worker.
func (d *devices) look(ctx context.Context, w watcher, of whose) {
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
	d.status, d.read = status, time.Now()
	d.mu.Unlock()
	var tasks map[int]bool
	if !all[0].Simulated {
		tasks = of(timed, processesOf(status))
	}
	w.Devices(status, tasks)
}

func processesOf(status []gpu.Status) (pids []int) {
	for _, s := range status {
		for _, p := range s.Processes {
			pids = append(pids, p.PID)
		}
	}
	return pids
}
