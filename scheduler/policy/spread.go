package policy

// The policy "spread": the emptiest host.

import "github.com/musterhq/muster/gpu"

// Spread prefers the host with the largest free part: of its GPUs, or of its CPUs for a task without GPUs. So the loss
// of a host ends few tasks, and each has much of its host for itself.
type Spread struct{}

// Choose prefers the candidates with the largest free part.
func (Spread) Choose(chosen []Choice, ask Ask, feasible []Candidate, n int) []Choice {
	gpus := gpu.Count(ask.Need) > 0
	return rated(chosen, ask, feasible, n, "emptiest host", func(i int) float64 {
		r := feasible[i].Room
		if gpus {
			return ratio(r.Milli, gpu.Whole*r.AllGPUs)
		}
		return ratio(r.CPUs, r.AllCPUs)
	})
}
