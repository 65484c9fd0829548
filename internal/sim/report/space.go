package report

// What is free on each machine, and how much of it is of no use.
//
// A free GPU is a fragment for a request if the request cannot have it: because the machine has another model, too few
// CPUs, or too few devices with enough left; or, where the request does fit, because the device has too little left.
// The fragments of a cluster are the mean over the usual requests, weighted by how frequent each is. The usual requests
// are the most frequent ones of the load that together are 95 % of it; memory is ignored. This is the measure of
// "Beware of Fragmentation" (USENIX ATC 2023). Constraints, node lists and preferences of jobs are ignored.

import (
	"cmp"
	"math"
	"slices"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/internal/sim/load"
	"github.com/musterhq/muster/internal/sim/record"
	"github.com/musterhq/muster/job"
)

const (
	usualPart = 0.95
	maxUsual  = 128 // kinds of requests; the rest is left out
)

// request is what a task asks of one machine, as far as it matters for fragments.
type request struct {
	cpus, devices, milli int
	model                string
	memory               job.Size // of each device
}

func requestOf(need job.Resources) request {
	return request{need.CPUs, gpu.Count(need), gpu.Milli(need), need.GPUModel, need.GPUMemory}
}

func (r request) need() job.Resources {
	return job.Resources{GPUs: r.devices, GPUModel: r.model, GPUMemory: r.memory}
}

// usual is a request with its weight.
type usual struct {
	request
	weight float64
	shape  int // index in space.shapes
}

// shape is what many requests have in common.
type shape struct{ devices, milli int }

// usualOf returns the usual requests of the jobs, and their weights, which add up to 1.
func usualOf(jobs []load.Job) []usual {
	counts := map[request]int{}
	total := 0
	for i := range jobs {
		counts[requestOf(jobs[i].Spec.Resources)]++
		total++
	}
	all := make([]usual, 0, len(counts))
	for r, n := range counts {
		all = append(all, usual{request: r, weight: float64(n)})
	}
	slices.SortFunc(all, func(a, b usual) int {
		return cmp.Or(cmp.Compare(b.weight, a.weight), cmp.Compare(b.cpus, a.cpus), cmp.Compare(b.milli, a.milli),
			cmp.Compare(b.devices, a.devices), cmp.Compare(b.model, a.model), cmp.Compare(b.memory, a.memory))
	})
	sum, n := 0.0, 0
	for n < len(all) && n < maxUsual && sum < usualPart*float64(total) {
		sum += all[n].weight
		n++
	}
	for i := range all[:n] {
		all[i].weight /= sum
	}
	return all[:n]
}

// space is the free capacity of all machines.
type space struct {
	machines []load.Machine
	usual    []usual
	fits     [][]bool // by kind of machine and usual request: whether its GPUs are suitable
	kind     []int32  // of each machine
	cpus     []int64  // free, by machine
	left     [][]int32
	shapes   []shape
	lost     []int64 // fragments of the measured machine by shape; -1: not known yet
	part     []int64 // fragments of each machine, in thousandths of thousandths
	total    int64   // of them
}

func newSpace(l *load.Load) *space {
	s := &space{
		machines: l.Machines, usual: usualOf(l.Jobs), kind: make([]int32, len(l.Machines)), cpus: make([]int64, len(l.Machines)),
		left: make([][]int32, len(l.Machines)), part: make([]int64, len(l.Machines)),
	}
	for i := range s.usual {
		u := &s.usual[i]
		x := shape{u.devices, u.milli}
		if u.shape = slices.Index(s.shapes, x); u.shape < 0 {
			u.shape = len(s.shapes)
			s.shapes = append(s.shapes, x)
		}
	}
	s.lost = make([]int64, len(s.shapes))
	type kind struct {
		model  string
		memory job.Size
	}
	kinds := map[kind]int32{}
	for i, m := range l.Machines {
		s.cpus[i] = int64(m.CPUs)
		s.left[i] = slices.Repeat([]int32{gpu.Whole}, m.GPUs)
		key := kind{m.Model, m.DeviceMemory}
		k, known := kinds[key]
		if !known {
			k = int32(len(s.fits))
			kinds[key] = k
			d := gpu.Device{Model: m.Model, Memory: m.DeviceMemory}
			fits := make([]bool, len(s.usual))
			for j, u := range s.usual {
				fits[j] = u.devices > 0 && gpu.Fits(d, u.need())
			}
			s.fits = append(s.fits, fits)
		}
		s.kind[i] = k
		s.measure(i)
	}
	return s
}

// take takes (sign 1) or gives back (sign -1) what a task holds.
func (s *space) take(a record.Alloc, cpus int64, sign int) {
	for _, d := range a.Devices {
		s.left[a.Machine][d] -= int32(sign * a.Milli)
	}
	s.cpus[a.Machine] -= int64(sign) * cpus
	s.measure(a.Machine)
}

// measure computes the fragments of a machine.
func (s *space) measure(i int) {
	left := s.left[i]
	if len(left) == 0 {
		return
	}
	free := int64(0)
	for _, g := range left {
		free += int64(g)
	}
	sum := 0.0
	if free > 0 {
		for i := range s.lost {
			s.lost[i] = -1
		}
		fits := s.fits[s.kind[i]]
		for j := range s.usual {
			u := &s.usual[j]
			lost := free
			if fits[j] && s.cpus[i] >= int64(u.cpus) {
				if s.lost[u.shape] < 0 {
					s.lost[u.shape] = unusable(left, u.devices, int32(u.milli), free)
				}
				lost = s.lost[u.shape]
			}
			sum += u.weight * float64(lost)
		}
	}
	now := int64(math.Round(sum * milli))
	s.total += now - s.part[i]
	s.part[i] = now
}

// unusable returns how much of the free devices a request cannot use.
func unusable(left []int32, devices int, want int32, free int64) int64 {
	enough, rest := 0, int64(0)
	for _, g := range left {
		if g >= want {
			enough++
		} else {
			rest += int64(g)
		}
	}
	if enough < devices {
		return free
	}
	return rest
}
