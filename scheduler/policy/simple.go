package policy

// The policy "simple": this host first, then where the least is wasted.

import (
	"fmt"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/lease"
)

// Simple takes the scheduler's own host if the task fits there, else the host
// that is left with the least: a task without GPUs stays away from GPUs, a
// small device is used before a large one, a nearly full host before an empty.
type Simple struct{}

// localBonus is more than any waste: the sum of the weights below is 111.
const localBonus = 1000

// The weights of what a placement wastes, from worst to least.
const (
	wasteGPUHost   = 100 // a GPU host spent on a task without GPUs
	wasteGPUMemory = 50  // device memory beyond what was asked
	wasteGPUs      = 50  // whole devices left over
	wasteCPUs      = 8
	wasteMemory    = 3
)

// Score is the negative of what would be wasted.
func (Simple) Score(need job.Resources, h Host) float64 {
	score := 0.0
	if h.Local {
		score = localBonus
	}
	return score - waste(need, h)
}

// Why names the local host, or what is left.
func (Simple) Why(need job.Resources, h Host) string {
	if h.Local {
		return "this host"
	}
	if need.GPUs > 0 {
		return fmt.Sprintf("least waste: leaves %d of %d GPUs", wholeGPUs(h.Free)-need.GPUs, len(h.Profile.GPUs))
	}
	return fmt.Sprintf("least waste: leaves %d of %d CPUs", h.Free.CPUs-need.CPUs, h.Profile.CPUs)
}

func waste(need job.Resources, h Host) float64 {
	w := wasteCPUs*ratio(h.Free.CPUs-need.CPUs, h.Profile.CPUs) +
		wasteMemory*ratio(h.Free.Memory-need.Memory, h.Profile.Memory)
	if need.GPUs == 0 && need.GPUShare == 0 {
		if len(h.Profile.GPUs) > 0 {
			w += wasteGPUHost
		}
		return w
	}
	w += wasteGPUs * ratio(wholeGPUs(h.Free)-need.GPUs, job.MaxGPUs)
	return w + wasteGPUMemory*ratio(smallestFit(need, h), largest)
}

// largest is above the memory of any device, so that ratios stay below one.
const largest = job.Size(1 << 40)

// smallestFit is the memory of the smallest device that the need accepts.
func smallestFit(need job.Resources, h Host) job.Size {
	least := largest
	if d := h.Alike; d != nil {
		if d.Memory < least && lease.GPUMeets(*d, need) {
			least = d.Memory
		}
		return least
	}
	for i := range h.Profile.GPUs {
		d := &h.Profile.GPUs[i]
		if d.Memory < least && lease.GPUMeets(*d, need) {
			least = d.Memory
		}
	}
	return least
}

// wholeGPUs counts the devices of which nothing is promised.
func wholeGPUs(f lease.Free) int {
	n := 0
	for _, g := range f.GPUs {
		if g.Milli >= 1000 {
			n++
		}
	}
	return n
}

func ratio[N int | job.Size](part, whole N) float64 {
	if whole <= 0 {
		return 0
	}
	return float64(max(part, 0)) / float64(whole)
}
