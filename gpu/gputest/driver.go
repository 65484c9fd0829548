// Package gputest provides a gpu.Driver for tests, and the test that every gpu.Driver must pass.
package gputest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/job"
)

// Driver is a gpu.Driver whose devices the test sets.
type Driver struct {
	mu       sync.Mutex
	devices  []gpu.Device          // guarded by mu
	statuses map[string]gpu.Status // guarded by mu; by UUID, as set by SetStatus
	err      error                 // guarded by mu
	closed   bool                  // guarded by mu
	subs     []*subscriber         // guarded by mu
}

type subscriber struct {
	faults chan gpu.Fault
	ended  bool
}

// Major is the major number of the device files: one that no driver has.
const Major = 1023

// maxFaults bounds the unread faults. If a test injects more, its reader does not read.
const maxFaults = 64

// New returns a driver that lists these devices, all healthy and idle.
func New(devices ...gpu.Device) *Driver {
	return &Driver{devices: slices.Clone(devices), statuses: map[string]gpu.Status{}}
}

// Devices returns n NVLinked devices of a model, with UUIDs PREFIX-0 and so on.
func Devices(n int, prefix, model string, memory job.Size) []gpu.Device {
	name := func(i int) string { return fmt.Sprintf("%s-%d", prefix, i) }
	all := make([]gpu.Device, n)
	for i := range all {
		all[i] = gpu.Device{UUID: name(i), Index: i, Model: model, Class: gpu.Class(model, memory), Memory: memory}
		for j := range n {
			if j != i {
				all[i].Links = append(all[i].Links, gpu.Link{To: name(j), Kind: gpu.LinkNVLink, NVLinks: 12})
			}
		}
	}
	return all
}

// Set changes what List returns.
func (d *Driver) Set(devices ...gpu.Device) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.devices = slices.Clone(devices)
}

// SetStatus changes the status of the device that s names.
func (d *Driver) SetStatus(s gpu.Status) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.statuses[s.UUID] = s
}

// Fail makes List and Status return err; nil makes them work again.
func (d *Driver) Fail(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.err = err
}

// Inject sends a fault to all readers of Faults.
func (d *Driver) Inject(f gpu.Fault) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, s := range d.subs {
		if s.ended {
			continue
		}
		select {
		case s.faults <- f:
		default:
			return errors.New("gputest: nobody reads the faults")
		}
	}
	return nil
}

// List returns the devices.
func (d *Driver) List(ctx context.Context) ([]gpu.Device, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.stateLocked(ctx); err != nil {
		return nil, err
	}
	return slices.Clone(d.devices), nil
}

// Status returns the status that SetStatus set for each device, else healthy and idle.
func (d *Driver) Status(ctx context.Context) ([]gpu.Status, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.stateLocked(ctx); err != nil {
		return nil, err
	}
	all := make([]gpu.Status, len(d.devices))
	for i, dev := range d.devices {
		s, set := d.statuses[dev.UUID]
		if !set {
			s = gpu.Status{UUID: dev.UUID, Health: gpu.Healthy}
		}
		all[i] = s
	}
	return all, nil
}

// Grant returns a variable with the UUIDs of the devices, and closes all device files with the major number Major
// except those of these devices.
func (d *Driver) Grant(devices []gpu.Device, _ job.Resources) gpu.Grant {
	g, uuids := gpu.Grant{}, make([]string, len(devices))
	closed := gpu.Closed{Major: Major, Minors: 256}
	for i, dev := range devices {
		uuids[i] = dev.UUID
		for _, n := range dev.Nodes {
			closed.Open = append(closed.Open, n.Minor)
		}
	}
	slices.Sort(closed.Open)
	g.Env = map[string]string{"VISIBLE_TEST_DEVICES": strings.Join(uuids, ",")}
	g.Closed = []gpu.Closed{closed}
	return g
}

func (d *Driver) stateLocked(ctx context.Context) error {
	if d.closed {
		return fmt.Errorf("gputest: %w", gpu.ErrClosed)
	}
	if ctx.Err() != nil {
		return fmt.Errorf("gputest: %w", ctx.Err())
	}
	return d.err
}

// Faults returns what Inject sends from now on.
func (d *Driver) Faults(ctx context.Context) (<-chan gpu.Fault, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, fmt.Errorf("gputest: %w", gpu.ErrClosed)
	}
	s := &subscriber{faults: make(chan gpu.Fault, maxFaults)}
	d.subs = append(d.subs, s)
	context.AfterFunc(ctx, func() { d.end(s) })
	return s.faults, nil
}

func (d *Driver) end(s *subscriber) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !s.ended {
		s.ended = true
		close(s.faults)
	}
}

// Close makes all later calls fail.
func (d *Driver) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	return nil
}
