package fleet

// Pools: which hosts could ever run a request, worked out once for all requests with the same demands.

import (
	"fmt"
	"slices"

	"github.com/musterhq/muster/job"
)

// Pool is the set of hosts that meet the clauses of a request, except those on the amount of CPUs and memory.
type Pool struct {
	key     string
	clauses []Clause
	has     bitset // the slots of these hosts
	shapes  int    // that use the pool
}

// PoolKey names the pool of a request. Each part is quoted, so that different requests have different keys.
func PoolKey(s job.Spec) string {
	r := s.Resources
	return fmt.Sprintf("%d %g %q %d %q %q %q %t %q",
		r.GPUs, r.GPUShare, r.GPUModel, r.GPUMemory, s.Constraint, s.NodeList, s.Exclude, s.Image != "", s.Mounts)
}

// withoutAmounts leaves out the clauses that a footprint compares.
func withoutAmounts(clauses []Clause) []Clause {
	return slices.DeleteFunc(slices.Clone(clauses), func(c Clause) bool { return c.amount })
}

// withoutCounts leaves out all clauses about how much of a resource there is.
func withoutCounts(clauses []Clause) []Clause {
	return slices.DeleteFunc(slices.Clone(clauses), func(c Clause) bool { return c.amount || c.gpus })
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
