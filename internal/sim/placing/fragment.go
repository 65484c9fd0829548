package placing

// Fragmentation: the idle part of a machine's GPUs that a request of the target workload could not use, as in the paper
// "Beware of Fragmentation" (USENIX ATC 2023).

import (
	"cmp"
	"slices"

	"github.com/musterhq/muster/internal/contract"
)

// target has the usual requests, and how often each comes.
type target struct {
	classes []class
	sizes   []int // the thousandths of a device that classes ask for, each once
	// What machine.fragment counts for each of sizes: the devices with at least that much left, and what is left of the
	// others.
	fit, less []int
}

// class is one kind of request.
type class struct {
	cpu, gpus int
	size      int // index in target.sizes
	models    []bool
	share     float64 // of the requests
}

// targetPart is the part of the requests that the classes cover, beginning with the most frequent.
const targetPart = 0.95

// targetOf groups the requests of a table by kind.
func targetOf(c *cluster, table []*request) *target {
	counts := map[kind]int{}
	var kinds []kind
	for _, r := range table {
		if counts[r.kind] == 0 {
			kinds = append(kinds, r.kind)
		}
		counts[r.kind]++
	}
	slices.SortFunc(kinds, func(a, b kind) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(b.cpu, a.cpu), cmp.Compare(b.milli, a.milli),
			cmp.Compare(b.gpus, a.gpus), cmp.Compare(b.models, a.models))
	})
	taken := 0
	for i, k := range kinds {
		if float64(taken) >= targetPart*float64(len(table)) {
			kinds = kinds[:i]
			break
		}
		taken += counts[k]
	}
	t := &target{}
	for _, k := range kinds {
		size := slices.Index(t.sizes, k.milli)
		if size < 0 {
			size = len(t.sizes)
			t.sizes = append(t.sizes, k.milli)
		}
		t.classes = append(t.classes, class{
			cpu: k.cpu, gpus: k.gpus, size: size, models: c.accepted(contract.ModelName(k.models)), share: float64(counts[k]) / float64(taken),
		})
	}
	t.fit, t.less = make([]int, len(t.sizes)), make([]int, len(t.sizes))
	return t
}

// fragment returns how many thousandths of a machine's devices the usual requests cannot use, if this much is left. It
// is not safe for concurrent use.
func (t *target) fragment(model, cpu int, left []int) float64 {
	if model < 0 {
		return 0
	}
	idle := 0
	for _, l := range left {
		idle += l
	}
	for i, size := range t.sizes {
		t.fit[i], t.less[i] = 0, 0
		for _, l := range left {
			if l >= size {
				t.fit[i]++
			} else {
				t.less[i] += l
			}
		}
	}
	sum := 0.0
	for i := range t.classes {
		k := &t.classes[i]
		if k.gpus == 0 || cpu < k.cpu || !k.models[model] || t.fit[k.size] < k.gpus {
			sum += k.share * float64(idle)
		} else {
			sum += k.share * float64(t.less[k.size])
		}
	}
	return sum
}

// inPercent converts thousandths of GPUs to a percentage of the cluster's GPUs.
func (c *cluster) inPercent(milli float64) float64 { return 100 * milli / float64(c.milli) }
