package policy

// The policy "frag": the least fragmentation.
// See docs/adr, ADR 83.

import (
	"math"
	"math/bits"
	"slices"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/lease"
)

// Frag prefers the host and the device where the usual requests lose the least room. The room of a host is how much of
// its free GPUs they are expected to use. Room that few hosts have counts more: a scarce model, many free devices on
// one host, devices that have room for a large share. Before anything is known of the requests, and where no host has GPUs, it is Simple.
type Frag struct {
	w     *workload
	rooms []room
	lots  []lot
	tried []likeDevice
	uses  []float64 // what the counted groups can use of each lot, in the order of the lots and of the groups
	left  []int32   // of each device, as the smaller part of its thousandths and its memory
	of    []int16   // for each device, its lot among those of the host; -1: none

	supply, price [maxGroups]float64 // of each group
	total         float64            // the room of all candidates
}

// room is the free part of one candidate, as ranges of Frag's slices.
type room struct {
	lots, endLots       int
	devices, endDevices int
}

// lot is the devices of one kind at one candidate.
type lot struct {
	*served
	milli int // that the usual requests are expected to use
	whole int // devices that are wholly free
	large int // devices that have room for a large share
	uses  int // where those of its groups begin in Frag.uses
}

// likeDevice is what the usual requests can tell of a device: its lot, and what is left of it.
type likeDevice struct {
	lot  int16
	left int32
}

const (
	// quantum is how many thousandths of a GPU make a difference between two hosts. Within it the choice is that of
	// Simple, so that the scheduler's own host wins.
	quantum = 10
	// maxLots bounds the kinds of devices of one host. Devices of further kinds count as nothing.
	maxLots = 16
	// maxTried bounds the devices of one host that are compared for a share, of those that differ in what is left.
	maxTried = 32
)

// Choose prefers the candidates with the lowest cost.
func (f *Frag) Choose(chosen []Choice, ask Ask, feasible []Candidate, n int) []Choice {
	f.w = ask.Typical.workload()
	if f.w == nil || !f.survey(feasible) {
		return Simple{}.Choose(chosen, ask, feasible, n)
	}
	begin := len(chosen)
	chosen = rated(chosen, ask, feasible, n, "least fragmentation", func(i int) float64 {
		return simplest(ask.Need, &feasible[i]) - 4*localBonus*math.Round(f.cost(i, ask.Need, &feasible[i])/quantum)
	})
	for i := begin; i < len(chosen) && ask.Need.GPUShare > 0; i++ {
		x := &chosen[i]
		if _, device := f.bestDevice(f.rooms[x.Index], ask.Need, &feasible[x.Index]); device >= 0 && len(x.Devices) == 1 {
			x.Devices[0] = feasible[x.Index].Free.GPUs[device].UUID
		}
	}
	return chosen
}

// survey takes in the candidates, and the price of the room for each group. It returns false if no candidate has room
// for a usual request.
func (f *Frag) survey(feasible []Candidate) bool {
	f.rooms, f.lots, f.left, f.of = f.rooms[:0], f.lots[:0], f.left[:0], f.of[:0]
	f.uses = f.uses[:0]
	f.supply, f.total = [maxGroups]float64{}, 0
	for i := range feasible {
		c := &feasible[i]
		r := f.enter(c)
		f.expect(r, c.Free.CPUs, c.Free.Memory, func(l *lot, then lot) {
			*l = then
			l.uses = len(f.uses)
			f.total += float64(l.milli)
			for g := l.groups &^ f.w.counted; g != 0; g &= g - 1 {
				f.supply[bits.TrailingZeros32(g)] += float64(l.milli)
			}
			for g := l.groups & f.w.counted; g != 0; g &= g - 1 {
				k := bits.TrailingZeros32(g)
				usable := f.w.groups[k].usable(l, c.Free.CPUs, c.Free.Memory)
				f.supply[k] += usable
				f.uses = append(f.uses, usable)
			}
		})
	}
	for k := range f.w.groups {
		f.price[k] = 0
		if f.supply[k] > 0 {
			pressure := f.w.groups[k].share * f.total / f.supply[k]
			f.price[k] = pressure * pressure
		}
	}
	for i := range f.lots {
		l := &f.lots[i]
		l.price = 1
		for g := l.groups &^ f.w.counted; g != 0; g &= g - 1 {
			l.price += f.price[bits.TrailingZeros32(g)]
		}
	}
	return f.total > 0
}

// usable returns how many thousandths of GPUs a counted group can use of a lot: the mean over its requests.
func (g *group) usable(l *lot, cpus int, memory job.Size) float64 {
	most := l.large
	if g.need.GPUs > 0 {
		most = l.whole / g.need.GPUs
	}
	if most == 0 {
		return 0
	}
	sum := 0.0
	for i := range g.members {
		m := &g.members[i]
		if m.cpus > cpus {
			break // and so do those after it
		}
		n := most
		for n > 0 && (n*m.cpus > cpus || job.Size(n)*m.memory > memory) {
			n--
		}
		sum += m.part * float64(n)
	}
	return sum * g.milli
}

// enter adds the free devices of a candidate.
func (f *Frag) enter(c *Candidate) room {
	r := room{lots: len(f.lots), devices: len(f.left)}
	var last *gpu.Device
	lot := int16(-1)
	for i := range c.Free.GPUs {
		if d := c.Devices.Device(i); d == nil {
			lot, last = -1, nil
		} else if d != last {
			lot, last = f.lotOf(r.lots, f.w.served(d)), d
		}
		f.of = append(f.of, lot)
		f.left = append(f.left, leftOf(&c.Free.GPUs[i], last))
	}
	r.endLots, r.endDevices = len(f.lots), len(f.left)
	f.rooms = append(f.rooms, r)
	return r
}

// lotOf returns the lot of such devices among those that begin at first. It adds one if there is none.
func (f *Frag) lotOf(first int, s *served) int16 {
	for i := first; i < len(f.lots); i++ {
		if f.lots[i].served == s {
			return int16(i - first)
		}
	}
	if len(f.lots)-first >= maxLots {
		return -1
	}
	f.lots = append(f.lots, lot{served: s})
	return int16(len(f.lots) - 1 - first)
}

// leftOf is what is left of a device: the smaller part of its thousandths and its memory.
func leftOf(g *lease.FreeGPU, d *gpu.Device) int32 {
	left := min(max(g.Milli, 0), gpu.Whole)
	if left < gpu.Whole && d != nil && d.Memory > 0 {
		left = min(left, int(max(float64(g.Memory), 0)/float64(d.Memory)*gpu.Whole+0.5)) // hosts round it down
	}
	return int32(left)
}

// expect works out how much of each lot of a host the usual requests are expected to use, with these CPUs and this
// memory. Each device in turn takes its CPUs from what the ones before it leave.
func (f *Frag) expect(r room, cpus int, memory job.Size, do func(l *lot, then lot)) {
	steps := f.w.steps(cpus, memory)
	of, left := f.of[r.devices:r.endDevices], f.left[r.devices:r.endDevices]
	for k := range r.endLots - r.lots {
		l := &f.lots[r.lots+k]
		var sum expect
		then := lot{served: l.served}
		for i, milli := range left {
			if of[i] != int16(k) {
				continue
			}
			if milli >= f.w.largeShare {
				then.large++
			}
			switch {
			case milli >= gpu.Whole:
				then.whole++
			case milli >= perLevel:
				x := l.fill.partly(int(milli), steps)
				sum.milli += x.milli
				steps = max(steps-float64(x.steps), 0)
			}
		}
		x := l.fill.wholly(then.whole, steps)
		steps = max(steps-float64(x.steps), 0)
		then.milli = int(sum.milli + x.milli + 0.5)
		do(l, then)
	}
}

// cost is how much room the usual requests lose if the need goes to a candidate, in thousandths of GPUs. It is asked
// once for each candidate: whole devices that the need takes stay taken.
func (f *Frag) cost(i int, need job.Resources, c *Candidate) float64 {
	r := f.rooms[i]
	switch milli := gpu.Milli(need); {
	case milli == gpu.Whole:
		f.takeWhole(need, c, f.left[r.devices:r.endDevices])
	case milli > 0:
		cost, _ := f.bestDevice(r, need, c)
		return cost
	}
	return f.loss(r, need, c)
}

// takeWhole takes the devices that a need for whole devices gets.
func (f *Frag) takeWhole(need job.Resources, c *Candidate, left []int32) {
	if c.Devices.Alike() == nil {
		devices, _ := c.Devices.Fit(need, c.Free)
		for i := range left {
			if slices.Contains(devices, c.Free.GPUs[i].UUID) {
				left[i] = 0
			}
		}
		return
	}
	n := need.GPUs
	for i := range left {
		if n > 0 && c.Free.GPUs[i].Milli >= gpu.Whole {
			left[i] = 0
			n--
		}
	}
}

// bestDevice finds the device for a share that costs the least; of equal ones the first.
func (f *Frag) bestDevice(r room, need job.Resources, c *Candidate) (cost float64, device int) {
	of, left := f.of[r.devices:r.endDevices], f.left[r.devices:r.endDevices]
	device = -1
	f.tried = f.tried[:0]
	meets := meeter{need: need}
	for i := range left {
		g, d := c.Free.GPUs[i], c.Devices.Device(i)
		if g.Milli < gpu.Milli(need) || g.Memory < need.GPUMemory || !meets.device(d) {
			continue
		}
		if len(f.tried) >= maxTried {
			break
		}
		like := likeDevice{of[i], left[i]}
		if slices.Contains(f.tried, like) {
			continue // it costs the same
		}
		f.tried = append(f.tried, like)
		was := left[i]
		g.Milli -= gpu.Milli(need)
		g.Memory -= gpu.Memory(need, d.Memory)
		left[i] = leftOf(&g, d)
		x := f.loss(r, need, c)
		left[i] = was
		if device < 0 || x < cost {
			cost, device = x, i
		}
	}
	return cost, device
}

// loss is the room that the usual requests lose at a host with these devices left, once the need has its CPUs and its
// memory.
func (f *Frag) loss(r room, need job.Resources, c *Candidate) float64 {
	loss := 0.0
	cpus, memory := c.Free.CPUs-need.CPUs, c.Free.Memory-need.Memory
	f.expect(r, cpus, memory, func(l *lot, then lot) {
		loss += float64(l.milli-then.milli) * l.price
		uses := f.uses[l.uses:]
		for g := l.groups & f.w.counted; g != 0; g &= g - 1 {
			if k := bits.TrailingZeros32(g); uses[0] > 0 {
				loss += f.price[k] * (uses[0] - f.w.groups[k].usable(&then, cpus, memory))
			}
			uses = uses[1:]
		}
	})
	return loss
}
