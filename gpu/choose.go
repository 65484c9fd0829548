package gpu

// The choice of free devices for a need.

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/musterhq/muster/job"
)

const (
	// exactSets bounds the sets that are compared exhaustively, which takes about a millisecond: enough for any
	// choice from 16 devices. With more devices, sets are grown greedily.
	exactSets = 13_000
	// greedySeeds bounds the devices from which a set is grown.
	greedySeeds = 64
)

// nearness is the value of a link between two devices. A choice tries to keep valuable links between free devices.
var nearness = map[LinkKind]int{LinkNVLink: 4096, LinkBoard: 512, LinkSwitch: 128, LinkBridge: 32, LinkNUMA: 8, LinkSystem: 1}

// distance orders links within a set of devices, nearest first.
var distance = map[LinkKind]int{LinkNVLink: 0, LinkBoard: 1, LinkSwitch: 2, LinkBridge: 3, LinkNUMA: 4, LinkSystem: 5}

const (
	distanceUnknown = 6
	maxLanes        = 63 // more NVLink connections than this make no difference
	otherClass      = 64 // further than any link: programs want devices of one kind
	// byNode is the weight of different processor sockets, bySocket that of the link. So the link decides first, then
	// the socket, then the NUMA node: some sockets have several NUMA nodes. Each factor is more than the number of
	// pairs in the largest set that is compared exhaustively.
	byNode   = 4096
	bySocket = byNode * byNode
)

// learnLinks computes the distances between all devices, by slot.
func (p *Pool) learnLinks() {
	n := len(p.slots)
	p.distances, p.near = make([][]int, n), make([][]int, n)
	for i, s := range p.slots {
		p.distances[i], p.near[i] = make([]int, n), make([]int, n)
		for j := range n {
			p.distances[i][j] = linkDistance(s, p.slots[j], Link{})
		}
		for _, l := range s.Links {
			if j, known := p.index[l.To]; known {
				p.distances[i][j], p.near[i][j] = linkDistance(s, p.slots[j], l), nearness[l.Kind]
			}
		}
	}
}

// linkDistance returns the distance between two devices with this link.
func linkDistance(a, b *slot, l Link) int {
	d, known := distance[l.Kind]
	if !known {
		d = distanceUnknown
	}
	if a.Class != b.Class {
		d += otherClass
	}
	w := (d*(maxLanes+1) + maxLanes - min(max(l.NVLinks, 0), maxLanes)) * bySocket
	if a.Socket > 0 && b.Socket > 0 && a.Socket != b.Socket {
		w += byNode
	}
	if a.NUMA < 0 || a.NUMA != b.NUMA {
		w++ // the devices are attached to different NUMA nodes
	}
	return w
}

// Choose chooses free devices for a need. For several devices it chooses the best-linked free set: one NVLink island if
// possible, else the nearest by PCIe; of sets with equal links it prefers one on a single socket, and a single NUMA
// node. For a single device it chooses the least useful one that fits: the smallest, then the one whose neighbours are
// taken. For a share it chooses the device with the least left over, so one that is already shared if possible. The
// choice is deterministic.
func (p *Pool) Choose(need job.Resources) ([]string, bool) {
	var chosen []int
	switch milli := Milli(need); {
	case milli == 0:
		return nil, true
	case milli < Whole:
		chosen = chooseShare(p, need, milli)
	case need.GPUs == 1:
		chosen = chooseOne(p, need)
	default:
		chosen = chooseSet(p, need)
	}
	if chosen == nil {
		return nil, false
	}
	slices.Sort(chosen)
	uuids := make([]string, len(chosen))
	for i, c := range chosen {
		uuids[i] = p.slots[c].UUID
	}
	return uuids, true
}

// HasRoom reports whether the device has room for a need that is a share of a GPU.
func (p *Pool) HasRoom(uuid string, need job.Resources) bool {
	i, known := p.index[uuid]
	milli := Milli(need)
	return known && milli > 0 && milli < Whole && p.slots[i].roomFor(need, milli)
}

// roomFor reports whether the device has room for a share.
func (s *slot) roomFor(need job.Resources, milli int) bool {
	left, memory := s.left()
	return left >= milli && memory >= Memory(need, s.Memory) && Fits(s.Device, need)
}

// whole returns the slots of wholly free devices.
func (p *Pool) whole() []int {
	var free []int
	for i, s := range p.slots {
		if milli, _ := s.left(); milli == Whole && s.holders == 0 {
			free = append(free, i)
		}
	}
	return free
}

// wholeFor returns those of the free slots that fit the need.
func (p *Pool) wholeFor(free []int, need job.Resources) []int {
	var fit []int
	for _, i := range free {
		if Fits(p.slots[i].Device, need) {
			fit = append(fit, i)
		}
	}
	return fit
}

// linkValues returns, by slot, the value of the links from each free device to the other free ones. Later tasks lose
// this value if the device is taken.
func (p *Pool) linkValues(free []int) []int {
	worth := make([]int, len(p.slots))
	for _, i := range free {
		for _, j := range free {
			if i != j {
				worth[i] += p.near[i][j]
			}
		}
	}
	return worth
}

func chooseOne(p *Pool, need job.Resources) []int {
	free := p.whole()
	fit, worth := p.wholeFor(free, need), p.linkValues(free)
	if len(fit) == 0 {
		return nil
	}
	return []int{slices.MinFunc(fit, func(a, b int) int {
		return cmp.Or(cmp.Compare(p.slots[a].Memory, p.slots[b].Memory), cmp.Compare(worth[a], worth[b]), cmp.Compare(a, b))
	})}
}

func chooseShare(p *Pool, need job.Resources, milli int) []int {
	worth := p.linkValues(p.whole())
	best, bestRank := -1, shareRank{}
	for i, s := range p.slots {
		if !s.roomFor(need, milli) {
			continue
		}
		left, memory := s.left()
		rank := shareRank{milli: left - milli, memory: memory - Memory(need, s.Memory), worth: worth[i]}
		if best < 0 || rank.compare(bestRank) < 0 {
			best, bestRank = i, rank
		}
	}
	if best < 0 {
		return nil
	}
	return []int{best}
}

// shareRank orders devices for a share, best first, by what is left. So a device that is already shared comes before
// unshared ones.
type shareRank struct {
	milli  int
	memory job.Size
	worth  int
}

func (a shareRank) compare(b shareRank) int {
	return cmp.Or(cmp.Compare(a.milli, b.milli), cmp.Compare(a.memory, b.memory), cmp.Compare(a.worth, b.worth))
}

// CouldEver reports whether the need would fit this host if nothing were held, in quarantine or used by others. If
// not, why says what is missing.
func (p *Pool) CouldEver(need job.Resources) (ok bool, why string) {
	n, fit := Count(need), 0
	reasons := map[string]int{}
	for _, s := range p.slots {
		if s.unlisted {
			continue
		}
		if misfit := Misfit(s.Device, need); misfit != "" {
			reasons[misfit]++
			continue
		}
		fit++
	}
	if fit >= n {
		return true, ""
	}
	why = fmt.Sprintf("%d of %d GPUs fit, %d wanted", fit, Len(p), n)
	if len(reasons) > 0 {
		why += ": " + tally(reasons)
	}
	return false, why
}

// tally returns a text such as "3 are a, 1 is b", the most frequent first.
func tally(reasons map[string]int) string {
	texts := make([]string, 0, len(reasons))
	for r := range reasons {
		texts = append(texts, r)
	}
	slices.SortFunc(texts, func(a, b string) int { return cmp.Or(cmp.Compare(reasons[b], reasons[a]), cmp.Compare(a, b)) })
	for i, r := range texts {
		texts[i] = fmt.Sprintf("%d %s", reasons[r], r)
	}
	return strings.Join(texts, ", ")
}
