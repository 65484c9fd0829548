package fleet

// The devices of one host, and whether a need fits them.

import (
	"slices"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/lease"
)

// Devices are those of one host, and which of them are free.
type Devices struct {
	// alike is a device that all of the host's are like, as far as a need can tell; nil if they differ, or if they
	// are parts of others. Hosts with the same devices share it: a placement that looks at many hosts reads it once.
	alike  *gpu.Device
	listed bool // all has each device that is free
	all    []gpu.Device
	ofFree []*gpu.Device // of each free device that of all; nil if all does not have it
	byUUID map[string]gpu.Device
}

func devicesOf(all []gpu.Device) Devices {
	d := Devices{all: all, byUUID: make(map[string]gpu.Device, len(all))}
	for _, g := range all {
		d.byUUID[g.UUID] = g
	}
	if len(all) > 0 && all[0].Parent == "" {
		first := kindOf(&all[0])
		if !slices.ContainsFunc(all, func(g gpu.Device) bool { return kindOf(&g) != first }) {
			d.alike = &all[0]
		}
	}
	return d
}

// kind is all of a device that a need can tell from others.
type kind struct {
	model, class, parent string
	memory               job.Size
}

func kindOf(d *gpu.Device) kind { return kind{d.Model, d.Class, d.Parent, d.Memory} }

// setFree takes the host's word on which devices are free.
func (d *Devices) setFree(free []lease.FreeGPU) {
	d.ofFree, d.listed = d.ofFree[:0], true
	for _, g := range free {
		var device *gpu.Device
		if i := slices.IndexFunc(d.all, func(x gpu.Device) bool { return x.UUID == g.UUID }); i >= 0 {
			device = &d.all[i]
		}
		d.ofFree = append(d.ofFree, device)
		d.listed = d.listed && device != nil
	}
}

// Alike is a device that all of the host's are like, as far as a need can tell; nil if they differ.
func (d *Devices) Alike() *gpu.Device { return d.alike }

// Fit chooses devices with which the need can be met from what is free of the host. If it cannot be met, lack is
// what there is too little of: "cpus", "memory" or "gpus".
func (d *Devices) Fit(need job.Resources, free *lease.Free) (chosen []string, lack string) {
	return fits(need, free, d.byUUID)
}

// Suffices says whether Fit finds devices, without choosing them. The devices of free are those that the host told
// last, in the same order.
func (d *Devices) Suffices(need job.Resources, free *lease.Free) bool {
	if free.CPUs < need.CPUs || free.Memory < need.Memory {
		return false
	}
	n := gpusOf(need)
	if n == 0 {
		return true
	}
	milli := shareMilli(need)
	if d.alike == nil || !d.listed {
		return d.enough(need, milli, n, free.GPUs)
	}
	if !lease.GPUMeets(*d.alike, need) {
		return false
	}
	for i := range free.GPUs {
		if g := &free.GPUs[i]; g.Milli >= milli && g.Memory >= need.GPUMemory {
			if n--; n == 0 {
				return true
			}
		}
	}
	return false
}

// enough says whether the need accepts n of the free devices. It takes milli thousandths of each.
func (d *Devices) enough(need job.Resources, milli, n int, free []lease.FreeGPU) bool {
	var like *gpu.Device // the device that was looked at last, and what came of it
	meets := false
	for i := range free {
		g, x := &free[i], d.ofFree[i]
		if x == nil || g.Milli < milli || g.Memory < need.GPUMemory {
			continue
		}
		if like == nil || kindOf(x) != kindOf(like) {
			like, meets = x, lease.GPUMeets(*x, need)
		}
		if meets {
			if n--; n == 0 {
				return true
			}
		}
	}
	return false
}

// sound says whether the devices could meet the need without those in quarantine. Nothing is kept for a claim that
// waits for a repair.
func (d *Devices) sound(need job.Resources, quarantine []string) bool {
	n := gpusOf(need)
	if n == 0 || len(quarantine) == 0 {
		return true
	}
	return meeting(slices.DeleteFunc(slices.Clone(d.all), func(g gpu.Device) bool {
		return slices.Contains(quarantine, g.UUID)
	}), need) >= n
}

// LacksQuarantined says whether the need does not fit what is free, and would if the host gave the devices in
// quarantine away, too.
func (d *Devices) LacksQuarantined(need job.Resources, free *lease.Free) bool {
	if len(free.Quarantined) == 0 {
		return false
	}
	if _, lack := d.Fit(need, free); lack != "gpus" {
		return false
	}
	more := *free
	more.GPUs = slices.Clone(free.GPUs)
	for _, uuid := range free.Quarantined {
		more.GPUs = append(more.GPUs, lease.FreeGPU{UUID: uuid, Memory: d.byUUID[uuid].Memory, Milli: wholeMilli})
	}
	_, lack := d.Fit(need, &more)
	return lack == ""
}
