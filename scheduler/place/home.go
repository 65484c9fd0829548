package place

// Home: the part of the network where a gang has all its members.
// See docs/adr, ADR 109.

import (
	"cmp"
	"slices"

	"github.com/musterhq/muster/scheduler/fleet"
	"github.com/musterhq/muster/scheduler/policy"
)

// Home is the hosts with a label, such as one rack. The zero value is all hosts.
type Home struct{ Label, Value string }

// Has says whether the host is part of it.
func (x Home) Has(h *fleet.Host) bool { return x.Label == "" || h.Profile.Labels[x.Label] == x.Value }

// part is what is known of a possible home.
type part struct {
	home    Home
	hosts   int // that could run a member and take tasks
	fits    int // where one fits now
	queued  int // claims that queue there
	nearest int // rank of the nearest host
}

// HomeOf returns where all members of a gang of this size are to go: a rack with as many hosts that could run one, else
// the hosts below a leaf switch. It is all hosts if there is no such place, or if the policy does not go by the cost of
// paths. A place where the members fit now comes before others, then one where a member has most hosts to go to, then
// one with short queues.
func (p *Placer) HomeOf(t *Task, size int) Home {
	if _, near := t.Policy.(policy.Nearer); !near {
		return Home{}
	}
	for _, label := range []string{policy.RackLabel, policy.LeafLabel} {
		index := map[string]int{}
		var parts []part
		for h := range p.fleet.Candidates(t.Shape) {
			value := h.Profile.Labels[label]
			if value == "" || !h.Open() {
				continue
			}
			i, known := index[value]
			if !known {
				i = len(parts)
				index[value] = i
				parts = append(parts, part{home: Home{label, value}, nearest: 1 << 30})
			}
			x := &parts[i]
			x.hosts++
			if t.Foot.Within(p.fleet.Left(h)) {
				x.fits++
			}
			x.queued += h.Claims.Queued()
			x.nearest = min(x.nearest, h.Distance.Rank())
		}
		parts = slices.DeleteFunc(parts, func(x part) bool { return x.hosts < size })
		if len(parts) > 0 {
			return slices.MinFunc(parts, func(a, b part) int { return compareParts(&a, &b, size) }).home
		}
	}
	return Home{}
}

func compareParts(a, b *part, size int) int {
	return cmp.Or(
		cmp.Compare(min(b.fits, size), min(a.fits, size)),
		cmp.Compare(a.queued*b.hosts, b.queued*a.hosts),
		cmp.Compare(a.nearest, b.nearest),
		cmp.Compare(a.hosts, b.hosts),
		cmp.Compare(a.home.Value, b.home.Value),
	)
}
