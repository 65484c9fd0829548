package scheduler

// Footprints: what of a request and of a host can be compared in a few
// instructions, so that most pairs of them cost no closer look.

import (
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/lease"
)

// footprint counts what a request needs, or what a host has.
type footprint struct {
	cpus   int
	gpus   int // devices that are touched, or of which something is left
	memory job.Size
}

// nothing is the footprint of a host that takes no task at all.
var nothing = footprint{cpus: -1, gpus: -1, memory: -1}

func footprintOf(need job.Resources) footprint {
	return footprint{cpus: need.CPUs, gpus: gpusOf(need), memory: need.Memory}
}

func footprintOfFree(f *lease.Free) footprint {
	n := 0
	for i := range f.GPUs {
		if f.GPUs[i].Milli > 0 {
			n++
		}
	}
	return footprint{cpus: f.CPUs, gpus: n, memory: f.Memory}
}

func footprintOfProfile(p *lease.Profile) footprint {
	return footprint{cpus: p.CPUs, gpus: len(p.GPUs), memory: p.Memory}
}

// within says whether a request of this footprint may fit what is left.
func (f footprint) within(left footprint) bool {
	return f.cpus <= left.cpus && f.gpus <= left.gpus && f.memory <= left.memory
}

// least is the smaller of the two in each respect.
func (f footprint) least(g footprint) footprint {
	return footprint{cpus: min(f.cpus, g.cpus), gpus: min(f.gpus, g.gpus), memory: min(f.memory, g.memory)}
}
