package policy

// The policy "simple": this host first, then the host where the least is wasted.

import (
	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/lease"
)

// Simple prefers the scheduler's own host, and then the host that has the least left after the task: a task without
// GPUs avoids hosts with GPUs, a small device is used before a large one, and a nearly full host before an empty one.
type Simple struct{}

// localBonus is more than any waste: the sum of the weights below is 111.
const localBonus = 1000

// The weights of what a placement wastes.
const (
	wasteGPUHost   = 100 // a host with GPUs for a task without
	wasteGPUMemory = 50  // device memory beyond the request
	wasteGPUs      = 50  // whole devices left over
	wasteCPUs      = 8
	wasteMemory    = 3
)

// Choose prefers the candidates with the highest score.
func (Simple) Choose(chosen []Choice, ask Ask, feasible []Candidate, n int) []Choice {
	begin := len(chosen)
	chosen = rated(chosen, ask, feasible, n, "least waste", func(i int) float64 { return simplest(ask.Need, &feasible[i]) })
	for i := begin; i < len(chosen); i++ {
		if feasible[chosen[i].Index].Local {
			chosen[i].Why = "this host"
		}
	}
	return chosen
}

// simplest is the score of a host. It is less than localBonus above or below zero, or that much higher for the local
// host.
func simplest(need job.Resources, c *Candidate) float64 {
	score := 0.0
	if c.Local {
		score = localBonus
	}
	return score - waste(need, c)
}

func waste(need job.Resources, c *Candidate) float64 {
	w := wasteCPUs*ratio(c.Free.CPUs-need.CPUs, c.Profile.CPUs) +
		wasteMemory*ratio(c.Free.Memory-need.Memory, c.Profile.Memory)
	if need.GPUs == 0 && need.GPUShare == 0 {
		if len(c.Profile.GPUs) > 0 {
			w += wasteGPUHost
		}
		return w
	}
	w += wasteGPUs * ratio(wholeGPUs(c.Free)-need.GPUs, job.MaxGPUs)
	return w + wasteGPUMemory*ratio(smallestFit(need, c), largest)
}

// largest is above the memory of any device, so that ratios stay below one.
const largest = job.Size(1 << 40)

// smallestFit is the memory of the smallest device that meets the need.
func smallestFit(need job.Resources, c *Candidate) job.Size {
	least := largest
	if d := c.Devices.Alike(); d != nil {
		if d.Memory < least && lease.GPUMeets(*d, need) {
			least = d.Memory
		}
		return least
	}
	for i := range c.Profile.GPUs {
		d := &c.Profile.GPUs[i]
		if d.Memory < least && lease.GPUMeets(*d, need) {
			least = d.Memory
		}
	}
	return least
}

// wholeGPUs counts the devices that are wholly free.
func wholeGPUs(f *lease.Free) int {
	n := 0
	for i := range f.GPUs {
		if f.GPUs[i].Milli >= gpu.Whole {
			n++
		}
	}
	return n
}
