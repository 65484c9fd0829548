package policy

// The policy "topology": devices and hosts that are near each other.

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/lease"
)

// Topology prefers devices of one NVLink island, then of one NUMA node; of the hosts that have such devices the fullest
// one. For a gang it chooses hosts of one rack if there are enough, else below one leaf switch, else below as few as
// possible. Racks and leaves are the labels rack and leaf of the hosts.
type Topology struct {
	near []nearness
	free []int // free devices by island or NUMA node
}

// nearness is how near each other the devices are that the task gets at a candidate.
type nearness struct {
	level
	group int // the NVLink island or the NUMA node
}

type level int

const (
	apart level = iota
	oneNUMA
	oneIsland
)

func (l level) String() string {
	return [...]string{"GPUs of several NUMA nodes", "GPUs of one NUMA node", "GPUs of one NVLink island"}[l]
}

// The labels that say where a host is in the network.
const (
	rackLabel = "rack"
	leafLabel = "leaf"
)

// Choose prefers the candidates with the nearest devices, or the nearest candidates for a gang.
func (t *Topology) Choose(chosen []Choice, ask Ask, feasible []Candidate, n int) []Choice {
	t.near = t.near[:0]
	for i := range feasible {
		t.near = append(t.near, t.nearest(ask.Need, &feasible[i]))
	}
	score := func(i int) float64 {
		c := &feasible[i]
		return float64(10*t.near[i].level) - ratio(freeMilli(c.Free), gpu.Whole*job.MaxGPUs) - ratio(c.Free.CPUs, c.Profile.CPUs)/job.MaxGPUs
	}
	begin := len(chosen)
	claim := "fullest host"
	if ask.Gang {
		all := make([]int, 0, len(feasible))
		for _, x := range best(nil, feasible, len(feasible), score) {
			all = append(all, x.Index)
		}
		for _, i := range together(all, n, feasible, leafOf, rackOf) {
			chosen = append(chosen, Choice{Index: i})
		}
		claim = distance(chosen[begin:], feasible)
	} else {
		chosen = best(chosen, feasible, n, score)
	}
	for i := begin; i < len(chosen); i++ {
		x := &chosen[i]
		c := &feasible[x.Index]
		x.Devices = t.devices(ask.Need, c, t.near[x.Index])
		x.Why = leaves(claim, ask.Need, c)
		if ask.Need.GPUs > 1 {
			x.Why = t.near[x.Index].String() + ", " + x.Why
		}
	}
	return chosen
}

// nearest finds the smallest NVLink island with enough free devices, else the NUMA node.
func (t *Topology) nearest(need job.Resources, c *Candidate) nearness {
	if need.GPUs == 0 {
		return nearness{}
	}
	meets := meeter{need: need}
	for _, l := range []level{oneIsland, oneNUMA} {
		t.free = t.free[:0]
		for i := range c.Free.GPUs {
			g := groupOf(c, i, l)
			if g < 0 || g >= lease.MaxGPUs || c.Free.GPUs[i].Milli < gpu.Whole || !meets.device(c.Devices.Device(i)) {
				continue
			}
			for len(t.free) <= g {
				t.free = append(t.free, 0)
			}
			t.free[g]++
		}
		found := -1
		for g, free := range t.free {
			if free >= need.GPUs && (found < 0 || free < t.free[found]) {
				found = g
			}
		}
		if found >= 0 {
			return nearness{l, found}
		}
	}
	return nearness{}
}

// groupOf is the NVLink island or the NUMA node of a free device; -1 if it is not known.
func groupOf(c *Candidate, i int, l level) int {
	island, numa := c.Devices.Place(i)
	if l == oneIsland {
		return island
	}
	return numa
}

// devices are the UUIDs of the devices that the task gets.
func (t *Topology) devices(need job.Resources, c *Candidate, at nearness) []string {
	if at.level == apart {
		out, _ := c.Devices.Fit(need, c.Free)
		return out
	}
	out := make([]string, 0, need.GPUs)
	meets := meeter{need: need}
	for i := range c.Free.GPUs {
		g := &c.Free.GPUs[i]
		if len(out) < need.GPUs && g.Milli >= gpu.Whole && groupOf(c, i, at.level) == at.group && meets.device(c.Devices.Device(i)) {
			out = append(out, g.UUID)
		}
	}
	return out
}

// rackOf names the rack of a candidate. One without the label is in a rack of its own.
func rackOf(c *Candidate) string {
	if rack := c.Profile.Labels[rackLabel]; rack != "" {
		return leafOf(c) + "/" + rack
	}
	return "host/" + string(c.Peer)
}

// leafOf names the leaf switch of a candidate. One without the label has a leaf that it shares with its rack alone.
func leafOf(c *Candidate) string {
	if leaf := c.Profile.Labels[leafLabel]; leaf != "" {
		return "leaf/" + leaf
	}
	if rack := c.Profile.Labels[rackLabel]; rack != "" {
		return "rack/" + rack
	}
	return "host/" + string(c.Peer)
}

// together chooses n of all candidates, which are given best first. It takes them from the smallest domain that has n.
// If none has, it takes all of the largest domain, and the rest in the same way. The first kind of domain is the
// largest; each further kind divides the one before.
func together(all []int, n int, feasible []Candidate, kinds ...func(*Candidate) string) []int {
	if len(kinds) == 0 || n >= len(all) {
		return all[:min(n, len(all))]
	}
	for i, kind := range slices.Backward(kinds) {
		for _, domain := range split(all, feasible, kind) {
			if len(domain) >= n {
				return together(domain, n, feasible, kinds[i+1:]...)
			}
		}
	}
	largest := slices.MaxFunc(split(all, feasible, kinds[0]), bySize)
	rest := slices.DeleteFunc(slices.Clone(all), func(i int) bool { return slices.Contains(largest, i) })
	return append(largest, together(rest, n-len(largest), feasible, kinds...)...)
}

// split divides candidates into domains, the smallest first; of equal ones the one with the best candidate.
func split(all []int, feasible []Candidate, kind func(*Candidate) string) [][]int {
	at := map[string]int{}
	var domains [][]int
	for _, i := range all {
		name := kind(&feasible[i])
		k, known := at[name]
		if !known {
			k = len(domains)
			at[name] = k
			domains = append(domains, nil)
		}
		domains[k] = append(domains[k], i)
	}
	slices.SortStableFunc(domains, bySize)
	return domains
}

func bySize(a, b []int) int { return cmp.Compare(len(a), len(b)) }

// distance tells people how near each other the hosts of a gang are.
func distance(chosen []Choice, feasible []Candidate) string {
	racks, leafs := map[string]bool{}, map[string]bool{}
	for _, x := range chosen {
		if feasible[x.Index].Profile.Labels[rackLabel] == "" {
			return "fullest hosts, as not all have the label rack"
		}
		racks[rackOf(&feasible[x.Index])] = true
		leafs[leafOf(&feasible[x.Index])] = true
	}
	switch {
	case len(racks) == 1:
		return "its gang is in one rack"
	case len(leafs) == 1:
		return fmt.Sprintf("its gang is in %d racks below one leaf", len(racks))
	}
	return fmt.Sprintf("its gang is in %d racks below %d leaves", len(racks), len(leafs))
}
