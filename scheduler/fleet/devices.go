package fleet

// The devices of one host, and whether a need fits them.

import (
	"fmt"
	"slices"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
)

// Devices are those of one host, and which of them are free.
type Devices struct {
	// alike stands for each device of the host, if no need can tell them apart. It is nil if they differ, or if they
	// are parts of other devices. Hosts with the same devices share it, so that a placement that looks at many hosts
	// reads less memory.
	alike   *gpu.Device
	listed  bool // each free device is one of all
	all     []gpu.Device
	islands []int // for each device of all, the first device that NVLink connects it to; itself if none does
	ofFree  []int // for each free device, its place in all; -1 if all does not have it
	byUUID  map[string]gpu.Device
	places  map[string]int // where in all each device is; nil if there are so few that a search is as fast
}

// searched bounds the devices of a host that has no index of them: they are searched one by one.
const searched = 16

// devicesOf returns the devices of a profile.
func devicesOf(all []gpu.Device) Devices {
	d := Devices{all: all, byUUID: make(map[string]gpu.Device, len(all))}
	for _, g := range all {
		d.byUUID[g.UUID] = g
	}
	if len(all) > searched {
		d.places = make(map[string]int, len(all))
		for i := range all {
			d.places[all[i].UUID] = i
		}
	}
	d.islands = islandsOf(&d)
	if len(all) > 0 && all[0].Parent == "" {
		first := kindOf(&all[0])
		if !slices.ContainsFunc(all, func(g gpu.Device) bool { return kindOf(&g) != first }) {
			d.alike = &all[0]
		}
	}
	return d
}

// kind is the part of a device by which a need can tell it from others.
type kind struct {
	model, class, parent string
	memory               job.Size
}

func kindOf(d *gpu.Device) kind { return kind{d.Model, d.Class, d.Parent, d.Memory} }

// setFree takes in which devices are free.
func (d *Devices) setFree(free []contract.FreeGPU) {
	d.ofFree, d.listed = d.ofFree[:0], true
	for j := range free {
		i := d.place(free[j].UUID)
		d.ofFree = append(d.ofFree, i)
		d.listed = d.listed && i >= 0
	}
}

// place returns where in all a device is; -1 if all does not have it.
func (d *Devices) place(uuid string) int {
	if d.places != nil {
		if i, there := d.places[uuid]; there {
			return i
		}
		return -1
	}
	for i := range d.all {
		if d.all[i].UUID == uuid {
			return i
		}
	}
	return -1
}

// islandsOf returns for each device the first device in its NVLink island.
func islandsOf(devices *Devices) []int {
	all := devices.all
	islands := make([]int, len(all))
	for i := range islands {
		islands[i] = i
	}
	for i, d := range all {
		for _, l := range d.Links {
			if l.Kind != gpu.LinkNVLink {
				continue
			}
			j := devices.place(l.To)
			if j < 0 || islands[i] == islands[j] {
				continue
			}
			first, other := min(islands[i], islands[j]), max(islands[i], islands[j])
			for k, island := range islands {
				if island == other {
					islands[k] = first
				}
			}
		}
	}
	return islands
}

// Device returns the device that is the i-th of the free ones; nil if the host has not listed it. If the devices of
// the host are alike, it is the one that stands for them. The devices of free must be those that the host listed last,
// in the same order.
func (d *Devices) Device(i int) *gpu.Device {
	switch {
	case d.alike != nil && d.listed:
		return d.alike
	case i >= len(d.ofFree) || d.ofFree[i] < 0:
		return nil
	}
	return &d.all[d.ofFree[i]]
}

// Place returns where the i-th free device is in its host: its NVLink island, which has the same number for all devices
// of the island, and its NUMA node. A number is -1 if the host has not said it.
func (d *Devices) Place(i int) (island, numa int) {
	if i >= len(d.ofFree) || d.ofFree[i] < 0 {
		return -1, -1
	}
	return d.islands[d.ofFree[i]], d.all[d.ofFree[i]].NUMA
}

// Alike returns a device that stands for each device of the host, if no need can tell them apart; nil if they differ.
func (d *Devices) Alike() *gpu.Device { return d.alike }

// Fit chooses devices for the need from what is free at the host. If the need does not fit, lack is the resource that
// is short: "cpus", "memory" or "gpus". It is "tasks" if tasks run at the host, and one of them or the need wants the
// whole host.
func (d *Devices) Fit(need job.Resources, free *contract.Free) (chosen []string, lack string) {
	return fits(need, free, d.byUUID)
}

// Suffices says whether the need fits, without choosing devices. The devices of free must be those that the host listed
// last, in the same order.
func (d *Devices) Suffices(need job.Resources, free *contract.Free) bool {
	if free.CPUs < need.CPUs || free.Memory < need.Memory || shared(need, free) {
		return false
	}
	n := gpu.Count(need)
	if n == 0 {
		return true
	}
	milli := gpu.Milli(need)
	if d.alike == nil || !d.listed {
		return d.enough(need, milli, n, free.GPUs)
	}
	if !contract.GPUMeets(*d.alike, need) {
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

// enough says whether n of the free devices meet the need. The need takes milli thousandths of each.
func (d *Devices) enough(need job.Resources, milli, n int, free []contract.FreeGPU) bool {
	var like *gpu.Device // the device that was compared last
	meets := false       // whether it met the need
	for i := range free {
		g, x := &free[i], d.Device(i)
		if x == nil || g.Milli < milli || g.Memory < need.GPUMemory {
			continue
		}
		if like == nil || kindOf(x) != kindOf(like) {
			like, meets = x, contract.GPUMeets(*x, need)
		}
		if meets {
			if n--; n == 0 {
				return true
			}
		}
	}
	return false
}

// sound says whether the devices without those in quarantine could meet the need. If they could not, the need waits for
// a repair, and nothing is kept free for it.
func (d *Devices) sound(need job.Resources, quarantine []string) bool {
	n := gpu.Count(need)
	if n == 0 || len(quarantine) == 0 {
		return true
	}
	return meeting(slices.DeleteFunc(slices.Clone(d.all), func(g gpu.Device) bool {
		return slices.Contains(quarantine, g.UUID)
	}), need) >= n
}

// Room returns how many devices have room for the need, each looked at on its own.
func (d *Devices) Room(need job.Resources, free *contract.Free) int {
	need.GPUModel = contract.ModelName(need.GPUModel)
	return len(choose(need, free, d.byUUID))
}

// namedForeign is how many devices Foreign names.
const namedForeign = 3

// Foreign says for people which devices that the need could have are used by programs that muster did not start, and how
// much of their memory: at most namedForeign of them. It is empty if the need fits nevertheless.
func (d *Devices) Foreign(need job.Resources, free *contract.Free) (out []string) {
	if len(free.Foreign) == 0 || gpu.Count(need) == 0 || d.Room(need, free) >= gpu.Count(need) {
		return nil
	}
	need.GPUModel = contract.ModelName(need.GPUModel)
	for _, u := range free.Foreign {
		g, known := d.byUUID[u.UUID]
		if !known || !contract.GPUMeets(g, need) {
			continue
		}
		if len(out) == namedForeign {
			return append(out, "and others")
		}
		out = append(out, fmt.Sprintf("%s of %s of GPU %d are used by %s", rounded(u.Memory), g.Memory, g.Index, u.By()))
	}
	return out
}

// rounded returns a size in whole MiB, for people.
func rounded(s job.Size) job.Size { return s - s%(1<<20) }

// LacksQuarantined says whether the need does not fit now, but would if the devices in quarantine were free as well.
func (d *Devices) LacksQuarantined(need job.Resources, free *contract.Free) bool {
	if len(free.Quarantined) == 0 {
		return false
	}
	if _, lack := d.Fit(need, free); lack != "gpus" {
		return false
	}
	more := *free
	more.GPUs = slices.Clone(free.GPUs)
	for _, uuid := range free.Quarantined {
		more.GPUs = append(more.GPUs, contract.FreeGPU{UUID: uuid, Memory: d.byUUID[uuid].Memory, Milli: gpu.Whole})
	}
	_, lack := d.Fit(need, &more)
	return lack == ""
}
