package policy

// The policy "pack": the fullest host.

import "github.com/musterhq/muster/gpu"

// Pack prefers the host where the least is left: CPUs and GPUs count alike, each in proportion to the largest host. So
// other hosts stay empty, for large tasks or to be switched off.
type Pack struct{}

// Choose prefers the candidates where the least is left.
func (Pack) Choose(chosen []Choice, ask Ask, feasible []Candidate, n int) []Choice {
	cpus, milli := 0, 0
	for i := range feasible {
		cpus = max(cpus, feasible[i].Room.AllCPUs)
		milli = max(milli, gpu.Whole*feasible[i].Room.AllGPUs)
	}
	taken := milliOf(ask.Need)
	return rated(chosen, ask, feasible, n, "fullest host", func(i int) float64 {
		r := feasible[i].Room
		return -ratio(r.CPUs-ask.Need.CPUs, cpus) - ratio(r.Milli-taken, milli)
	})
}
