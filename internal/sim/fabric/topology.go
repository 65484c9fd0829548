package fabric

// Topologies: which hosts and switches there are, and the links between them.

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Bounds of a topology. Routes are kept for each pair of switches.
const (
	MaxSwitches = 4096
	MaxHosts    = 100_000
	MaxLinks    = 1_000_000
)

// Topology is the hosts and switches of a data center and the links between them. Switches forward messages, hosts do
// not: a path leads from host to host over switches, or over one direct link.
type Topology struct {
	Nodes []Node // the hosts first, in the order of the machines, then the switches
	Hosts int
	Links []Link
}

// Node is a host or a switch.
type Node struct {
	Name string
	Tier int // number of links to the nearest host: 0 for a host, 1 for a leaf, 2 for a spine
}

// Link joins two nodes, in both directions, each with the whole bandwidth.
type Link struct {
	A, B      int // nodes
	Latency   time.Duration
	Bandwidth Bandwidth
	Loss      float64 // probability that a control message is lost here
}

// Bandwidth is in bits a second.
type Bandwidth int64

// Units of bandwidth.
const (
	Mbps Bandwidth = 1_000_000
	Gbps           = 1000 * Mbps
)

var units = []struct {
	name string
	bits float64
}{{"Tbps", 1e12}, {"Gbps", 1e9}, {"Mbps", 1e6}, {"kbps", 1e3}, {"bps", 1}}

// ParseBandwidth reads a number with a unit, such as 25Gbps or 400Mbps.
func ParseBandwidth(s string) (Bandwidth, error) {
	for _, u := range units {
		number, ok := strings.CutSuffix(s, u.name)
		if !ok {
			continue
		}
		v, err := strconv.ParseFloat(number, 64)
		if err != nil || !(v*u.bits >= 1000 && v*u.bits <= 1e15) {
			return 0, fmt.Errorf("%.40q: want a number from 1kbps to 1000Tbps, such as 25Gbps", s)
		}
		return Bandwidth(math.Round(v * u.bits)), nil
	}
	return 0, fmt.Errorf("%.40q: want a number and one of bps, kbps, Mbps, Gbps and Tbps, such as 25Gbps", s)
}

// String returns the form that ParseBandwidth reads.
func (b Bandwidth) String() string {
	for _, u := range units {
		if float64(b) >= u.bits {
			return strconv.FormatFloat(float64(b)/u.bits, 'g', -1, 64) + u.name
		}
	}
	return "0bps"
}

// frame is the size of the message, in bytes, by which a link's weight is computed.
const frame = 1500

// Weight returns the cost of a link: how long a full Ethernet frame (1500 bytes) takes on the idle link. So it includes
// both latency and bandwidth.
func (l Link) Weight() time.Duration {
	return l.Latency + time.Duration(math.Ceil(frame*8e9/float64(l.Bandwidth)))
}

// Rack returns the name of the first switch of a host; empty if it has none.
func (t *Topology) Rack(host int) string {
	for _, l := range t.Links {
		if l.A == host && l.B >= t.Hosts {
			return t.Nodes[l.B].Name
		}
		if l.B == host && l.A >= t.Hosts {
			return t.Nodes[l.A].Name
		}
	}
	return ""
}

// Racks returns Rack of each host.
func (t *Topology) Racks() []string {
	racks := make([]string, t.Hosts)
	for _, l := range slices.Backward(t.Links) { // the first link wins
		if l.A < t.Hosts && l.B >= t.Hosts {
			racks[l.A] = t.Nodes[l.B].Name
		}
		if l.B < t.Hosts && l.A >= t.Hosts {
			racks[l.B] = t.Nodes[l.A].Name
		}
	}
	return racks
}

// Find returns the node with a name, or -1.
func (t *Topology) Find(name string) int {
	return slices.IndexFunc(t.Nodes, func(n Node) bool { return n.Name == name })
}

// Order puts the hosts with these names first, in this order. The other hosts keep their order after them. A name that
// is not a host, or is in the list twice, is an error.
func (t *Topology) Order(names []string) error {
	index := make(map[string]int, t.Hosts)
	for i, n := range t.Nodes[:t.Hosts] {
		index[n.Name] = i
	}
	place := make([]int, len(t.Nodes)) // new index by old index
	for i := range place {
		place[i] = -1
	}
	for i, name := range names {
		old, ok := index[name]
		if !ok {
			return fmt.Errorf("machine %q is no host of the topology", name)
		}
		if place[old] >= 0 {
			return fmt.Errorf("there are two machines with the name %q", name)
		}
		place[old] = i
	}
	next := len(names)
	nodes := make([]Node, len(t.Nodes))
	for old, n := range t.Nodes {
		if place[old] < 0 {
			place[old] = next
			next++
		}
		nodes[place[old]] = n
	}
	t.Nodes = nodes
	for i := range t.Links {
		t.Links[i].A, t.Links[i].B = place[t.Links[i].A], place[t.Links[i].B]
	}
	return nil
}

// Validate returns an error if a topology exceeds a bound, has a value out of range or two links between the same
// nodes, or if a host has no path to another.
func (t *Topology) Validate() error {
	if err := t.bounds(); err != nil {
		return err
	}
	type pair struct{ a, b int }
	joined := make(map[pair]bool, len(t.Links))
	for i, l := range t.Links {
		if l.A < 0 || l.B < 0 || l.A >= len(t.Nodes) || l.B >= len(t.Nodes) {
			return fmt.Errorf("topology: link %d joins nodes %d and %d, there are %d", i, l.A, l.B, len(t.Nodes))
		}
		key := pair{min(l.A, l.B), max(l.A, l.B)}
		if err := l.check(); err != nil {
			return fmt.Errorf("topology: link of %s and %s: %w", t.Nodes[l.A].Name, t.Nodes[l.B].Name, err)
		}
		if joined[key] {
			return fmt.Errorf("topology: %s and %s are joined by two links: make them one with the sum of their bandwidth", t.Nodes[l.A].Name, t.Nodes[l.B].Name)
		}
		joined[key] = true
	}
	if a, b := t.apart(); a >= 0 {
		return fmt.Errorf("topology: host %s has no path to host %s", t.Nodes[b].Name, t.Nodes[a].Name)
	}
	return nil
}

func (t *Topology) bounds() error {
	switch {
	case t.Hosts < 1:
		return errors.New("topology: there is no host")
	case t.Hosts > MaxHosts:
		return fmt.Errorf("topology: %d hosts: at most %d are supported", t.Hosts, MaxHosts)
	case len(t.Nodes)-t.Hosts > MaxSwitches:
		return fmt.Errorf("topology: %d switches: at most %d are supported", len(t.Nodes)-t.Hosts, MaxSwitches)
	case len(t.Links) > MaxLinks:
		return fmt.Errorf("topology: %d links: at most %d are supported", len(t.Links), MaxLinks)
	}
	return nil
}

func (l Link) check() error {
	switch {
	case l.A == l.B:
		return errors.New("it leads to the node that it comes from")
	case l.Latency < 0 || l.Latency > time.Minute:
		return fmt.Errorf("latency %v: want 0 to 1m", l.Latency)
	case l.Bandwidth < 1000 || l.Bandwidth > 1e15:
		return fmt.Errorf("bandwidth %d bits a second: want 1kbps to 1000Tbps", l.Bandwidth)
	case !(l.Loss >= 0 && l.Loss < 1):
		return fmt.Errorf("loss %v: want at least 0 and less than 1", l.Loss)
	}
	return nil
}

// setTiers sets the tier of each node: the number of links to the nearest host.
func (t *Topology) setTiers() {
	near := t.neighbours()
	queue := make([]int, 0, len(t.Nodes))
	for i := range t.Nodes {
		t.Nodes[i].Tier = -1
		if i < t.Hosts {
			t.Nodes[i].Tier = 0
			queue = append(queue, i)
		}
	}
	for len(queue) > 0 {
		n := queue[0]
		queue = queue[1:]
		for _, m := range near[n] {
			if t.Nodes[m].Tier < 0 {
				t.Nodes[m].Tier = t.Nodes[n].Tier + 1
				queue = append(queue, m)
			}
		}
	}
}

// neighbours lists, for each node, the nodes to which it has a link, in ascending order.
func (t *Topology) neighbours() [][]int {
	near := make([][]int, len(t.Nodes))
	for _, l := range t.Links {
		near[l.A] = append(near[l.A], l.B)
		near[l.B] = append(near[l.B], l.A)
	}
	for _, n := range near {
		slices.SortFunc(n, cmp.Compare)
	}
	return near
}
