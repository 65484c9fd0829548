package policy

// The policy "topology": devices and hosts that are near each other.

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler/fleet"
)

// Topology prefers devices of one NVLink island, then of one NUMA node. Of the hosts that have such devices it prefers the
// scheduler's own, then the one with the cheapest path to it, then the fullest one. For a gang it chooses hosts of one
// rack if there are enough, else below one leaf switch, else below as few as possible. Racks and leaves are the labels
// rack and leaf of the hosts. Of equal racks, and of hosts without labels, it chooses the nearest to the scheduler: no two
// of them are farther from each other than both are from the scheduler together.
// See docs/adr, ADR 109.
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
	RackLabel = "rack"
	LeafLabel = "leaf"
)

// Nearer says that Topology is to be shown the nearest hosts.
func (*Topology) Nearer() {}

// nearHost is more than what the fullness of a host weighs, and nearDevices more than the path to it.
const (
	nearHost    = 4
	nearDevices = 2048
)

// Choose prefers the candidates with the nearest devices, or the nearest candidates for a gang.
func (t *Topology) Choose(chosen []Choice, ask Ask, feasible []Candidate, n int) []Choice {
	t.near = t.near[:0]
	meets := fleet.Meeter{Need: ask.Need}
	for i := range feasible {
		t.near = append(t.near, t.nearest(&meets, &feasible[i]))
	}
	score := func(i int) float64 {
		c := &feasible[i]
		return float64(nearDevices*int(t.near[i].level)-nearHost*c.near()) - ratio(c.Room.Milli, gpu.Whole*job.MaxGPUs) - ratio(c.Room.CPUs, c.Room.AllCPUs)/job.MaxGPUs
	}
	begin := len(chosen)
	claim := ""
	if ask.Gang {
		for _, i := range together(byScore(feasible, score), min(n, len(feasible)), feasible) {
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
		claim := claim
		if !ask.Gang {
			claim = howNear(c)
		}
		x.Why = leaves(claim, ask.Need, c)
		if ask.Need.GPUs > 1 {
			x.Why = t.near[x.Index].String() + ", " + x.Why
		}
	}
	return chosen
}

// near ranks a candidate by the cost of the path from the host of the scheduler: 0 is that host itself.
func (c *Candidate) near() int {
	if c.Local {
		return 0
	}
	return c.Host.Distance.Rank()
}

// howNear tells people what the path to a host costs.
func howNear(c *Candidate) string {
	switch {
	case c.Local:
		return "this host"
	case c.Host.Distance.Known():
		return "round trip up to " + c.Host.Distance.String()
	}
	return "fullest host"
}

// byScore returns the places of all candidates, the highest score first.
func byScore(feasible []Candidate, score func(int) float64) []int {
	all := make([]Choice, len(feasible))
	for i := range all {
		all[i] = Choice{Index: i, score: score(i)}
	}
	slices.SortFunc(all, func(a, b Choice) int { return compare(feasible, &a, &b) })
	out := make([]int, len(all))
	for i := range all {
		out[i] = all[i].Index
	}
	return out
}

// nearest finds the smallest NVLink island with enough free devices, else the smallest such NUMA node.
func (t *Topology) nearest(meets *fleet.Meeter, c *Candidate) nearness {
	n := meets.Need.GPUs
	if n == 0 {
		return nearness{}
	}
	for _, l := range []level{oneIsland, oneNUMA} {
		t.free = t.free[:0]
		if c.Room.Listed >= 0 {
			t.countRoom(meets, c.Room, l)
		} else {
			t.count(meets, c, l)
		}
		found := -1
		for g, free := range t.free {
			if free >= n && (found < 0 || free < t.free[found]) {
				found = g
			}
		}
		if found >= 0 {
			return nearness{l, found}
		}
	}
	return nearness{}
}

// count counts the devices that the need could have, by island or NUMA node.
func (t *Topology) count(meets *fleet.Meeter, c *Candidate, l level) {
	for i := range c.Free.GPUs {
		if g := groupOf(c, i, l); g >= 0 && g < contract.MaxGPUs && wholly(&c.Free.GPUs[i], meets.Need) && meets.Device(c.Devices.Device(i)) {
			t.add(g)
		}
	}
}

// countRoom does what count does, for a host whose room lists the devices.
func (t *Topology) countRoom(meets *fleet.Meeter, r *fleet.Room, l level) {
	if r.Whole < meets.Need.GPUs || !meets.Device(r.Alike) {
		return
	}
	for i := range r.GPUs[:r.Listed] {
		d := &r.GPUs[i]
		g, numa := d.Place()
		if l == oneNUMA {
			g = numa
		}
		if g >= 0 && d.Milli >= gpu.Whole && d.Memory >= meets.Need.GPUMemory {
			t.add(g)
		}
	}
}

func (t *Topology) add(group int) {
	for len(t.free) <= group {
		t.free = append(t.free, 0)
	}
	t.free[group]++
}

// wholly says whether a device is free as a whole, with the memory that the need asks for.
func wholly(g *contract.FreeGPU, need job.Resources) bool {
	return g.Milli >= gpu.Whole && g.Memory >= need.GPUMemory
}

// groupOf returns the NVLink island or the NUMA node of a free device; -1 if it is not known.
func groupOf(c *Candidate, i int, l level) int {
	island, numa := c.Devices.Place(i)
	if l == oneIsland {
		return island
	}
	return numa
}

// devices returns the UUIDs of the devices that the task gets.
func (t *Topology) devices(need job.Resources, c *Candidate, at nearness) []string {
	if at.level == apart {
		out, _ := c.Devices.Fit(need, c.Free)
		return out
	}
	out := make([]string, 0, need.GPUs)
	meets := fleet.Meeter{Need: need}
	for i := range c.Free.GPUs {
		g := &c.Free.GPUs[i]
		if len(out) < need.GPUs && wholly(g, need) && groupOf(c, i, at.level) == at.group && meets.Device(c.Devices.Device(i)) {
			out = append(out, g.UUID)
		}
	}
	return out
}

// domain is a part of the network: a leaf switch, or a rack below it. Hosts that do not say where they are share none.
type domain struct {
	leaf, rack string
	host       job.Peer // that is a domain of its own; empty if it has the labels
}

// rackOf returns the rack of a candidate. A candidate without the label is in a rack of its own.
func rackOf(c *Candidate) domain {
	d := leafOf(c)
	if d.rack = c.Profile.Labels[RackLabel]; d.rack == "" {
		d.host = c.Host.Peer
	}
	return d
}

// leafOf returns the leaf switch of a candidate. A candidate without the label has a leaf that it shares with its rack
// alone.
func leafOf(c *Candidate) domain {
	if leaf := c.Profile.Labels[LeafLabel]; leaf != "" {
		return domain{leaf: leaf}
	}
	if rack := c.Profile.Labels[RackLabel]; rack != "" {
		return domain{rack: rack}
	}
	return domain{host: c.Host.Peer}
}

// together chooses n of all candidates, which are given best first. It takes them from the smallest rack that has n,
// else from the smallest leaf. If no leaf has n, it takes all of the largest ones, until another one has the rest.
// Candidates of one rack follow each other.
func together(all []int, n int, feasible []Candidate) []int {
	out, leaves := takeLargest(split(all, feasible, leafOf), n)
	out = slices.Concat(split(out, feasible, rackOf)...)
	n -= len(out)
	var racks [][]int
	for _, leaf := range leaves {
		racks = append(racks, split(leaf, feasible, rackOf)...)
	}
	if rack := smallest(racks, n); rack != nil {
		return append(out, rack[:n]...)
	}
	whole, racks := takeLargest(split(smallest(leaves, n), feasible, rackOf), n)
	n -= len(whole)
	return slices.Concat(out, whole, smallest(racks, n)[:n])
}

// takeLargest takes all of the largest domains until another one has the rest of n. It returns the others too.
func takeLargest(domains [][]int, n int) (taken []int, others [][]int) {
	slices.SortStableFunc(domains, func(a, b []int) int { return cmp.Compare(len(b), len(a)) })
	for len(domains) > 0 && len(domains[0]) < n-len(taken) {
		taken = append(taken, domains[0]...)
		domains = domains[1:]
	}
	return taken, domains
}

// smallest returns the smallest domain that has n candidates, of equal ones the first; nil if none has.
func smallest(domains [][]int, n int) []int {
	var found []int
	for _, d := range domains {
		if len(d) >= n && (found == nil || len(d) < len(found)) {
			found = d
		}
	}
	return found
}

// split divides candidates into domains, in the order of the first candidate of each.
func split(all []int, feasible []Candidate, kind func(*Candidate) domain) [][]int {
	at := make(map[domain]int, len(all))
	var domains [][]int
	for _, i := range all {
		d := kind(&feasible[i])
		k, known := at[d]
		if !known {
			k = len(domains)
			at[d] = k
			domains = append(domains, nil)
		}
		domains[k] = append(domains[k], i)
	}
	return domains
}

// distance tells people how near each other the hosts of a gang are.
func distance(chosen []Choice, feasible []Candidate) string {
	racks, leaves := map[domain]bool{}, map[domain]bool{}
	for _, x := range chosen {
		c := &feasible[x.Index]
		if c.Profile.Labels[RackLabel] == "" {
			return farthest(chosen, feasible) + ", as not all have the label rack"
		}
		racks[rackOf(c)] = true
		leaves[leafOf(c)] = true
	}
	switch {
	case len(racks) == 1:
		return "its gang is in one rack"
	case len(leaves) == 1:
		return fmt.Sprintf("its gang is in %d racks below one leaf", len(racks))
	}
	return fmt.Sprintf("its gang is in %d racks below %d leaves", len(racks), len(leaves))
}

// farthest tells people how far the hosts of a gang are from the scheduler.
func farthest(chosen []Choice, feasible []Candidate) string {
	most := 0
	var far fleet.Distance
	for _, x := range chosen {
		if c := &feasible[x.Index]; c.near() >= most {
			most, far = c.near(), c.Host.Distance
		}
	}
	if !far.Known() {
		return "fullest hosts"
	}
	return "nearest hosts, round trips up to " + far.String()
}
