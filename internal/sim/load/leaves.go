package load

// Leaves: which machines are joined to which leaf of a leaf-spine network. A leaf is the switch of a rack.

import (
	"fmt"
	"maps"
	"slices"
)

// DefaultHosts is the default number of hosts of a leaf.
const DefaultHosts = 32

// Leaves are machines on the leaves of a network.
type Leaves struct {
	Machines []Machine // each has the labels LeafLabel and RackLabel
	Names    []string  // of the leaves, in the order in which the machines name them first
	Of       []int     // the leaf of each machine, as an index of Names
	Hosts    int       // of a leaf, at most
}

// OnLeaves puts machines on leaves. If a machine has the label LeafLabel, or else RackLabel, this label decides, and
// all machines must have it. Otherwise leaf0, leaf1 and so on are filled in the order of the machines. leaves and hosts
// bound the number of leaves, and of hosts on each; 0: as many as are needed. The given machines are not changed.
func OnLeaves(machines []Machine, leaves, hosts int) (Leaves, error) {
	l := Leaves{Machines: slices.Clone(machines), Hosts: hosts}
	label := leafLabel(machines)
	if label == "" && hosts == 0 {
		l.Hosts = DefaultHosts
		if leaves > 0 {
			l.Hosts = max(1, over(len(machines), leaves))
		}
	}
	index := map[string]int{}
	var counts []int
	for i := range l.Machines {
		m := &l.Machines[i]
		name := m.Labels[label]
		switch {
		case label == "":
			name = fmt.Sprintf("leaf%d", i/l.Hosts)
		case name == "":
			return l, fmt.Errorf("machine %s: it has no label %q, and others have; name the %s of each machine, or of none", m.Name, label, label)
		}
		k, known := index[name]
		if !known {
			k = len(l.Names)
			index[name] = k
			l.Names, counts = append(l.Names, name), append(counts, 0)
		}
		if counts[k]++; hosts > 0 && counts[k] > hosts {
			return l, fmt.Errorf("machine %s: %s %s has more machines than the %d hosts of a leaf", m.Name, label, name, hosts)
		}
		l.Of = append(l.Of, k)
		m.Labels = maps.Clone(m.Labels)
		m.label(LeafLabel, name)
		if m.Labels[RackLabel] == "" {
			m.label(RackLabel, name)
		}
	}
	if leaves > 0 && len(l.Names) > leaves {
		return l, fmt.Errorf("%d machines are on %d leaves; the network has %d", len(machines), len(l.Names), leaves)
	}
	if l.Hosts == 0 {
		l.Hosts = slices.Max(append(counts, 1))
	}
	return l, nil
}

// leafLabel returns the label that decides where machines are; empty if there is none.
func leafLabel(machines []Machine) string {
	for _, label := range []string{LeafLabel, RackLabel} {
		if slices.ContainsFunc(machines, func(m Machine) bool { return m.Labels[label] != "" }) {
			return label
		}
	}
	return ""
}

// Slots returns the index of each machine's host in a network of equal leaves, in which host i is joined to leaf
// i/Hosts. If a leaf has fewer machines, some of its hosts stay empty.
func (l Leaves) Slots() []int {
	slots, next := make([]int, len(l.Of)), make([]int, len(l.Names))
	for i, k := range l.Of {
		slots[i] = k*l.Hosts + next[k]
		next[k]++
	}
	return slots
}
