package gputest

// The contract that every gpu.Driver must fulfil.

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/job"
)

// closeTimeout bounds the wait for a channel to close.
const closeTimeout = 30 * time.Second

// TestDriver checks a driver against the contract, and closes it.
func TestDriver(t *testing.T, d gpu.Driver) {
	t.Helper()
	devices, err := d.List(t.Context())
	if err != nil {
		t.Fatalf("List: %v", err)
	}
	checkDevices(t, devices)
	checkLinks(t, devices)
	checkAgain(t, d, devices)
	checkStatuses(t, d, devices)
	checkGrants(t, d, devices)
	checkFaults(t, d)
	checkClosed(t, d)
}

func checkDevices(t *testing.T, devices []gpu.Device) {
	t.Helper()
	seen := map[string]bool{}
	for _, dev := range devices {
		if dev.UUID == "" || seen[dev.UUID] {
			t.Errorf("UUID %q: empty or listed twice", dev.UUID)
		}
		seen[dev.UUID] = true
		if dev.Model == "" || dev.Class == "" || !gpu.Match(dev.Class, dev.Class) || !dev.Is(dev.Class) {
			t.Errorf("%s: model %q is of class %q", dev.UUID, dev.Model, dev.Class)
		}
		if dev.Memory != 0 && (dev.Memory < 64<<20 || dev.Memory > 4<<40) { // 0: the driver does not report it
			t.Errorf("%s: %s of memory", dev.UUID, dev.Memory)
		}
		if dev.Index < 0 || dev.NUMA < -1 || dev.Parent == dev.UUID {
			t.Errorf("%s: index %d, NUMA node %d, parent %q", dev.UUID, dev.Index, dev.NUMA, dev.Parent)
		}
	}
	if _, err := gpu.NewPool(devices); err != nil {
		t.Errorf("no pool can be made of the devices: %v", err)
	}
}

func checkLinks(t *testing.T, devices []gpu.Device) {
	t.Helper()
	links := map[[2]string]gpu.Link{}
	for _, dev := range devices {
		for _, l := range dev.Links {
			if _, twice := links[[2]string{dev.UUID, l.To}]; twice || l.To == dev.UUID {
				t.Errorf("%s: linked to %s twice or to itself", dev.UUID, l.To)
			}
			if !slices.ContainsFunc(devices, func(o gpu.Device) bool { return o.UUID == l.To }) {
				t.Errorf("%s: linked to %s, which is not listed", dev.UUID, l.To)
			}
			if l.NVLinks < 0 || (l.Kind == gpu.LinkNVLink) != (l.NVLinks > 0) {
				t.Errorf("%s to %s: %s with %d NVLinks", dev.UUID, l.To, l.Kind, l.NVLinks)
			}
			links[[2]string{dev.UUID, l.To}] = l
		}
	}
	for ends, l := range links {
		if back, ok := links[[2]string{ends[1], ends[0]}]; !ok || back.Kind != l.Kind || back.NVLinks != l.NVLinks {
			t.Errorf("%s to %s is %s, the other way round %s", ends[0], ends[1], l.Kind, back.Kind)
		}
	}
}

func checkAgain(t *testing.T, d gpu.Driver, devices []gpu.Device) {
	t.Helper()
	again, err := d.List(t.Context())
	if err != nil || !slices.EqualFunc(again, devices, func(a, b gpu.Device) bool { return a.UUID == b.UUID }) {
		t.Errorf("List again: %d devices, %v; before %d", len(again), err, len(devices))
	}
}

func checkStatuses(t *testing.T, d gpu.Driver, devices []gpu.Device) {
	t.Helper()
	statuses, err := d.Status(t.Context())
	if err != nil || len(statuses) != len(devices) {
		t.Fatalf("Status: %d for %d devices, %v", len(statuses), len(devices), err)
	}
	for i, s := range statuses {
		if s.UUID != devices[i].UUID {
			t.Errorf("status %d is of %s, device %d is %s", i, s.UUID, i, devices[i].UUID)
		}
		if s.MemoryUsed < 0 || s.MemoryUsed > devices[i].Memory || s.Utilization < -1 || s.Utilization > 100 || s.Temperature < 0 || s.Temperature > 150 || s.PowerMilli < 0 {
			t.Errorf("%s: impossible status %+v", s.UUID, s)
		}
		switch s.Health {
		case gpu.Healthy:
		case gpu.Unhealthy, gpu.Unknown:
			if s.Detail == "" {
				t.Errorf("%s is %s, without a detail", s.UUID, s.Health)
			}
		default:
			t.Errorf("%s: health %q", s.UUID, s.Health)
		}
		if s.Health == gpu.Unknown && (s.Utilization != -1 || s.Temperature != 0 || s.PowerMilli != 0 || s.Recovery != "") {
			t.Errorf("%s: numbers of a device of unknown health: %+v", s.UUID, s)
		}
		if !s.Known() && (s.MemoryUsed != 0 || len(s.Processes) > 0 || s.ECC != 0) {
			t.Errorf("%s: numbers that were not read: %+v", s.UUID, s)
		}
		sum := job.Size(0)
		for _, p := range s.Processes {
			if p.PID <= 0 || p.Memory < 0 {
				t.Errorf("%s: impossible process %+v", s.UUID, p)
			}
			sum += p.Memory
		}
		if sum > devices[i].Memory {
			t.Errorf("%s: its processes have %s of %s", s.UUID, sum, devices[i].Memory)
		}
	}
}

// checkGrants checks that a task may open the files of its own devices, and none that only other devices have, and that
// each task gets the same variables.
func checkGrants(t *testing.T, d gpu.Driver, devices []gpu.Device) {
	t.Helper()
	none := d.Grant(nil, job.Resources{CPUs: 1})
	for _, c := range none.Closed {
		if len(c.Open) > 0 {
			t.Errorf("a task without devices may open %v", c)
		}
	}
	for i := range devices {
		own := d.Grant(devices[i:i+1], job.Resources{GPUs: 1})
		for name := range none.Env {
			if own.Env[name] == "" {
				t.Errorf("%s is not set for %s", name, devices[i].UUID)
			}
		}
		for _, dev := range devices {
			checkOpen(t, devices[i], own, dev.Nodes)
		}
	}
}

// checkOpen checks which of the device files a task with a device may open.
func checkOpen(t *testing.T, dev gpu.Device, own gpu.Grant, nodes []gpu.Node) {
	t.Helper()
	for _, n := range nodes {
		want := slices.ContainsFunc(dev.Nodes, func(o gpu.Node) bool { return o.Major == n.Major && o.Minor == n.Minor })
		if opens(own, n) != want {
			t.Errorf("a task with %s may open %s: %t, want %t", dev.UUID, n.Path, !want, want)
		}
	}
}

// opens reports whether a task may open a device file.
func opens(g gpu.Grant, n gpu.Node) bool {
	for _, c := range g.Closed {
		if c.Major == n.Major {
			return slices.Contains(c.Open, n.Minor)
		}
	}
	return true
}

func checkFaults(t *testing.T, d gpu.Driver) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	faults, err := d.Faults(ctx)
	if err != nil {
		t.Fatalf("Faults: %v", err)
	}
	stop()
	timer := time.NewTimer(closeTimeout)
	defer timer.Stop()
	for {
		select {
		case _, open := <-faults:
			if !open {
				return
			}
		case <-timer.C:
			t.Fatal("faults are still open though the context ended")
		}
	}
}

func checkClosed(t *testing.T, d gpu.Driver) {
	t.Helper()
	if err := d.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	if err := d.Close(); err != nil {
		t.Errorf("Close again: %v", err)
	}
	if devices, err := d.List(t.Context()); err == nil {
		t.Errorf("List after Close: %d devices and no error", len(devices))
	}
	if _, err := d.Status(t.Context()); err == nil {
		t.Error("Status after Close: no error")
	}
	if _, err := d.Faults(t.Context()); err == nil {
		t.Error("Faults after Close: no error")
	}
}
