package fabric

// The check of a topology for hosts without a path to each other.

import (
	"fmt"
	"slices"
)

// group is the hosts that are joined to the same connected parts of the network of switches.
type group struct {
	parts []int
	hosts []int
}

// apart returns the first two hosts without a path to each other, in the order of the hosts, or -1. Only groups of hosts
// are compared.
func (t *Topology) apart() (a, b int) {
	near := t.neighbours()
	groups := t.groups(near)
	for i, g := range groups {
		for _, o := range groups[i:] {
			if slices.ContainsFunc(g.parts, func(p int) bool { return slices.Contains(o.parts, p) }) {
				continue
			}
			for _, a := range g.hosts {
				i := slices.IndexFunc(o.hosts, func(b int) bool { return a != b && !slices.Contains(near[a], b) })
				if i >= 0 { // no direct link joins them
					return min(a, o.hosts[i]), max(a, o.hosts[i])
				}
			}
		}
	}
	return -1, -1
}

func (t *Topology) groups(near [][]int) []*group {
	part := t.parts(near)
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
	return groups
}

// parts numbers the connected parts of the network of switches. It returns the number of each switch's part, by node.
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
