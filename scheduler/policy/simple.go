package policy

// The policy "simple": this host first, then the host where the least is wasted.

import (
	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler/fleet"
)

// Simple prefers the scheduler's own host, and then the host that has the least left after the task: a task without
// GPUs avoids hosts with GPUs, a small device is used before a large one, and a nearly full host before an empty one.
type Simple struct{}

// localBonus is more than any waste: the weights below that count for one task add up to 111.
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
	meets := fleet.Meeter{Need: ask.Need}
	chosen = rated(chosen, ask, feasible, n, "least waste", func(i int) float64 { return simplest(&meets, &feasible[i]) })
	for i := begin; i < len(chosen); i++ {
		if feasible[chosen[i].Index].Local {
			chosen[i].Why = "this host"
		}
	}
	return chosen
}

// simplest returns the score of a host: its waste, negative, plus localBonus for the local host.
func simplest(meets *fleet.Meeter, c *Candidate) float64 {
	score := 0.0
	if c.Local {
		score = localBonus
	}
	return score - waste(meets, c)
}

func waste(meets *fleet.Meeter, c *Candidate) float64 {
	r, need := c.Room, &meets.Need
	w := wasteCPUs*ratio(r.CPUs-need.CPUs, r.AllCPUs) +
		wasteMemory*ratio(r.Memory-need.Memory, r.AllMemory)
	if need.GPUs == 0 && need.GPUShare == 0 {
		if r.AllGPUs > 0 {
			w += wasteGPUHost
		}
		return w
	}
	w += wasteGPUs * ratio(r.Whole-need.GPUs, job.MaxGPUs)
	return w + wasteGPUMemory*ratio(smallestFit(meets, c), largest)
}

// largest is above the memory of any device, so that ratios stay below one.
const largest = job.Size(1 << 40)

// smallestFit returns the memory of the smallest device that meets the need.
func smallestFit(meets *fleet.Meeter, c *Candidate) job.Size {
	least := largest
	if d := c.Room.Alike; d != nil {
		if d.Memory < least && meets.Device(d) {
			least = d.Memory
		}
		return least
	}
	for i := range c.Profile.GPUs {
		d := &c.Profile.GPUs[i]
		if d.Memory < least && contract.GPUMeets(*d, meets.Need) {
			least = d.Memory
		}
	}
	return least
}
