package fleet

// Footprints: three numbers of a request and of a host that are compared in a few instructions. They rule out most
// hosts, so that a search takes a closer look at few.

import (
	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/lease"
)

// Footprint is what a request needs, or what a host has.
type Footprint struct {
	CPUs int
	// GPUs counts the devices that a request takes, whole or in part, or that a host has, whole or in part. A request
	// for a whole host counts emptyHost more, and so does a host without tasks.
	GPUs   int
	Memory job.Size // of the host, not of its devices
}

// nothing is the footprint of a host that takes no task.
var nothing = Footprint{CPUs: -1, GPUs: -1, Memory: -1}

// emptyHost is more than the devices of a host.
const emptyHost = 1 << 20

// FootprintOf returns the footprint of a need.
func FootprintOf(need job.Resources) Footprint {
	n := gpu.Count(need)
	if need.Exclusive {
		n += emptyHost
	}
	return Footprint{CPUs: need.CPUs, GPUs: n, Memory: need.Memory}
}

func footprintOfFree(f *lease.Free) Footprint {
	n := 0
	switch {
	case f.Exclusive:
		return nothing
	case f.Tasks == 0:
		n = emptyHost
	}
	for i := range f.GPUs {
		if f.GPUs[i].Milli > 0 {
			n++
		}
	}
	return Footprint{CPUs: f.CPUs, GPUs: n, Memory: f.Memory}
}

func footprintOfProfile(p *lease.Profile) Footprint {
	return Footprint{CPUs: p.CPUs, GPUs: emptyHost + len(p.GPUs), Memory: p.Memory}
}

// Within says whether a request of this footprint may fit into what is left. If it returns false, the request does not
// fit; if true, it may still not fit.
func (f Footprint) Within(left Footprint) bool {
	return f.CPUs <= left.CPUs && f.GPUs <= left.GPUs && f.Memory <= left.Memory
}

// Least returns the smaller of each of the three numbers.
func (f Footprint) Least(g Footprint) Footprint {
	return Footprint{CPUs: min(f.CPUs, g.CPUs), GPUs: min(f.GPUs, g.GPUs), Memory: min(f.Memory, g.Memory)}
}
