package fabric

// The usual shapes of a data center: leaf-spine and fat-tree.

import (
	"fmt"
	"time"
)

// LeafSpine is a network in which each host is joined to one leaf, and each leaf to each spine.
type LeafSpine struct {
	Spines, Leaves int
	Hosts          int // of a full leaf
	// Machines is the number of all hosts; 0: Leaves times Hosts. Leaves are filled one after the other.
	Machines int
	// Oversubscription is the bandwidth of a full leaf's hosts, divided by that of its links to the spines.
	Oversubscription float64
	Bandwidth        Bandwidth     // of a host
	HostLatency      time.Duration // of a link between host and leaf
	SpineLatency     time.Duration // of a link between leaf and spine
}

// DefaultLeafSpine returns a small data center: 16 racks of 32 hosts with 25 Gb/s each, and four spines.
func DefaultLeafSpine() LeafSpine {
	return LeafSpine{
		Spines: 4, Leaves: 16, Hosts: 32, Oversubscription: 2, Bandwidth: 25 * Gbps,
		HostLatency: time.Microsecond, SpineLatency: 2 * time.Microsecond,
	}
}

// Build lays out the network. Host i is on leaf i/Hosts.
func (c LeafSpine) Build() (*Topology, error) {
	if err := c.check(); err != nil {
		return nil, fmt.Errorf("leaf-spine: %w", err)
	}
	hosts := c.Leaves * c.Hosts
	if c.Machines > 0 {
		hosts = c.Machines
	}
	t := &Topology{Hosts: hosts}
	for h := range hosts {
		t.Nodes = append(t.Nodes, Node{Name: fmt.Sprintf("host%d", h)})
		t.Links = append(t.Links, Link{A: h, B: hosts + h/c.Hosts, Latency: c.HostLatency, Bandwidth: c.Bandwidth})
	}
	for l := range c.Leaves {
		t.Nodes = append(t.Nodes, Node{Name: fmt.Sprintf("leaf%d", l), Tier: 1})
	}
	up := Bandwidth(float64(c.Bandwidth) * float64(c.Hosts) / c.Oversubscription / float64(c.Spines))
	for s := range c.Spines {
		t.Nodes = append(t.Nodes, Node{Name: fmt.Sprintf("spine%d", s), Tier: 2})
		for l := range c.Leaves {
			t.Links = append(t.Links, Link{A: hosts + l, B: hosts + c.Leaves + s, Latency: c.SpineLatency, Bandwidth: up})
		}
	}
	return t, t.Validate()
}

func (c LeafSpine) check() error {
	switch {
	case c.Spines < 1 || c.Leaves < 1 || c.Hosts < 1:
		return fmt.Errorf("%d spines, %d leaves, %d hosts: want at least 1 of each", c.Spines, c.Leaves, c.Hosts)
	case c.Leaves > MaxSwitches || c.Spines > MaxSwitches || c.Leaves+c.Spines > MaxSwitches:
		return fmt.Errorf("%d spines and %d leaves: at most %d switches are supported", c.Spines, c.Leaves, MaxSwitches)
	case c.Hosts > MaxHosts || c.Leaves*c.Hosts > MaxHosts:
		return fmt.Errorf("%d leaves of %d hosts: at most %d hosts are supported", c.Leaves, c.Hosts, MaxHosts)
	case c.Machines < 0 || c.Machines > c.Leaves*c.Hosts:
		return fmt.Errorf("%d machines do not fit on %d leaves of %d hosts", c.Machines, c.Leaves, c.Hosts)
	case !(c.Oversubscription >= 0.01 && c.Oversubscription <= 1000):
		return fmt.Errorf("oversubscription %v: want 0.01 to 1000; with 1, the spines carry all that the hosts send", c.Oversubscription)
	}
	return nil
}

// FatTree is a fat-tree of switches with K ports: K pods of K/2 leaves and K/2 aggregation switches, (K/2)² core switches,
// and K/2 hosts on each leaf. All links have the same bandwidth and latency.
type FatTree struct {
	K         int // even
	Machines  int // number of hosts; 0: K³/4
	Bandwidth Bandwidth
	Latency   time.Duration // of each link
}

// Build lays out the network. Host i is on leaf i/(K/2).
func (c FatTree) Build() (*Topology, error) {
	if c.K < 2 || c.K%2 != 0 {
		return nil, fmt.Errorf("fat-tree: k is %d: want an even number from 2", c.K)
	}
	if c.K > 56 {
		return nil, fmt.Errorf("fat-tree: k is %d: at most 56 is supported, which has 43904 hosts", c.K)
	}
	half := c.K / 2
	hosts := c.K * half * half
	if c.Machines < 0 || c.Machines > hosts {
		return nil, fmt.Errorf("fat-tree: %d machines do not fit: k %d has %d hosts", c.Machines, c.K, hosts)
	}
	if c.Machines > 0 {
		hosts = c.Machines
	}
	t := &Topology{Hosts: hosts}
	join := func(a, b int) {
		t.Links = append(t.Links, Link{A: a, B: b, Latency: c.Latency, Bandwidth: c.Bandwidth})
	}
	leaf := func(pod, i int) int { return hosts + pod*half + i }
	agg := func(pod, i int) int { return hosts + c.K*half + pod*half + i }
	core := func(i int) int { return hosts + 2*c.K*half + i }
	for h := range hosts {
		t.Nodes = append(t.Nodes, Node{Name: fmt.Sprintf("host%d", h)})
		join(h, hosts+h/half)
	}
	for l := range c.K * half {
		t.Nodes = append(t.Nodes, Node{Name: fmt.Sprintf("leaf%d", l), Tier: 1})
	}
	for pod := range c.K {
		for i := range half {
			t.Nodes = append(t.Nodes, Node{Name: fmt.Sprintf("agg%d", pod*half+i), Tier: 2})
			for j := range half {
				join(leaf(pod, j), agg(pod, i))
				join(agg(pod, i), core(i*half+j))
			}
		}
	}
	for i := range half * half {
		t.Nodes = append(t.Nodes, Node{Name: fmt.Sprintf("core%d", i), Tier: 3})
	}
	return t, t.Validate()
}
