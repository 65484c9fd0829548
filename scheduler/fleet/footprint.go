package fleet

// Footprints: the part of a request and of a host that can be compared in a few instructions. Most hosts are ruled
// out by it, without a closer look.

import (
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/lease"
)

// Footprint counts what a request needs, or what a host has.
type Footprint struct {
	CPUs   int
	GPUs   int      // devices: of a request those that it touches, of a host those of which something is left
	Memory job.Size // of the host, not of its devices
}

// nothing is the footprint of a host that takes no task at all.
var nothing = Footprint{CPUs: -1, GPUs: -1, Memory: -1}

// FootprintOf counts what the need takes.
func FootprintOf(need job.Resources) Footprint {
	return Footprint{CPUs: need.CPUs, GPUs: gpusOf(need), Memory: need.Memory}
}

func footprintOfFree(f *lease.Free) Footprint {
	n := 0
	for i := range f.GPUs {
		if f.GPUs[i].Milli > 0 {
			n++
		}
	}
	return Footprint{CPUs: f.CPUs, GPUs: n, Memory: f.Memory}
}

func footprintOfProfile(p *lease.Profile) Footprint {
	return Footprint{CPUs: p.CPUs, GPUs: len(p.GPUs), Memory: p.Memory}
}

// Within says whether a request of this footprint may fit what is left. If not, it does not fit.
func (f Footprint) Within(left Footprint) bool {
	return f.CPUs <= left.CPUs && f.GPUs <= left.GPUs && f.Memory <= left.Memory
}

// Least is the smaller of the two in each respect.
func (f Footprint) Least(g Footprint) Footprint {
	return Footprint{CPUs: min(f.CPUs, g.CPUs), GPUs: min(f.GPUs, g.GPUs), Memory: min(f.Memory, g.Memory)}
}
