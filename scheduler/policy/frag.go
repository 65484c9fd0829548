package policy

// The policy "frag": the least fragmentation.
// See docs/adr, ADR 83.

import (
	"math"
	"slices"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler/fleet"
)

// Frag prefers the host and the device where the usual requests lose the least room. The room of a host is how much of
// its free GPUs they are expected to use. Room that few hosts have counts more: a scarce model, many free devices on one
// host, devices that have room for a large share. Before anything is known of the requests, and if no candidate has room
// for the usual ones, Frag chooses as Simple does.
type Frag struct {
	survey survey
	alike  alike
	tried  []likeDevice
	milli  int // what the need of the choice takes of a device
}

// likeDevice is what makes a difference to the usual requests: the lot of a device, and what is left of it.
type likeDevice struct {
	lot  int16
	left int32
}

// wasteWhole is the waste if a share gets a device that nobody uses: more than any waste that Simple counts. It decides
// between hosts with the same loss.
const wasteWhole = 200

// maxTried bounds the devices of one host that are compared for a share. Devices of one lot with as much left count
// once.
const maxTried = 32

// Choose prefers the candidates with the lowest cost.
func (f *Frag) Choose(chosen []Choice, ask Ask, feasible []Candidate, n int) []Choice {
	w := ask.Typical.workload()
	if w == nil || !f.survey.begin(w, feasible) {
		return Simple{}.Choose(chosen, ask, feasible, n)
	}
	begin := len(chosen)
	f.milli = gpu.Milli(ask.Need)
	f.alike.choose(ask.Need)
	meets := fleet.Meeter{Need: ask.Need}
	chosen = rated(chosen, ask, feasible, n, "least fragmentation", func(i int) float64 {
		cost, begins := f.cost(i, &meets, &feasible[i])
		score := simplest(&meets, &feasible[i]) - 4*localBonus*math.Round(cost/quantum)
		if begins {
			score -= wasteWhole
		}
		return score
	})
	for i := begin; i < len(chosen) && ask.Need.GPUShare > 0; i++ {
		x := &chosen[i]
		if best := f.bestDevice(f.survey.rooms[x.Index], &meets, &feasible[x.Index]); best.device >= 0 && len(x.Devices) == 1 {
			x.Devices[0] = feasible[x.Index].Free.GPUs[best.device].UUID
		}
	}
	return chosen
}

// cost returns how much room the usual requests lose if the need goes to a candidate, in thousandths of GPUs. It also
// says whether the need is a share that gets a device which nobody uses. Call it once for each candidate: whole devices
// that the need takes stay taken.
func (f *Frag) cost(i int, meets *fleet.Meeter, c *Candidate) (cost float64, begins bool) {
	r := f.survey.rooms[i]
	switch {
	case meets.Need.GPUs > 0 && r.oneLot:
		r.whole -= meets.Need.GPUs
		if f.survey.w.largeShare <= gpu.Whole {
			r.large -= meets.Need.GPUs
		}
	case meets.Need.GPUs > 0:
		takeWhole(meets.Need, c, f.survey.left[r.devices:r.endDevices])
	case meets.Need.GPUShare > 0:
		best := f.bestDevice(r, meets, c)
		return best.cost, best.left >= gpu.Whole
	}
	return f.survey.loss(r, &meets.Need, c), false
}

// takeWhole takes the devices that a need for whole devices gets.
func takeWhole(need job.Resources, c *Candidate, left []int32) {
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
		if n > 0 && c.Free.GPUs[i].Milli >= gpu.Whole {
			left[i] = 0
			n--
		}
	}
}

// bestDevice finds the device for a share that costs the least; if several cost the same, within the quantum, the one with
// the least left.
func (f *Frag) bestDevice(r room, meets *fleet.Meeter, c *Candidate) cheapest {
	if r.oneLot {
		return f.alike.best(&f.survey, r, meets, c.Room)
	}
	best := cheapest{device: -1}
	f.tried = f.tried[:0]
	of, left := f.survey.of[r.devices:r.endDevices], f.survey.left[r.devices:r.endDevices]
	need := &meets.Need
	for i := range left {
		g, d := c.Free.GPUs[i], c.Devices.Device(i)
		if g.Milli < f.milli || g.Memory < need.GPUMemory || !meets.Device(d) {
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
		g.Milli -= f.milli
		g.Memory -= gpu.Memory(*need, d.Memory)
		left[i] = fleet.LeftOf(&g, d)
		best.compare(i, f.survey.loss(r, need, c), was)
		left[i] = was
	}
	return best
}
