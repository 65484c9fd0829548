package fleet

// The nearest fit: with how much less of one resource a need would fit.

import (
	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/lease"
)

// Nearest returns how much of each resource the need could have at one of the hosts, if the rest of it stayed as it is.
// A resource is zero if less of it alone would not help. With idle hosts are compared as if no task ran there, otherwise
// by what is free.
func Nearest(clauses []Clause, need job.Resources, hosts []*Host, idle bool) (out lease.Nearest) {
	clauses = withoutCounts(clauses)
	need.GPUModel = lease.ModelName(need.GPUModel)
	for _, h := range hosts {
		if !h.Open() || !Meets(clauses, h) {
			continue
		}
		free := &h.Free
		if idle {
			free = idleOf(&h.Profile)
		}
		out = nearest(h, need, free, out)
	}
	return out
}

// nearest adds what one host could give.
func nearest(h *Host, need job.Resources, free *lease.Free, out lease.Nearest) lease.Nearest {
	one := need
	one.GPUs = min(1, need.GPUs)
	able := len(choose(one, free, h.Devices.byUUID))
	cpus, memory, gpus := free.CPUs >= need.CPUs, free.Memory >= need.Memory, able >= gpu.Count(need)
	switch {
	case memory && gpus && !cpus:
		out.CPUs = max(out.CPUs, free.CPUs)
	case cpus && gpus && !memory:
		out.Memory = max(out.Memory, free.Memory)
	case cpus && memory && !gpus && need.GPUs > 1:
		out.GPUs = max(out.GPUs, able)
	}
	return out
}

// idleOf returns what is free on a host without tasks.
func idleOf(p *lease.Profile) *lease.Free {
	f := &lease.Free{CPUs: p.CPUs, Memory: p.Memory}
	for _, d := range p.GPUs {
		f.GPUs = append(f.GPUs, lease.FreeGPU{UUID: d.UUID, Memory: d.Memory, Milli: gpu.Whole})
	}
	return f
}
