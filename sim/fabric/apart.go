package fabric

// The check of a topology for hosts without a path to each other.

import (
	"fmt"
	"slices"
)

// apart returns the first two hosts without a path to each other, in the order of the hosts, or -1. Hosts that are joined
// to the same parts of the network of switches are one group, so that only groups are compared.
func (t *Topology) apart() (a, b int) {
	near := t.neighbours()
	part := t.parts(near)
	type group struct {
		parts []int
		hosts []int
	}
	var groups []*group
	byParts := map[string]*group{}
	for h := range t.Hosts {
		var parts []int
		for _, n := range near[h] {
			if n >= t.Hosts {
				parts = append(parts, part[n])
			}
		}
		slices.Sort(parts)
		parts = slices.Compact(parts)
		key := fmt.Sprint(parts)
		if byParts[key] == nil {
			byParts[key] = &group{parts: parts}
			groups = append(groups, byParts[key])
		}
		byParts[key].hosts = append(byParts[key].hosts, h)
	}
	for i, g := range groups {
		for _, o := range groups[i:] {
			if slices.ContainsFunc(g.parts, func(p int) bool { return slices.Contains(o.parts, p) }) {
				continue
			}
			for _, a := range g.hosts { // only direct links join them
				for _, b := range o.hosts {
					if a != b && !slices.Contains(near[a], b) {
						return min(a, b), max(a, b)
					}
				}
			}
		}
	}
	return -1, -1
}

// parts numbers the parts of the network of switches that are not joined to each other: the number of each switch's part,
// by node.
func (t *Topology) parts(near [][]int) []int {
	part := make([]int, len(t.Nodes))
	next := 0
	for s := t.Hosts; s < len(t.Nodes); s++ {
		if part[s] != 0 {
			continue
		}
		next++
		part[s] = next
		for stack := []int{s}; len(stack) > 0; {
			n := stack[len(stack)-1]
			stack = stack[:len(stack)-1]
			for _, m := range near[n] {
				if m >= t.Hosts && part[m] == 0 {
					part[m] = next
					stack = append(stack, m)
				}
			}
		}
	}
	return part
}
