package policy

// The workload: what follows from the usual requests, for one kind of device after another.

import (
	"cmp"
	"math"
	"slices"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
)

// workload is the usual requests as the policy "frag" uses them.
type workload struct {
	classes []class
	groups  []group
	counted uint32 // the groups, as bits, whose room is a number of devices; that of the others is the expected fill
	// What a GPU's worth of requests takes of a host, in the mean, divided by grain. The free CPUs and the free memory
	// of a host are counted in these steps. A step of 0 means that no request asks for the resource.
	cpuStep, memoryStep float64
	largeShare          int32 // the thousandths of a large share, in the mean; more than a device has if there are none
	byDevice            map[device]*served
	fills               map[string]*fill // by the classes that they are for
	empty               *fill            // for no class
}

// group is the requests that only some hosts can serve: those that want a certain model, much device memory, several
// devices at once, more than half of a device, or the CPUs that come with a whole one.
type group struct {
	need    job.Resources // what all requests of the group have in common; without GPUs for large shares
	milli   float64       // of all its devices together, of one request, in the mean
	share   float64       // of the GPUs that all requests ask for together
	members []member      // by CPUs, the fewest first
}

// plain reports whether the group holds the requests for one whole device of any kind. Such devices become scarce where
// few hosts have the CPUs for the requests.
func (g *group) plain() bool { return g.need == (job.Resources{GPUs: 1}) }

// member is the requests of a group that take about as many CPUs.
type member struct {
	part   float64 // of the GPUs that the group asks for
	cpus   int     // of one request, in the mean; so is the memory
	memory job.Size
}

// device holds what a request can distinguish about a device.
type device struct {
	class, model string
	memory       job.Size
	part         bool // a MIG instance
}

const (
	// maxClasses bounds the classes, and with them the time that it takes to work out a fill. The classes that ask for
	// the most GPUs are kept.
	maxClasses = 64
	maxGroups  = 32
	maxMembers = 8 // of a group
	// maxFills bounds the fills that are worked out for one workload: each takes some milliseconds. What further kinds
	// of devices could serve counts as nothing.
	maxFills = 64
	// maxDevices bounds the kinds of devices that are remembered. When it is reached, all are forgotten.
	maxDevices = 1024
	// cpuOnlyMost bounds the rate of the requests without GPUs together. A host with GPUs sees few of them, because
	// other hosts are better for them.
	cpuOnlyMost = 0.25
)

// newWorkload returns nil if no request asks for a GPU.
func newWorkload(kinds []asked) *workload {
	byAmount := slices.Clone(kinds)
	slices.SortStableFunc(byAmount, func(a, b asked) int { return cmp.Compare(b.weight(), a.weight()) })
	var cpus, memory, milli, withGPU, without float64
	for _, k := range byAmount[:min(len(byAmount), maxClasses)] {
		if k.gpus == 0 {
			without += float64(k.count)
			continue
		}
		withGPU += float64(k.count)
		milli += float64(k.count * k.gpus * k.milli)
		cpus += float64(k.count) * float64(k.cpus)
		memory += k.memory
	}
	if withGPU == 0 {
		return nil
	}
	w := &workload{byDevice: map[device]*served{}, fills: map[string]*fill{}, empty: &fill{}}
	w.cpuStep, w.memoryStep = cpus*gpu.Whole/milli/grain, memory*gpu.Whole/milli/grain
	rateWithout := 0.0
	if without > 0 {
		rateWithout = min(1/withGPU, cpuOnlyMost/without)
	}
	for _, k := range byAmount[:min(len(byAmount), maxClasses)] {
		c := class{need: k.need(), devices: k.gpus, milli: k.milli, rate: float64(k.count) / withGPU}
		if k.gpus == 0 {
			c.rate = float64(k.count) * rateWithout
		}
		if w.cpuStep > 0 {
			c.steps = float64(k.cpus) / w.cpuStep
			c.up = point{int(math.Ceil(c.steps)), float32(math.Ceil(c.steps) - c.steps)}
		}
		if k.gpus > 0 || c.steps > 0 {
			w.classes = append(w.classes, c)
		}
	}
	w.addGroups(kinds)
	return w
}

// addGroups works out the groups from all kinds.
func (w *workload) addGroups(kinds []asked) {
	index := map[job.Resources]int{}
	total := 0.0
	for i := range kinds {
		k := &kinds[i]
		amount := float64(k.count * k.gpus * k.milli)
		total += amount
		need, some := k.grouped()
		if !some {
			continue
		}
		at, known := index[need]
		if !known {
			at = len(w.groups)
			index[need] = at
			w.groups = append(w.groups, group{need: need})
		}
		g := &w.groups[at]
		g.share += amount
		g.milli += float64(k.count)
		g.members = append(g.members, member{amount, k.cpus, job.Size(k.memory / float64(k.count))})
	}
	w.largeShare = gpu.Whole + 1
	slices.SortStableFunc(w.groups, func(a, b group) int { return cmp.Compare(b.share, a.share) })
	w.groups = w.groups[:min(len(w.groups), maxGroups)]
	for i := range w.groups {
		g := &w.groups[i]
		g.milli = g.share / g.milli
		if g.need.GPUs == 0 {
			w.largeShare = int32(g.milli)
		}
		if g.need.GPUs != 1 || g.plain() {
			w.counted |= 1 << i
		}
		for k := range g.members {
			g.members[k].part /= g.share
		}
		g.members = fewer(g.members)
		g.share /= total
	}
}

// fewer orders the members by their CPUs, and joins neighbours until there are no more than maxMembers.
func fewer(ms []member) []member {
	slices.SortFunc(ms, func(a, b member) int {
		return cmp.Or(cmp.Compare(a.cpus, b.cpus), cmp.Compare(a.memory, b.memory), cmp.Compare(a.part, b.part))
	})
	for len(ms) > maxMembers {
		least := 0
		for i := 1; i < len(ms)-1; i++ {
			if blur(&ms[i], &ms[i+1]) < blur(&ms[least], &ms[least+1]) {
				least = i
			}
		}
		ms[least].join(&ms[least+1])
		ms = slices.Delete(ms, least+1, least+2)
	}
	return ms
}

// blur returns how much precision is lost if two members are joined.
func blur(a, b *member) float64 { return (a.part + b.part) * float64(b.cpus-a.cpus) }

// join adds the other member to this one.
func (m *member) join(b *member) {
	part := m.part + b.part
	m.cpus = int((m.part*float64(m.cpus) + b.part*float64(b.cpus)) / part)
	m.memory = job.Size((m.part*float64(m.memory) + b.part*float64(b.memory)) / part)
	m.part = part
}

// steps counts what is free of the CPUs and the memory of a host, whichever is less.
func (w *workload) steps(cpus int, memory job.Size) float64 {
	s := float64(unlimited)
	if w.cpuStep > 0 {
		s = min(s, float64(cpus)/w.cpuStep)
	}
	if w.memoryStep > 0 {
		s = min(s, float64(memory)/w.memoryStep)
	}
	return max(s, 0)
}

// served is what the usual requests can get of devices of one kind.
type served struct {
	fill   *fill
	groups uint32  // the groups that such a device serves, as bits
	price  float64 // of what it is expected to give, for the choice that is being made
}

// served returns what devices of this kind serve.
func (w *workload) served(d *gpu.Device) *served {
	k := device{d.Class, d.Model, d.Memory, d.Parent != ""}
	s := w.byDevice[k]
	if s != nil {
		return s
	}
	s = &served{fill: w.fill(w.classesOn(d))}
	for i := range w.groups {
		if contract.GPUMeets(*d, w.groups[i].need) {
			s.groups |= 1 << i
		}
	}
	if len(w.byDevice) >= maxDevices {
		clear(w.byDevice)
	}
	w.byDevice[k] = s
	return s
}

// fill returns the expected fill by these classes. The key identifies the classes.
func (w *workload) fill(classes []class, key string) *fill {
	f := w.fills[key]
	if f != nil {
		return f
	}
	if len(w.fills) >= maxFills {
		return w.empty
	}
	f = newFill(classes)
	w.fills[key] = f
	return f
}

// classesOn returns the classes that devices of this kind can serve, with a key. If a share needs a larger part of the
// device's memory than of the device, that larger part counts.
func (w *workload) classesOn(d *gpu.Device) (classes []class, key string) {
	var k []byte
	for i, c := range w.classes {
		if c.devices > 0 && !contract.GPUMeets(*d, c.need) {
			continue
		}
		if c.milli < gpu.Whole && c.need.GPUMemory > 0 && d.Memory > 0 {
			part := float64(c.need.GPUMemory) / float64(d.Memory) * gpu.Whole
			c.milli = min(max(c.milli, int(part)), gpu.Whole)
		}
		classes = append(classes, c)
		k = append(k, byte(i), byte(levelsOf(c.milli)))
	}
	return classes, string(k)
}
