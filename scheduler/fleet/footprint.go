package fleet

// Footprints: four numbers of a request and of a host that are compared in a few instructions. They rule out most
// hosts, so that a search takes a closer look at few.

import (
	"math"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
)

// Footprint is what a request needs, or what a host has. It takes 16 bytes, because searches read those of all hosts.
type Footprint struct {
	Memory job.Size // of the host, not of its devices
	CPUs   int32
	GPUs   int16 // devices that a request takes, whole or in part, or that a host has, whole or in part
	Whole  int16 // 1 for a request for a whole host, and for a host without tasks
}

// nothing is the footprint of a host that takes no task.
var nothing = Footprint{Memory: -1, CPUs: -1, GPUs: -1, Whole: -1}

// FootprintOf returns the footprint of a need.
func FootprintOf(need job.Resources) Footprint {
	return footprintOf(need.CPUs, gpu.Count(need), need.Exclusive, need.Memory)
}

func footprintOfFree(f *contract.Free) Footprint {
	if f.Exclusive {
		return nothing
	}
	n := 0
	for i := range f.GPUs {
		if f.GPUs[i].Milli > 0 {
			n++
		}
	}
	return footprintOf(f.CPUs, n, f.Tasks == 0, f.Memory)
}

func footprintOfProfile(p *contract.Profile) Footprint {
	return footprintOf(p.CPUs, len(p.GPUs), true, p.Memory)
}

// footprintOf returns a footprint of numbers within job.MaxCPUs and contract.MaxGPUs.
func footprintOf(cpus, gpus int, whole bool, memory job.Size) Footprint {
	f := Footprint{Memory: memory, CPUs: int32(cpus), GPUs: int16(gpus)} //nolint:gosec // they are bounded
	if whole {
		f.Whole = 1
	}
	return f
}

// Within says whether a request of this footprint may fit into what is left. If it returns false, the request does not
// fit; if true, it may still not fit.
func (f Footprint) Within(left Footprint) bool {
	return f.CPUs <= left.CPUs && f.GPUs <= left.GPUs && f.Memory <= left.Memory && f.Whole <= left.Whole
}

// Least returns the smaller of each of the four numbers.
func (f Footprint) Least(g Footprint) Footprint {
	return Footprint{Memory: min(f.Memory, g.Memory), CPUs: min(f.CPUs, g.CPUs), GPUs: min(f.GPUs, g.GPUs), Whole: min(f.Whole, g.Whole)}
}

// plus adds what preemptible tasks hold. Many shares of a device may count more than a footprint can: then it counts as
// much as it can.
func (f Footprint) plus(y *contract.Preemptible) Footprint {
	f.Memory += y.Memory
	f.CPUs = int32(min(int(f.CPUs)+y.CPUs, math.MaxInt32)) //nolint:gosec // bounded in this line
	f.GPUs = int16(min(int(f.GPUs)+y.GPUs, math.MaxInt16)) //nolint:gosec // likewise
	return f
}
