package policy

// The device for a share at a host whose devices are alike, for the policy "frag". Most hosts are like this, and a
// choice compares many devices. So what the devices have in common is worked out once.

import (
	"math"
	"math/bits"
	"slices"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler/fleet"
)

// cheapest is the device that costs the least for a share, of those that were compared.
type cheapest struct {
	cost   float64 // the least
	device int     // -1: none was compared
	steps  float64 // the cost of the device in steps of the quantum
	left   int32   // of the device, before it has the share
}

// compare compares a device with those before it.
func (x *cheapest) compare(device int, cost float64, left int32) {
	steps := math.Round(cost / quantum)
	if x.device < 0 || cost < x.cost {
		x.cost = cost
	}
	if x.device < 0 || steps < x.steps || steps == x.steps && left < x.left {
		x.device, x.steps, x.left = device, steps, left
	}
}

// alike holds the devices of one host while a share is tried on one after the other.
type alike struct {
	lot          *lot
	cpus         int // that the share leaves of the host; so is the memory
	memory       job.Size
	parts        []int32 // what is left of those that are free in part
	begun        []tally // what is expected of the parts before each, and of all
	whole, large int     // as of a tally
	// What the groups lose of the lot if it then has lostWhole and lostLarge devices; see lot.
	known                bool
	lostWhole, lostLarge int
	lost                 []float64

	milli  int         // what the need of the choice takes of a device
	device *gpu.Device // that was asked for last; nil: none
	takes  job.Size    // what the need takes of the memory of such a device
	tried  []int32     // what was left of the devices that were compared
}

// begin takes in a host.
func (a *alike) begin(s *survey, r room, need *job.Resources, free *fleet.Room) {
	a.lot, a.parts, a.known = &s.lots[r.lots], s.parts[r.devices:r.endDevices], false
	a.whole, a.large = r.whole, r.large
	a.cpus, a.memory = free.CPUs-need.CPUs, free.Memory-need.Memory
	t := tally{steps: s.w.steps(a.cpus, a.memory)}
	a.begun = append(a.begun[:0], t)
	for _, left := range a.parts {
		t.addPart(left, a.lot.fill)
		a.begun = append(a.begun, t)
	}
}

// loss returns what the usual requests lose if the share leaves this much of a device. The device is the k-th of the
// parts, or one that is wholly free and comes before it.
func (a *alike) loss(s *survey, k int, whole bool, left int32) float64 {
	t := a.begun[k]
	t.whole, t.large = a.whole, a.large
	was, rest := int32(gpu.Whole), a.parts[k:]
	if whole {
		t.whole--
	} else {
		was, rest = rest[0], rest[1:]
	}
	if was >= s.w.largeShare {
		t.large--
	}
	if left >= s.w.largeShare {
		t.large++
	}
	t.addPart(left, a.lot.fill)
	t.addParts(rest, a.lot.fill)
	then, _ := t.lot(a.lot.served)
	if !a.known || a.lostWhole != then.whole || a.lostLarge != then.large {
		a.known, a.lostWhole, a.lostLarge = true, then.whole, then.large
		a.lost = s.lost(a.lost[:0], a.lot, &then, a.cpus, a.memory)
	}
	return a.lot.loss(&then, a.lost, 0)
}

// choose prepares a choice for a need.
func (a *alike) choose(need job.Resources) { a.milli, a.device = gpu.Milli(need), nil }

// best does what Frag.bestDevice does, for a host whose devices are all of one lot.
func (a *alike) best(s *survey, r room, meets *fleet.Meeter, free *fleet.Room) cheapest {
	best := cheapest{device: -1}
	if !meets.Device(free.Alike) {
		return best
	}
	if free.Alike != a.device {
		a.device, a.takes = free.Alike, gpu.Memory(meets.Need, free.Alike.Memory)
	}
	a.begin(s, r, &meets.Need, free)
	a.tried = a.tried[:0]
	k := 0 // how many of the parts come before the device
	for some := free.Parts | free.Wholes; some != 0; some &= some - 1 {
		i := bits.TrailingZeros8(some) & (fleet.RoomGPUs - 1)
		g := &free.GPUs[i]
		whole := g.Milli >= gpu.Whole
		if int(g.Milli) >= a.milli && g.Memory >= meets.Need.GPUMemory && !slices.Contains(a.tried, int32(g.Left)) {
			a.tried = append(a.tried, int32(g.Left)) // one with as much left costs the same
			left := fleet.LeftOf(&contract.FreeGPU{Milli: int(g.Milli) - a.milli, Memory: g.Memory - a.takes}, free.Alike)
			best.compare(i, a.loss(s, k, whole, left), int32(g.Left))
			if whole {
				some &^= free.Wholes &^ (1 << i)
			}
		}
		if !whole {
			k++
		}
	}
	return best
}
