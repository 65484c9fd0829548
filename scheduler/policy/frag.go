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
	"github.com/musterhq/muster/scheduler/fleet"
)

// Frag prefers the host and the device where the usual requests lose the least room. The room of a host is how much of
// its free GPUs they are expected to use. Room that few hosts have counts more: a scarce model, many free devices on
// one host, devices that have room for a large share. Before anything is known of the requests, and where no host has GPUs, it is Simple.
type Frag struct {
	w     *workload
	rooms []room
	lots  []lot
	tried []likeDevice
	begun []tally
	uses  []float64 // what the counted groups can use of each lot, in the order of the lots and of the groups
	left  []int32   // of each device, as the smaller part of its thousandths and its memory
	of    []int16   // for each device, its lot among those of the host; -1: none

	supply, price [maxGroups]float64 // of each group
	total         float64            // the room of all candidates

	device   *gpu.Device // that was looked up last in a choice
	servedBy *served     // what such devices serve
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
	meets := fleet.Meeter{Need: ask.Need}
	chosen = rated(chosen, ask, feasible, n, "least fragmentation", func(i int) float64 {
		return simplest(&meets, &feasible[i]) - 4*localBonus*math.Round(f.cost(i, &meets, &feasible[i])/quantum)
	})
	for i := begin; i < len(chosen) && ask.Need.GPUShare > 0; i++ {
		x := &chosen[i]
		if _, device := f.bestDevice(f.rooms[x.Index], &meets, &feasible[x.Index]); device >= 0 && len(x.Devices) == 1 {
			x.Devices[0] = feasible[x.Index].Free.GPUs[device].UUID
		}
	}
	return chosen
}

// survey takes in the candidates, and the price of the room for each group. It returns false if no candidate has room
// for a usual request.
func (f *Frag) survey(feasible []Candidate) bool {
	f.rooms, f.lots, f.left, f.of = f.rooms[:0], f.lots[:0], f.left[:0], f.of[:0]
	f.uses, f.device = f.uses[:0], nil
	f.supply, f.total = [maxGroups]float64{}, 0
	for i := range feasible {
		room := feasible[i].Room
		r := f.enter(&feasible[i])
		steps := f.w.steps(room.CPUs, room.Memory)
		for k := r.lots; k < r.endLots; k++ {
			l := &f.lots[k]
			*l, steps = f.expect(r, k, steps)
			l.uses = len(f.uses)
			f.total += float64(l.milli)
			for g := l.groups &^ f.w.counted; g != 0; g &= g - 1 {
				f.supply[bits.TrailingZeros32(g)] += float64(l.milli)
			}
			for g := l.groups & f.w.counted; g != 0; g &= g - 1 {
				k := bits.TrailingZeros32(g)
				usable := f.w.groups[k].usable(l, room.CPUs, room.Memory)
				f.supply[k] += usable
				f.uses = append(f.uses, usable)
			}
		}
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
	switch {
	case c.Room.Listed > 0:
		lot := f.lotOf(r.lots, f.serves(c.Room.Alike))
		for i := range c.Room.GPUs[:c.Room.Listed] {
			f.of = append(f.of, lot)
			f.left = append(f.left, int32(c.Room.GPUs[i].Left))
		}
	case c.Room.Listed < 0:
		f.enterEach(r, c)
	}
	r.endLots, r.endDevices = len(f.lots), len(f.left)
	f.rooms = append(f.rooms, r)
	return r
}

// enterEach adds the free devices one by one: the room does not list them.
func (f *Frag) enterEach(r room, c *Candidate) {
	var last *gpu.Device
	lot := int16(-1)
	for i := range c.Free.GPUs {
		if d := c.Devices.Device(i); d == nil {
			lot, last = -1, nil
		} else if d != last {
			lot, last = f.lotOf(r.lots, f.serves(d)), d
		}
		f.of = append(f.of, lot)
		f.left = append(f.left, fleet.LeftOf(&c.Free.GPUs[i], last))
	}
}

// serves returns what such devices serve.
func (f *Frag) serves(d *gpu.Device) *served {
	if d != f.device {
		f.device, f.servedBy = d, f.w.served(d)
	}
	return f.servedBy
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

// tally is what the usual requests are expected to use of some devices of a lot, one after the other.
type tally struct {
	milli        float32 // of those that are free in part
	steps        float64 // CPUs that they leave
	whole, large int     // as those of a lot
}

// add adds a device with so much left.
func (t *tally) add(left, largeShare int32, of *fill) {
	if left >= largeShare {
		t.large++
	}
	switch {
	case left >= gpu.Whole:
		t.whole++
	case left >= perLevel:
		x := of.partly(int(left), t.steps)
		t.milli += x.milli
		t.steps = max(t.steps-float64(x.steps), 0)
	}
}

// lot adds the devices that are wholly free, which come last. It returns the steps that the lot leaves too.
func (t *tally) lot(s *served) (then lot, steps float64) {
	x := s.fill.wholly(t.whole, t.steps)
	return lot{served: s, milli: int(t.milli + x.milli + 0.5), whole: t.whole, large: t.large}, max(t.steps-float64(x.steps), 0)
}

// expect works out how much of the k-th lot the usual requests are expected to use, with CPUs of so many steps. Each
// device in turn takes its CPUs from what the ones before it leave. It returns the steps that are left.
func (f *Frag) expect(r room, k int, steps float64) (then lot, rest float64) {
	s := f.lots[k].served
	t := tally{steps: steps}
	of := f.of[r.devices:r.endDevices]
	for i, left := range f.left[r.devices:r.endDevices] {
		if of[i] == int16(k-r.lots) {
			t.add(left, f.w.largeShare, s.fill)
		}
	}
	return t.lot(s)
}

// cost is how much room the usual requests lose if the need goes to a candidate, in thousandths of GPUs. It is asked
// once for each candidate: whole devices that the need takes stay taken.
func (f *Frag) cost(i int, meets *fleet.Meeter, c *Candidate) float64 {
	r := f.rooms[i]
	switch {
	case meets.Need.GPUs > 0:
		f.takeWhole(meets.Need, c, f.left[r.devices:r.endDevices])
	case meets.Need.GPUShare > 0:
		cost, _ := f.bestDevice(r, meets, c)
		return cost
	}
	return f.loss(r, &meets.Need, c)
}

// takeWhole takes the devices that a need for whole devices gets.
func (f *Frag) takeWhole(need job.Resources, c *Candidate, left []int32) {
	if c.Room.Alike == nil {
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
		if n > 0 && milliAt(c, i) >= gpu.Whole {
			left[i] = 0
			n--
		}
	}
}

// milliAt returns the free thousandths of a free device.
func milliAt(c *Candidate, i int) int {
	if c.Room.Listed < 0 {
		return c.Free.GPUs[i].Milli
	}
	return int(c.Room.GPUs[i].Milli)
}

// bestDevice finds the device for a share that costs the least; of equal ones the first.
func (f *Frag) bestDevice(r room, meets *fleet.Meeter, c *Candidate) (cost float64, device int) {
	of, left := f.of[r.devices:r.endDevices], f.left[r.devices:r.endDevices]
	need, milli := &meets.Need, gpu.Milli(meets.Need)
	device = -1
	f.tried = f.tried[:0]
	f.begin(r, need, c)
	for i := range left {
		g, d := freeAt(c, i)
		if g.Milli < milli || g.Memory < need.GPUMemory || !meets.Device(d) {
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
		g.Milli -= milli
		g.Memory -= gpu.Memory(*need, d.Memory)
		left[i] = fleet.LeftOf(&g, d)
		x := f.lossFrom(i, r, need, c)
		left[i] = was
		if device < 0 || x < cost {
			cost, device = x, i
		}
	}
	return cost, device
}

// freeAt returns a free device without its UUID, and the device itself.
func freeAt(c *Candidate, i int) (lease.FreeGPU, *gpu.Device) {
	if c.Room.Listed < 0 {
		return c.Free.GPUs[i], c.Devices.Device(i)
	}
	g := &c.Room.GPUs[i]
	return lease.FreeGPU{Memory: g.Memory, Milli: int(g.Milli)}, c.Room.Alike
}

// loss is the room that the usual requests lose at a host with these devices left, once the need has its CPUs and its
// memory.
func (f *Frag) loss(r room, need *job.Resources, c *Candidate) float64 {
	loss := 0.0
	cpus, memory := c.Room.CPUs-need.CPUs, c.Room.Memory-need.Memory
	steps := f.w.steps(cpus, memory)
	var then lot
	for k := r.lots; k < r.endLots; k++ {
		then, steps = f.expect(r, k, steps)
		loss = f.lossOf(&f.lots[k], &then, cpus, memory, loss)
	}
	return loss
}

// lossOf adds to the loss what a lot loses that is like this one then.
func (f *Frag) lossOf(l, then *lot, cpus int, memory job.Size, loss float64) float64 {
	loss += float64(l.milli-then.milli) * l.price
	uses := f.uses[l.uses:]
	for g := l.groups & f.w.counted; g != 0; g &= g - 1 {
		if k := bits.TrailingZeros32(g); uses[0] > 0 {
			loss += f.price[k] * (uses[0] - f.w.groups[k].usable(then, cpus, memory))
		}
		uses = uses[1:]
	}
	return loss
}

// begin prepares lossFrom: what is expected of the devices before each, if all of the host are of one lot.
func (f *Frag) begin(r room, need *job.Resources, c *Candidate) {
	f.begun = f.begun[:0]
	if c.Room.Listed <= 0 || r.endLots != r.lots+1 {
		return
	}
	t := tally{steps: f.w.steps(c.Room.CPUs-need.CPUs, c.Room.Memory-need.Memory)}
	for _, left := range f.left[r.devices:r.endDevices] {
		f.begun = append(f.begun, t)
		t.add(left, f.w.largeShare, f.lots[r.lots].fill)
	}
}

// lossFrom is loss, where only the i-th device has changed since begin.
func (f *Frag) lossFrom(i int, r room, need *job.Resources, c *Candidate) float64 {
	if len(f.begun) == 0 {
		return f.loss(r, need, c)
	}
	t, l := f.begun[i], &f.lots[r.lots]
	for _, left := range f.left[r.devices+i : r.endDevices] {
		t.add(left, f.w.largeShare, l.fill)
	}
	then, _ := t.lot(l.served)
	return f.lossOf(l, &then, c.Room.CPUs-need.CPUs, c.Room.Memory-need.Memory, 0)
}
