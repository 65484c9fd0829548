package fleet

// Rooms: what is left of a host, as numbers side by side in memory. A placement compares many hosts, and most of its
// cost is reading memory: hosts join in random order, so nearly each read missed the caches. The rooms lie in the order of a
// search. Property tests compare the placements that read rooms with those that read the hosts. Scores that are kept for each
// host and kind of request would need much memory for 10,000 hosts.

import (
	"math"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
)

// RoomGPUs bounds the free devices that a Room can describe one by one.
const RoomGPUs = 8

// Room holds what a placement reads of a contract.Free and of the profile of its host.
type Room struct {
	plain     bool // no claim queues at the host, it has refused no user, and it has not changed since Count: see Row.Room
	Exclusive bool // a task has the host for itself
	Listed    int8 // how many devices GPUs has: all that are free; -1 if GPUs is not filled in
	// Which devices in GPUs are free in part, and which are wholly free: bit i stands for GPUs[i].
	Parts, Wholes uint8
	Tasks         int
	CPUs          int
	AllCPUs       int
	Memory        job.Size
	AllMemory     job.Size
	AllGPUs       int
	Milli         int // thousandths of devices that are free in all
	Whole         int // devices that are wholly free
	// Alike stands for each device of the host, as Devices.Alike; nil if they differ.
	Alike *gpu.Device
	GPUs  [RoomGPUs]RoomGPU // the first Listed ones; Alike stands for each of them
}

// RoomGPU is what is left of one free device.
type RoomGPU struct {
	Memory       job.Size
	Milli        int16
	Left         int16 // in thousandths of the device: see LeftOf
	island, numa int8  // -1 if the host has not said it
}

// RoomOf returns what is free of a host with this profile and these devices.
func RoomOf(p *contract.Profile, devices *Devices, free *contract.Free) Room {
	r := Room{
		Exclusive: free.Exclusive, Tasks: free.Tasks, CPUs: free.CPUs, Memory: free.Memory, Alike: devices.alike,
		AllCPUs: p.CPUs, AllMemory: p.Memory, AllGPUs: len(p.GPUs), Listed: -1,
	}
	for i := range free.GPUs {
		milli := free.GPUs[i].Milli
		r.Milli += milli
		if milli >= gpu.Whole {
			r.Whole++
		}
	}
	if r.Alike != nil && devices.listed && len(free.GPUs) <= RoomGPUs {
		r.list(devices, free)
	}
	return r
}

// list fills in the devices, if the numbers of each are in the range of the fields.
func (r *Room) list(devices *Devices, free *contract.Free) {
	parts, wholes := uint8(0), uint8(0)
	for i := range free.GPUs {
		g := &free.GPUs[i]
		island, numa := devices.Place(i)
		if g.Milli < 0 || g.Milli > math.MaxInt16 || max(island, numa) > math.MaxInt8 {
			return
		}
		if g.Milli >= gpu.Whole {
			wholes |= 1 << i
		} else {
			parts |= 1 << i
		}
		r.GPUs[i] = RoomGPU{
			Memory: g.Memory, Milli: int16(g.Milli), Left: int16(LeftOf(g, r.Alike)), //nolint:gosec // both are in range
			island: int8(max(island, -1)), numa: int8(max(numa, -1)), //nolint:gosec // they were compared
		}
	}
	r.Listed, r.Parts, r.Wholes = int8(len(free.GPUs)), parts, wholes //nolint:gosec // at most RoomGPUs
}

// Place returns where the device is in its host, as Devices.Place: its NVLink island and its NUMA node.
func (g *RoomGPU) Place() (island, numa int) { return int(g.island), int(g.numa) }

// LeftOf returns what is left of a device in thousandths: the smaller of the parts that are left of its thousandths and
// of its memory. The device may be nil if it is not known.
func LeftOf(g *contract.FreeGPU, d *gpu.Device) int32 {
	left := min(max(g.Milli, 0), gpu.Whole)
	if left < gpu.Whole && d != nil && d.Memory > 0 {
		left = min(left, int(max(float64(g.Memory), 0)/float64(d.Memory)*gpu.Whole+0.5)) // hosts round it down
	}
	return int32(left) //nolint:gosec // at most gpu.Whole
}

// Search is a need, prepared to be compared with many hosts.
type Search struct {
	Need     job.Resources
	n, milli int
	meets    Meeter
}

// SearchFor prepares a need.
func SearchFor(need job.Resources) Search {
	return Search{Need: need, n: gpu.Count(need), milli: gpu.Milli(need), meets: Meeter{Need: need}}
}

// Fits says whether the need fits. r and free describe the same host. free is not read if r lists the devices.
func (s *Search) Fits(r *Room, devices *Devices, free *contract.Free) bool {
	switch {
	case r.CPUs < s.Need.CPUs || r.Memory < s.Need.Memory || r.Exclusive || s.Need.Exclusive && r.Tasks > 0:
		return false
	case s.n == 0:
		return true
	case r.Listed < 0:
		return devices.Suffices(s.Need, free)
	case r.Listed == 0 || !s.meets.Device(r.Alike):
		return false
	}
	n := s.n
	for i := range r.GPUs[:r.Listed] {
		if g := &r.GPUs[i]; int(g.Milli) >= s.milli && g.Memory >= s.Need.GPUMemory {
			if n--; n == 0 {
				return true
			}
		}
	}
	return false
}

// Meeter says whether devices meet a need. It does not compare the same device twice in a row.
type Meeter struct {
	Need  job.Resources
	last  *gpu.Device
	meets bool
}

// Device says whether the device meets the need; nil, which is a device that is not known, does not.
func (m *Meeter) Device(d *gpu.Device) bool {
	if d != m.last {
		m.last, m.meets = d, d != nil && contract.GPUMeets(*d, m.Need)
	}
	return m.meets
}
