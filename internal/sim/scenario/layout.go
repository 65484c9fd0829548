package scenario

// Machines and the hosts of the network.

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/musterhq/muster/internal/sim/fabric"
	"github.com/musterhq/muster/internal/sim/load"
)

// LayOut puts the machines on the hosts of a network and returns them with the leaf that each is on as a label. If
// leafHosts is above 0, each leaf has this number of hosts, and labels of the machines say which are on the same leaf.
// Otherwise the network is from a file: each machine is at the host of its name, or in the order of the hosts if no
// host has the name of a machine.
func LayOut(t *fabric.Topology, machines []load.Machine, leafHosts int) ([]load.Machine, error) {
	if len(machines) > t.Hosts {
		return nil, fmt.Errorf("the network has %d hosts, and there are %d machines", t.Hosts, len(machines))
	}
	if leafHosts == 0 {
		return byName(t, machines)
	}
	leaves, err := load.OnLeaves(machines, (t.Hosts+leafHosts-1)/leafHosts, leafHosts)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, host := range leaves.Slots() {
		names = append(names, t.Nodes[host].Name)
	}
	if err := t.Order(names); err != nil {
		return nil, err
	}
	return leaves.Machines, nil
}

func byName(t *fabric.Topology, machines []load.Machine) ([]load.Machine, error) {
	hosts := map[string]bool{}
	for _, n := range t.Nodes[:t.Hosts] {
		hosts[n.Name] = true
	}
	out := slices.Clone(machines)
	if slices.ContainsFunc(out, func(m load.Machine) bool { return hosts[m.Name] }) {
		var names []string
		for _, m := range out {
			names = append(names, m.Name)
		}
		if err := t.Order(names); err != nil {
			return nil, fmt.Errorf("machines and hosts of the network: %w", err)
		}
	} else {
		for i := range out {
			out[i].Name = t.Nodes[i].Name
		}
	}
	leaf := leafOf(t)
	for i := range out {
		if leaf[i] == "" {
			continue
		}
		labels := maps.Clone(out[i].Labels)
		if labels == nil {
			labels = map[string]string{}
		}
		labels[load.LeafLabel] = leaf[i]
		out[i].Labels = labels
	}
	return out, nil
}

// leafOf returns the name of the first switch that each host is joined to; empty if there is none.
func leafOf(t *fabric.Topology) []string {
	leaf := make([]string, t.Hosts)
	for _, l := range t.Links {
		host, other := min(l.A, l.B), max(l.A, l.B) // the hosts come before the switches
		if host < t.Hosts && other >= t.Hosts && leaf[host] == "" {
			leaf[host] = t.Nodes[other].Name
		}
	}
	return leaf
}

// FaultsUntil returns the time up to which faults with a rate are drawn: the horizon, or long after the last job was
// submitted.
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
