package fleet

// Pools: which hosts could ever run a request, worked out once for all requests with the same demands.

import (
	"fmt"
	"slices"
	"strings"

	"github.com/musterhq/muster/job"
)

// Pool is the set of hosts that meet the clauses of a request, except the clauses on the amount of CPUs and memory. It
// also knows how well each host meets the preferences of the request.
type Pool struct {
	key     string
	clauses []Clause
	has     bitset // the slots of these hosts
	prefers []job.Preference
	met     []bitset // for each of prefers, the slots of the hosts that meet it
	most    int      // what all preferences weigh together
	shapes  int      // how many shapes use the pool
}

// Prefers returns the preferences of the requests.
func (p *Pool) Prefers() []job.Preference { return p.prefers }

// MostWeight returns what all preferences weigh together.
func (p *Pool) MostWeight() int { return p.most }

// compare notes what the host of the slot meets.
func (p *Pool) compare(slot int, h *Host) {
	p.has.set(slot, Meets(p.clauses, h))
	for i := range p.prefers {
		p.met[i].set(slot, p.prefers[i].Met(h.told.of(p.prefers[i].Trusted)))
	}
}

// weight returns what the preferences that the host of the slot meets weigh together.
func (p *Pool) weight(slot int) int {
	sum := 0
	for i := range p.met {
		if p.met[i].at(slot) {
			sum += p.prefers[i].Weight
		}
	}
	return sum
}

// Weight returns what the preferences that the host meets weigh together.
func Weight(prefers []job.Preference, h *Host) int {
	sum := 0
	for _, p := range prefers {
		if p.Met(h.told.of(p.Trusted)) {
			sum += p.Weight
		}
	}
	return sum
}

// Preferred names the preferences that the host meets: "prefers rack=r1, nvlink". It is empty if there are none.
func Preferred(prefers []job.Preference, h *Host) string {
	var met []string
	for _, p := range prefers {
		if p.Met(h.told.of(p.Trusted)) {
			met = append(met, p.Text)
		}
	}
	if len(met) == 0 {
		return ""
	}
	return "prefers " + strings.Join(met, ", ")
}

// PoolKey names the pool of a request. Each part is quoted, so that different requests have different keys.
func PoolKey(s job.Spec) string {
	r := s.Resources
	gang := ""
	if s.Nodes > 1 {
		gang = " gang"
	}
	if need, field := s.NeededFormat(); field != "" {
		gang += fmt.Sprintf(" %d %s", need, field)
	}
	return fmt.Sprintf("%d %g %q %d %q %q %q %t %t %q %q %t",
		r.GPUs, r.GPUShare, r.GPUModel, r.GPUMemory, s.Constraint, s.NodeList, s.Exclude, s.Image != "", s.TakesInput(), s.Mounts, s.Prefer, s.TrustedLabels) + gang
}

// withoutAmounts leaves out the clauses that a footprint compares.
func withoutAmounts(clauses []Clause) []Clause {
	return slices.DeleteFunc(slices.Clone(clauses), func(c Clause) bool { return c.amount })
}

// withoutCounts leaves out all clauses about how much of a resource there is.
func withoutCounts(clauses []Clause) []Clause {
	return slices.DeleteFunc(slices.Clone(clauses), func(c Clause) bool { return c.amount || c.gpus || c.held })
}

// bitset is a set of small non-negative numbers.
type bitset []uint64

func (b bitset) at(i int) bool { return i>>6 < len(b) && b[i>>6]&(1<<(i&63)) != 0 }

func (b *bitset) set(i int, to bool) {
	if need := i>>6 + 1 - len(*b); need > 0 {
		if !to {
			return
		}
		*b = append(*b, slices.Repeat([]uint64{0}, need)...)
	}
	if to {
		(*b)[i>>6] |= 1 << (i & 63)
	} else {
		(*b)[i>>6] &^= 1 << (i & 63)
	}
}
