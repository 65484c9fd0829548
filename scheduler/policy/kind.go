package policy

// The kinds of requests, and how often each was asked for.

import (
	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/job"
)

// kind is a kind of request. Requests that differ in host memory alone are of one kind.
type kind struct {
	cpus, gpus, milli int // milli thousandths of each of the devices
	model             string
	gpuMemory         job.Size
}

// asked is how often a kind was asked for.
type asked struct {
	kind
	count  int
	memory float64 // the sum over the requests
}

// leastAmount is the least that a request counts when the classes are chosen, in thousandths of a GPU.
const leastAmount = gpu.Whole / 2

// weight orders the kinds by the GPUs that are asked for.
func (k *asked) weight() int { return k.count * max(k.gpus*k.milli, leastAmount) }

// grouped returns what the kind has in common with the others of its group. It returns false if the kind is in no group.
func (k *asked) grouped() (need job.Resources, some bool) {
	switch {
	case k.gpus == 0:
		return need, false
	case k.gpus > 1 || k.model != "" || k.gpuMemory > 0:
		return job.Resources{GPUs: k.gpus, GPUModel: k.model, GPUMemory: k.gpuMemory}, true
	}
	if k.milli == gpu.Whole {
		return job.Resources{GPUs: 1}, true // see group.plain
	}
	return need, k.milli > gpu.Whole/2
}

// need returns a request of the kind, without host memory.
func (k *asked) need() job.Resources {
	r := job.Resources{CPUs: k.cpus, GPUs: k.gpus, GPUModel: k.model, GPUMemory: k.gpuMemory}
	if k.gpus == 1 && k.milli < gpu.Whole {
		r.GPUs, r.GPUShare = 0, float64(k.milli)/gpu.Whole
	}
	return r
}
