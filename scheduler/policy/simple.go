package policy

// The policy "simple": this host first, then the host where the least is wasted.

import (
	"fmt"

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

// Choose prefers the candidates with the highest score. At each it takes the devices that fleet.Devices.Fit chooses.
func (Simple) Choose(chosen []Choice, need job.Resources, feasible []Candidate, n int) []Choice {
	begin := len(chosen)
	chosen = best(chosen, feasible, n, func(c *Candidate) float64 { return score(need, c) })
	for i := begin; i < len(chosen); i++ {
		c := &feasible[chosen[i].Index]
		chosen[i].Devices, _ = c.Devices.Fit(need, c.Free)
		chosen[i].Why = why(need, c)
	}
	return chosen
}

// score is the negative of what would be wasted.
func score(need job.Resources, c *Candidate) float64 {
	score := 0.0
	if c.Local {
		score = localBonus
	}
	return score - waste(need, c)
}

// why names the local host, or what is left.
func why(need job.Resources, c *Candidate) string {
	switch {
	case c.Local:
		return "this host"
	case need.GPUs > 0:
		return fmt.Sprintf("least waste: leaves %d of %d GPUs", wholeGPUs(c.Free)-need.GPUs, len(c.Profile.GPUs))
	}
	return fmt.Sprintf("least waste: leaves %d of %d CPUs", c.Free.CPUs-need.CPUs, c.Profile.CPUs)
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
		if f.GPUs[i].Milli >= 1000 {
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
