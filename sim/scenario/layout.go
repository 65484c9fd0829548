package scenario

// Machines and the hosts of the network.

import (
	"fmt"
	"maps"
	"time"

	"github.com/musterhq/muster/sim/fabric"
	"github.com/musterhq/muster/sim/load"
)

// Behind returns the machines with a label for the leaf that host i of the network is on, and a label for the rack if
// they have none. There are so many hosts on each leaf.
func Behind(machines []load.Machine, leaves, hosts int) ([]load.Machine, error) {
	out := make([]load.Machine, len(machines))
	for i, m := range machines {
		leaf := i / hosts
		if leaves > 0 && leaf >= leaves {
			return nil, fmt.Errorf("%d machines: the network has room for %d", len(machines), leaves*hosts)
		}
		m.Labels = maps.Clone(m.Labels)
		if m.Labels == nil {
			m.Labels = map[string]string{}
		}
		m.Labels[load.LeafLabel] = fmt.Sprintf("leaf%d", leaf)
		if m.Labels[load.RackLabel] == "" {
			m.Labels[load.RackLabel] = fmt.Sprintf("rack%d", leaf)
		}
		out[i] = m
	}
	return out, nil
}

// ByName gives each host of a network from a file its machine: the one of its name. If no machine has the name of a
// host, they are taken in their order. Leaves are the switches that hosts are joined to.
func ByName(t *fabric.Topology, machines []load.Machine) (*fabric.Topology, []load.Machine, error) {
	byName := map[string]int{}
	for i := range machines {
		byName[machines[i].Name] = i
	}
	known, unknown := 0, ""
	for _, n := range t.Nodes[:t.Hosts] {
		if _, ok := byName[n.Name]; ok {
			known++
		} else {
			unknown = n.Name
		}
	}
	if known > 0 && known < t.Hosts {
		return nil, nil, fmt.Errorf("the network has a host %q, and there is no machine of this name", unknown)
	}
	leaf := make([]string, t.Hosts)
	for _, l := range t.Links {
		for _, x := range [][2]int{{l.A, l.B}, {l.B, l.A}} {
			if x[0] < t.Hosts && x[1] >= t.Hosts && leaf[x[0]] == "" {
				leaf[x[0]] = t.Nodes[x[1]].Name
			}
		}
	}
	out := make([]load.Machine, t.Hosts)
	for h := range t.Hosts {
		i := h
		if known > 0 {
			i = byName[t.Nodes[h].Name]
		}
		m := machines[i]
		if known == 0 {
			m.Name = t.Nodes[h].Name
		}
		m.Labels = maps.Clone(m.Labels)
		if m.Labels == nil {
			m.Labels = map[string]string{}
		}
		if leaf[h] != "" {
			m.Labels[load.LeafLabel] = leaf[h]
		}
		out[h] = m
	}
	return t, out, nil
}

// FaultsUntil is up to when faults with a rate are drawn: long after the load has come, or up to the horizon.
func (s *Scenario) FaultsUntil() time.Duration {
	if s.Horizon > 0 {
		return s.Horizon
	}
	var last, longest time.Duration
	for i := range s.Load.Jobs {
		j := &s.Load.Jobs[i]
		last, longest = max(last, j.Submit), max(longest, j.Runs)
	}
	return 2 * (last + longest)
}
