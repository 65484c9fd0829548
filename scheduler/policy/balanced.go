package policy

// The policy "balanced": the host with the fewest tasks for what is free there.

import "github.com/musterhq/muster/gpu"

// Balanced prefers the host that would have the fewest tasks for each GPU that is free now. For a task without GPUs it
// compares the free CPUs. So tasks that compete for the same disk or network meet few others.
type Balanced struct{}

// Choose prefers the candidates with the fewest tasks.
func (Balanced) Choose(chosen []Choice, ask Ask, feasible []Candidate, n int) []Choice {
	gpus := gpu.Count(ask.Need) > 0
	return rated(chosen, ask, feasible, n, "fewest tasks for what is free", func(i int) float64 {
		r := feasible[i].Room
		free := float64(r.CPUs)
		if gpus {
			free = float64(r.Milli) / gpu.Whole
		}
		return -float64(r.Tasks+1) / max(free, 1)
	})
}
