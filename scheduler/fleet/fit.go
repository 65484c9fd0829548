package fleet

// Fits: whether a need fits into what is free, with which devices, and what is left then.

import (
	"slices"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
)

// fits chooses devices for the need from what is free. If the need does not fit, it returns the resource that is short.
func fits(need job.Resources, free *contract.Free, devices map[string]gpu.Device) ([]string, string) {
	switch {
	case shared(need, free):
		return nil, "tasks"
	case free.CPUs < need.CPUs:
		return nil, "cpus"
	case free.Memory < need.Memory:
		return nil, "memory"
	}
	n := gpu.Count(need)
	if n == 0 {
		return nil, ""
	}
	chosen := choose(need, free, devices)
	if len(chosen) < n {
		return nil, "gpus"
	}
	return chosen[:n], ""
}

// shared says whether the need does not fit because tasks run at the host: the need wants the whole host, or one of
// those tasks has it.
func shared(need job.Resources, free *contract.Free) bool {
	return free.Exclusive || need.Exclusive && free.Tasks > 0
}

// choose returns the free devices that meet the need. The least free come first, so that shares of a GPU fill one
// device before they take another. Of equally free devices those with the least memory come first.
func choose(need job.Resources, free *contract.Free, devices map[string]gpu.Device) []string {
	milli := gpu.Milli(need)
	able := make([]contract.FreeGPU, 0, len(free.GPUs))
	for _, g := range free.GPUs {
		d, known := devices[g.UUID]
		if known && g.Milli >= milli && g.Memory >= need.GPUMemory && contract.GPUMeets(d, need) {
			able = append(able, g)
		}
	}
	slices.SortStableFunc(able, func(a, b contract.FreeGPU) int {
		if a.Milli != b.Milli {
			return a.Milli - b.Milli
		}
		x, y := devices[a.UUID], devices[b.UUID]
		switch {
		case x.Memory < y.Memory:
			return -1
		case x.Memory > y.Memory:
			return 1
		}
		return 0
	})
	out := make([]string, len(able))
	for i, g := range able {
		out[i] = g.UUID
	}
	return out
}

// meeting counts the devices that the need accepts.
func meeting(devices []gpu.Device, need job.Resources) int {
	n := 0
	for _, d := range devices {
		if contract.GPUMeets(d, need) {
			n++
		}
	}
	return n
}

// take subtracts the need of a task from what is free, but not below zero.
func take(need job.Resources, free *contract.Free, chosen []string) {
	free.Tasks++
	free.Exclusive = free.Exclusive || need.Exclusive
	free.CPUs = max(free.CPUs-need.CPUs, 0)
	free.Memory = max(free.Memory-need.Memory, 0)
	if len(chosen) == 0 {
		return
	}
	milli := gpu.Milli(need)
	for i := range free.GPUs {
		g := &free.GPUs[i]
		if !slices.Contains(chosen, g.UUID) {
			continue
		}
		memory := need.GPUMemory
		if milli == gpu.Whole {
			memory = g.Memory
		} else if memory == 0 {
			memory = g.Memory * job.Size(milli) / job.Size(max(g.Milli, 1))
		}
		g.Milli = max(g.Milli-milli, 0)
		g.Memory = max(g.Memory-memory, 0)
	}
}
