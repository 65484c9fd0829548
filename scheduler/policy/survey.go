package policy

// The survey of the policy "frag": what the usual requests are expected to use of each candidate, and what they would lose.
// See docs/adr, ADR 83.

import (
	"math/bits"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler/fleet"
)

// survey is what the candidates of one choice have. Its memory is used again for the next choice.
type survey struct {
	w     *workload
	rooms []room
	lots  []lot
	uses  []float64 // what the counted groups can use of each lot, in the order of the lots and of the groups
	left  []int32   // of each device, as the smaller part of its thousandths and its memory
	of    []int16   // for each device, its lot among those of the host; -1: none
	parts []int32   // as left, of the devices that are free in part at hosts with one lot

	supply, price [maxGroups]float64 // of each group
	total         float64            // the room of all candidates

	groupLoss []float64 // what the groups lose of one lot

	device   *gpu.Device // that was looked up last
	servedBy *served     // what such devices serve
}

// maxLots bounds the kinds of devices of one host. Devices of further kinds count as nothing.
const maxLots = 16

// quantum is how many thousandths of a GPU make a difference between two hosts, or two devices. Within it the choice of
// hosts is that of Simple, so that the scheduler's own host wins.
const quantum = 10

// room is the free part of one candidate, as ranges of survey's slices.
type room struct {
	lots, endLots int
	// The range of its devices in survey.left and survey.of; in survey.parts if all are of one lot.
	devices, endDevices int
	oneLot              bool
	whole, large        int // of the one lot
}

// lot is the devices of one kind at one candidate.
type lot struct {
	*served
	milli int // that the usual requests are expected to use
	whole int // devices that are wholly free
	large int // devices that have room for a large share
	uses  int // where those of its groups begin in survey.uses
}

// begin reads the candidates, and works out the price of the room for each group. It returns false if no candidate has
// room for a usual request.
func (s *survey) begin(w *workload, feasible []Candidate) bool {
	s.w, s.rooms, s.lots, s.left, s.of = w, s.rooms[:0], s.lots[:0], s.left[:0], s.of[:0]
	s.uses, s.parts, s.device = s.uses[:0], s.parts[:0], nil
	s.supply, s.total = [maxGroups]float64{}, 0
	for i := range feasible {
		room := feasible[i].Room
		r := s.enter(&feasible[i])
		steps := s.w.steps(room.CPUs, room.Memory)
		for k := r.lots; k < r.endLots; k++ {
			l := &s.lots[k]
			*l, steps = s.expect(r, k, steps)
			l.uses = len(s.uses)
			s.total += float64(l.milli)
			for g := l.groups &^ s.w.counted; g != 0; g &= g - 1 {
				s.supply[bits.TrailingZeros32(g)] += float64(l.milli)
			}
			for g := l.groups & s.w.counted; g != 0; g &= g - 1 {
				k := bits.TrailingZeros32(g)
				usable := s.w.groups[k].usable(l, room.CPUs, room.Memory)
				s.supply[k] += usable
				s.uses = append(s.uses, usable)
			}
		}
	}
	for k := range s.w.groups {
		s.price[k] = s.w.groups[k].price(s.total, s.supply[k])
	}
	for i := range s.lots {
		l := &s.lots[i]
		l.price = 1
		for g := l.groups &^ s.w.counted; g != 0; g &= g - 1 {
			l.price += s.price[bits.TrailingZeros32(g)]
		}
	}
	return s.total > 0
}

// price returns what it costs if the group loses room: the square of the pressure. The pressure is the group's share of
// all requests, divided by its share of all room. Most hosts have room for plain requests, so for these only the part of
// the pressure counts that comes from scarce room.
func (g *group) price(total, supply float64) float64 {
	if supply <= 0 {
		return 0
	}
	pressure := g.share * total / supply
	if g.plain() {
		pressure = plainWeight * max(pressure-g.share, 0)
	}
	return pressure * pressure
}

// plainWeight makes up for the part of the pressure that does not count for plain requests.
const plainWeight = 5

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
			break // the members after it need at least as many
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
func (s *survey) enter(c *Candidate) room {
	var r room
	if c.Room.Listed < 0 {
		r = s.enterEach(c)
	} else {
		r = s.enterAlike(c.Room)
	}
	s.rooms = append(s.rooms, r)
	return r
}

// enterAlike adds the devices of a room that lists them.
func (s *survey) enterAlike(free *fleet.Room) room {
	r := room{lots: len(s.lots), devices: len(s.parts), oneLot: free.Listed > 0, whole: free.Whole}
	if r.oneLot {
		s.lots = append(s.lots, lot{served: s.serves(free.Alike)})
	}
	if s.w.largeShare <= gpu.Whole {
		r.large = r.whole
	}
	for parts := free.Parts; parts != 0; parts &= parts - 1 {
		left := int32(free.GPUs[bits.TrailingZeros8(parts)&(fleet.RoomGPUs-1)].Left)
		s.parts = append(s.parts, left)
		if left >= s.w.largeShare {
			r.large++
		}
	}
	r.endLots, r.endDevices = len(s.lots), len(s.parts)
	return r
}

// enterEach adds the free devices one by one: the room does not list them.
func (s *survey) enterEach(c *Candidate) room {
	r := room{lots: len(s.lots), devices: len(s.left)}
	var last *gpu.Device
	lot := int16(-1)
	for i := range c.Free.GPUs {
		if d := c.Devices.Device(i); d == nil {
			lot, last = -1, nil
		} else if d != last {
			lot, last = s.lotOf(r.lots, s.serves(d)), d
		}
		s.of = append(s.of, lot)
		s.left = append(s.left, fleet.LeftOf(&c.Free.GPUs[i], last))
	}
	r.endLots, r.endDevices = len(s.lots), len(s.left)
	return r
}

// serves returns what such devices serve.
func (s *survey) serves(d *gpu.Device) *served {
	if d != s.device {
		s.device, s.servedBy = d, s.w.served(d)
	}
	return s.servedBy
}

// lotOf returns the lot of such devices among those that begin at first. It adds one if there is none.
func (s *survey) lotOf(first int, of *served) int16 {
	for i := first; i < len(s.lots); i++ {
		if s.lots[i].served == of {
			return int16(i - first) //nolint:gosec // below maxLots
		}
	}
	if len(s.lots)-first >= maxLots {
		return -1
	}
	s.lots = append(s.lots, lot{served: of})
	return int16(len(s.lots) - 1 - first) //nolint:gosec // below maxLots
}

// tally is what the usual requests are expected to use of some devices of a lot, one after the other.
type tally struct {
	milli        float32 // of those that are free in part
	steps        float64 // CPUs that they leave
	whole, large int     // as those of a lot
}

// add adds a device with this much left.
func (t *tally) add(left, largeShare int32, of *fill) {
	if left >= largeShare {
		t.large++
	}
	if left >= gpu.Whole {
		t.whole++
	} else {
		t.addPart(left, of)
	}
}

// addPart adds a device that is free in part. It does not change the numbers of devices.
func (t *tally) addPart(left int32, of *fill) {
	if left >= perLevel {
		x := of.partly(left, t.steps)
		t.milli += x.milli
		t.steps = less(t.steps, x.steps)
	}
}

// addParts adds several of them.
func (t *tally) addParts(parts []int32, of *fill) {
	x := *t // a copy can stay in registers
	for _, left := range parts {
		if left >= perLevel {
			use := of.partly(left, x.steps)
			x.milli += use.milli
			x.steps = less(x.steps, use.steps)
		}
	}
	*t = x
}

// less returns what is left of the steps.
func less(steps float64, by float32) float64 {
	if steps -= float64(by); steps > 0 {
		return steps
	}
	return 0
}

// lot adds the devices that are wholly free, which come last. It also returns the steps that the lot leaves.
func (t *tally) lot(of *served) (then lot, steps float64) {
	x := of.fill.wholly(t.whole, t.steps)
	return lot{served: of, milli: int(t.milli + x.milli + 0.5), whole: t.whole, large: t.large}, less(t.steps, x.steps)
}

// expect works out how much of the k-th lot the usual requests are expected to use, with this many steps of CPUs. Each
// device in turn takes its CPUs from what the ones before it leave. It returns the steps that are left.
func (s *survey) expect(r room, k int, steps float64) (then lot, rest float64) {
	of := s.lots[k].served
	t := tally{steps: steps}
	if r.oneLot {
		t.whole, t.large = r.whole, r.large
		t.addParts(s.parts[r.devices:r.endDevices], of.fill)
		return t.lot(of)
	}
	for i, lot := range s.of[r.devices:r.endDevices] {
		if lot == int16(k-r.lots) { //nolint:gosec // below maxLots
			t.add(s.left[r.devices+i], s.w.largeShare, of.fill)
		}
	}
	return t.lot(of)
}

// loss returns the room that the usual requests lose at a host with these devices left, once the need has its CPUs and
// its memory.
func (s *survey) loss(r room, need *job.Resources, c *Candidate) float64 {
	loss := 0.0
	cpus, memory := c.Room.CPUs-need.CPUs, c.Room.Memory-need.Memory
	steps := s.w.steps(cpus, memory)
	var then lot
	for k := r.lots; k < r.endLots; k++ {
		then, steps = s.expect(r, k, steps)
		s.groupLoss = s.lost(s.groupLoss[:0], &s.lots[k], &then, cpus, memory)
		loss = s.lots[k].loss(&then, s.groupLoss, loss)
	}
	return loss
}

// lost appends what each counted group loses if the lot l becomes like then.
func (s *survey) lost(out []float64, l, then *lot, cpus int, memory job.Size) []float64 {
	uses := s.uses[l.uses:]
	for g := l.groups & s.w.counted; g != 0; g &= g - 1 {
		if k := bits.TrailingZeros32(g); uses[0] > 0 {
			out = append(out, s.price[k]*(uses[0]-s.w.groups[k].usable(then, cpus, memory)))
		}
		uses = uses[1:]
	}
	return out
}

// loss adds to the sum what is lost if the lot becomes like then. lost is what the counted groups lose of it.
func (l *lot) loss(then *lot, lost []float64, sum float64) float64 {
	sum += float64(l.milli-then.milli) * l.price
	for _, x := range lost {
		sum += x
	}
	return sum
}
