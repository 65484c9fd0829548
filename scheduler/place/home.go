package place

// Homes: the part of the network where a gang has all its members.
// See docs/adr, ADR 109.

import (
	"cmp"
	"math"
	"slices"
)

// Part is what is known of a part of the network that may be the home of a gang.
type Part struct {
	Home

	Hosts   int // that could run a member and take tasks
	Fits    int // where one fits now
	queued  int // claims that queue there
	nearest int // rank of the nearest host
}

// Parts returns the racks, or the parts with another label, of the hosts that could run a member of a gang of this size,
// the best home first: where the most members fit now, then with short queues, then the nearest to this daemon, then
// the smallest.
func (p *Placer) Parts(t *Task, label string, size int) []Part {
	index := map[string]int{}
	var parts []Part
	last, i := "", 0
	for h := range p.fleet.Candidates(t.Shape) {
		value := h.Profile.Labels[label]
		if value == "" || !h.Open() {
			continue
		}
		if value != last {
			var known bool
			if i, known = index[value]; !known {
				i = len(parts)
				index[value] = i
				parts = append(parts, Part{Home: Home{label, value}, nearest: math.MaxInt})
			}
			last = value
		}
		x := &parts[i]
		x.Hosts++
		if t.Foot.Within(p.fleet.Row(h.Slot()).Left) {
			x.Fits++
		}
		x.queued += h.Claims.Queued()
		x.nearest = min(x.nearest, h.Distance.Rank())
	}
	slices.SortFunc(parts, func(a, b Part) int {
		return cmp.Or(
			cmp.Compare(min(b.Fits, size), min(a.Fits, size)),
			cmp.Compare(a.queued*b.Hosts, b.queued*a.Hosts),
			cmp.Compare(a.nearest, b.nearest),
			cmp.Compare(a.Hosts, b.Hosts),
			cmp.Compare(a.Value, b.Value),
		)
	})
	return parts
}

// HomeOf returns where all members of a gang of this size are to go: to the first of the racks from Parts that has
// enough hosts, else to any hosts.
func HomeOf(parts []Part, size int) Home {
	for _, x := range parts {
		if x.Hosts >= size {
			return x.Home
		}
	}
	return Home{}
}
