package fleet

// Pools: which hosts could ever run a request, found out once for all requests that demand the same.

import (
	"fmt"
	"slices"

	"github.com/musterhq/muster/job"
)

// Pool is the set of the hosts that meet a request's clauses, but for its numbers of CPUs and bytes of memory.
type Pool struct {
	key     string
	clauses []Clause
	has     bitset // slots
	shapes  int    // that look for hosts in it
}

// PoolKey names the clauses of a request, but for its numbers of CPUs and bytes of memory. Each part is quoted, so
// that no two requests run together.
func PoolKey(s job.Spec) string {
	r := s.Resources
	return fmt.Sprintf("%d %g %q %d %q %q %q %t %q",
		r.GPUs, r.GPUShare, r.GPUModel, r.GPUMemory, s.Constraint, s.NodeList, s.Exclude, s.Image != "", s.Mounts)
}

// withoutAmounts leaves out what a footprint compares.
func withoutAmounts(clauses []Clause) []Clause {
	return slices.DeleteFunc(slices.Clone(clauses), func(c Clause) bool { return c.amount })
}

// bitset is a set of small numbers.
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
