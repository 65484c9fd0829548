package scenario

// The network of a scenario: parts that can fail, and what it carried.

import (
	"fmt"
	"slices"
	"strings"

	"github.com/musterhq/muster/internal/sim"
	"github.com/musterhq/muster/internal/sim/fabric"
	"github.com/musterhq/muster/internal/sim/report"
)

// network is a fabric whose parts have names. A part is
//
//	switch NAME          a switch, or a host, with all its links
//	link NAME NAME       the links between two nodes
//	rack NAME            a leaf and its hosts, cut off from the rest; they reach each other
//	cut NAME,NAME,...    some leaves with their hosts, or other nodes, cut off from the rest together
type network struct {
	*fabric.Fabric

	lossy    bool
	machines int
	heal     map[string]func()
}

func (s *Scenario) network(clock *sim.Clock) (*network, error) {
	cfg := fabric.DefaultConfig()
	cfg.Seed, cfg.Loss = s.Seed, s.Loss
	if s.Convergence > 0 {
		cfg.Convergence = s.Convergence
	}
	if s.Topology.Hosts < len(s.Load.Machines) {
		return nil, fmt.Errorf("the network has %d hosts, and there are %d machines", s.Topology.Hosts, len(s.Load.Machines))
	}
	f, err := fabric.New(cfg, s.Topology, clock)
	if err != nil {
		return nil, err
	}
	lossy := s.Loss > 0 || slices.ContainsFunc(s.Topology.Links, func(l fabric.Link) bool { return l.Loss > 0 })
	return &network{Fabric: f, lossy: lossy, machines: len(s.Load.Machines), heal: map[string]func(){}}, nil
}

// Lossy reports whether messages may be lost on links that work.
func (n *network) Lossy() bool { return n.lossy }

// find returns the node with a name.
func (n *network) find(name string) (int, error) {
	if i := n.Topology().Find(name); i >= 0 {
		return i, nil
	}
	return 0, fmt.Errorf("the network has no node %q; its nodes are called as %s and %s", name, n.Topology().Nodes[0].Name, n.Topology().Nodes[len(n.Topology().Nodes)-1].Name)
}

// parts are what a part consists of: links, or nodes that fail, or nodes that are cut off.
type parts struct {
	links, dead, apart []int
}

func (n *network) parts(part string) (p parts, err error) {
	kind, names, _ := strings.Cut(part, " ")
	words := strings.FieldsFunc(names, func(r rune) bool { return r == ' ' || r == ',' })
	var nodes []int
	for _, w := range words {
		i, err := n.find(w)
		if err != nil {
			return p, err
		}
		nodes = append(nodes, i)
	}
	switch {
	case kind == "switch" && len(nodes) == 1:
		p.dead = nodes
	case kind == "link" && len(nodes) == 2:
		if p.links = n.between(nodes[0], nodes[1]); p.links == nil {
			return p, fmt.Errorf("no link joins %s and %s", words[0], words[1])
		}
	case kind == "rack" && len(nodes) == 1, kind == "cut" && len(nodes) > 0:
		p.apart = n.withHosts(nodes)
	default:
		return p, fmt.Errorf("%q: want switch NAME, link NAME NAME, rack LEAF, or cut with a list of names", part)
	}
	return p, nil
}

// between returns the links that join two nodes.
func (n *network) between(a, b int) (links []int) {
	for i, l := range n.Topology().Links {
		if l.A == a && l.B == b || l.A == b && l.B == a {
			links = append(links, i)
		}
	}
	return links
}

// withHosts returns nodes, and the hosts of those that are leaves, in order.
func (n *network) withHosts(nodes []int) []int {
	out := slices.Clone(nodes)
	for _, i := range nodes {
		if n.Topology().Nodes[i].Tier == 1 {
			out = append(out, n.Below(i)...)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Break makes a part fail.
func (n *network) Break(part string) error {
	p, err := n.parts(part)
	if err != nil {
		return err
	}
	for _, l := range p.links {
		n.SetLink(l, false)
	}
	for _, d := range p.dead {
		n.SetNode(d, false)
	}
	if p.apart != nil && n.heal[part] == nil {
		n.heal[part] = n.Cut(p.apart)
	}
	return nil
}

// Mend repairs a part.
func (n *network) Mend(part string) error {
	p, err := n.parts(part)
	if err != nil {
		return err
	}
	for _, l := range p.links {
		n.SetLink(l, true)
	}
	for _, d := range p.dead {
		n.SetNode(d, true)
	}
	if heal := n.heal[part]; heal != nil {
		delete(n.heal, part)
		heal()
	}
	return nil
}

// hosts returns the machines that are in a part or behind it.
func (n *network) hosts(part string) []int {
	p, err := n.parts(part)
	if err != nil {
		return nil
	}
	var out []int
	add := func(node int) {
		if node < n.machines {
			out = append(out, node)
		}
	}
	for _, node := range p.apart {
		add(node)
	}
	for _, node := range p.dead {
		add(node)
		if n.Topology().Nodes[node].Tier == 1 {
			for _, below := range n.Below(node) {
				add(below)
			}
		}
	}
	for _, l := range p.links {
		add(n.Topology().Links[l].A)
		add(n.Topology().Links[l].B)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// report returns what the network carried.
func (n *network) report(shape string, machines int, r sim.Result) *report.Network {
	if n == nil {
		return &report.Network{Topology: "a link of its own for each pair", Messages: int64(r.Messages), Bytes: r.Bytes, Copies: int64(r.Copies), Copied: r.Copied, CopyTime: r.CopyTime.Seconds(), Quiet: r.Skipped.Seconds()}
	}
	stats, t := n.Stats(), n.Topology()
	out := &report.Network{
		Topology: shape, Messages: int64(r.Messages), Bytes: r.Bytes, Dropped: stats.Lost + stats.Unrouted, Quiet: r.Skipped.Seconds(),
		Copied: r.Copied, Copies: int64(r.Copies), CopyTime: r.CopyTime.Seconds(),
	}
	names := NodeNames(t)
	for _, p := range n.Paths(mostPaths) {
		out.Paths = append(out.Paths, report.PathUse{Path: report.PathName(names, p.Nodes), Flows: p.Copies, Bytes: p.Bytes})
	}
	for _, l := range stats.Links {
		out.Queueing += l.QueueMean.Seconds() * float64(l.Messages)
	}
	for _, node := range t.Nodes[t.Hosts:] {
		out.Switches = append(out.Switches, report.Switch{Name: node.Name, Tier: node.Tier})
	}
	end := func(node int) report.End {
		if node < t.Hosts {
			return report.AtMachine(node)
		}
		return report.AtSwitch(node - t.Hosts)
	}
	out.Racks = make([]int, machines)
	for i := range out.Racks {
		out.Racks[i] = -1
	}
	for i, l := range t.Links {
		if unused(l.A, machines, t) || unused(l.B, machines, t) {
			continue
		}
		there, back := stats.Links[2*i], stats.Links[2*i+1]
		one := report.Link{
			A: end(l.A), B: end(l.B), Flows: there.Flows + back.Flows, Lost: there.Lost + back.Lost,
			Bytes: there.Control + there.Bulk + back.Control + back.Bulk,
		}
		if until := stats.Until.Seconds(); until > 0 {
			one.Used = float64(one.Bytes) * 8 / (2 * float64(l.Bandwidth) * until)
		}
		out.Links = append(out.Links, one)
		if one.A.Machine >= 0 && one.A.Machine < machines && one.B.Switch >= 0 {
			out.Racks[one.A.Machine] = one.B.Switch
		}
		if one.B.Machine >= 0 && one.B.Machine < machines && one.A.Switch >= 0 {
			out.Racks[one.B.Machine] = one.A.Switch
		}
	}
	return out
}

// unused reports whether a node is a host without a machine.
func unused(node, machines int, t *fabric.Topology) bool { return node >= machines && node < t.Hosts }

// mostPaths bounds the paths that a document lists.
const mostPaths = 100

// NodeNames returns the names of the nodes of a network by their numbers.
func NodeNames(t *fabric.Topology) []string {
	names := make([]string, len(t.Nodes))
	for i := range t.Nodes {
		names[i] = t.Nodes[i].Name
	}
	return names
}
