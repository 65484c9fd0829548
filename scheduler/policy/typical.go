package policy

// What users usually ask for: a bounded count of requests by kind.

import (
	"cmp"
	"slices"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
)

// Typical counts what users ask for. The scheduler tells it each request once, and it forgets the rare and the old
// ones. It has no clock: the same requests in the same order give the same counts. The zero value knows no request.
type Typical struct {
	kinds []asked
	index map[kind]int // in kinds
	total int
	due   int       // the workload is worked out again at this total
	stale bool      // it is to be worked out again when it is next asked for
	known *workload // nil if no request asks for a GPU
}

const (
	// maxKinds bounds the kinds that are counted. Beyond it the rarest fourth is forgotten.
	maxKinds = 256
	// maxAsked bounds the requests that are counted. Beyond it all counts are halved, so that old requests count less
	// than new ones.
	maxAsked = 1 << 18
	// maxAtOnce bounds the requests that one job counts as, so that one large job does not displace all others.
	maxAtOnce = 1 << 14
)

// Asked counts a request of n tasks.
func (t *Typical) Asked(need job.Resources, n int) {
	n = min(n, maxAtOnce)
	if n <= 0 {
		return
	}
	k := kind{
		cpus: need.CPUs, gpus: gpu.Count(need), milli: gpu.Milli(need),
		model: contract.ModelName(need.GPUModel), gpuMemory: need.GPUMemory,
	}
	i, known := t.index[k]
	if !known {
		i = len(t.kinds)
		t.kinds = append(t.kinds, asked{kind: k})
		if t.index == nil {
			t.index = map[kind]int{}
		}
		t.index[k] = i
	}
	t.kinds[i].count += n
	t.kinds[i].memory += float64(n) * float64(need.Memory)
	t.total += n
	switch {
	case len(t.kinds) > maxKinds:
		t.forgetRare()
	case t.total > maxAsked:
		t.forgetOld()
	}
	if t.total >= t.due {
		t.stale, t.due = true, t.total+max(1, t.total/8)
	}
}

// forgetRare forgets the rarest fourth of the kinds.
func (t *Typical) forgetRare() {
	slices.SortStableFunc(t.kinds, func(a, b asked) int { return cmp.Compare(b.count, a.count) })
	t.keep(t.kinds[:maxKinds*3/4])
}

// forgetOld halves all counts.
func (t *Typical) forgetOld() {
	for i := range t.kinds {
		t.kinds[i].count /= 2
		t.kinds[i].memory /= 2
	}
	t.keep(slices.DeleteFunc(t.kinds, func(a asked) bool { return a.count == 0 }))
}

// keep replaces the kinds.
func (t *Typical) keep(kinds []asked) {
	t.kinds = kinds
	t.total, t.due = 0, 0
	clear(t.index)
	for i := range kinds {
		t.index[kinds[i].kind] = i
		t.total += kinds[i].count
	}
}

// Settle works out now what follows from the counts, if that is due. So it does not depend on who asks next, and when.
func (t *Typical) Settle() { t.workload() }

// workload returns what follows from the counts. It is worked out again each time that they have grown by an eighth.
func (t *Typical) workload() *workload {
	if t == nil {
		return nil
	}
	if t.stale {
		t.known, t.stale = newWorkload(t.kinds), false
	}
	return t.known
}
