package load

// Racks: which machines are behind which leaf of the network.

import (
	"fmt"
	"maps"
	"slices"
)

// DefaultRack is the machines of a rack if nothing says how many there are.
const DefaultRack = 32

// InRacks returns the machines with a label RackLabel each. If they have labels LeafLabel or RackLabel, these decide, the
// first before the second; all machines must have it then. Otherwise the racks rack-000 and so on are filled in the order
// of the machines. There are at most so many leaves with at most so many hosts each; 0: as many as are needed.
func InRacks(machines []Machine, leaves, hosts int) ([]Machine, error) {
	out := slices.Clone(machines)
	label := rackLabel(machines)
	if hosts == 0 && label == "" {
		hosts = DefaultRack
		if leaves > 0 {
			hosts = over(len(machines), leaves)
		}
	}
	for i := range out {
		rack := out[i].Labels[label]
		switch {
		case label == "":
			rack = fmt.Sprintf("rack-%03d", i/hosts)
		case rack == "":
			return nil, fmt.Errorf("machine %s: it has no label %q, and others have; name the rack of each machine, or of none", out[i].Name, label)
		}
		out[i].Labels = maps.Clone(out[i].Labels)
		out[i].label(RackLabel, rack)
	}
	of, names := Racks(out)
	if leaves > 0 && len(names) > leaves {
		return nil, fmt.Errorf("%d machines are in %d racks; the network has %d leaves", len(machines), len(names), leaves)
	}
	counts := make([]int, len(names))
	for _, r := range of {
		if counts[r]++; hosts > 0 && counts[r] > hosts {
			return nil, fmt.Errorf("rack %s has more machines than the %d hosts of a leaf", names[r], hosts)
		}
	}
	return out, nil
}

// rackLabel returns the label that says where machines are; empty if none does.
func rackLabel(machines []Machine) string {
	for _, label := range []string{LeafLabel, RackLabel} {
		if slices.ContainsFunc(machines, func(m Machine) bool { return m.Labels[label] != "" }) {
			return label
		}
	}
	return ""
}

// Racks returns the names of the racks, in the order in which the machines name them first, and the rack of each machine
// as an index of the names. A machine without a rack is in the rack "".
func Racks(machines []Machine) (of []int, names []string) {
	index := map[string]int{}
	for _, m := range machines {
		name := m.Labels[RackLabel]
		i, known := index[name]
		if !known {
			i = len(names)
			index[name] = i
			names = append(names, name)
		}
		of = append(of, i)
	}
	return of, names
}
