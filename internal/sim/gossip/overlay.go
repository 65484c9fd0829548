package gossip

// Overlays: which hosts pass news to each other.

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// Coster knows what it costs to send from one host to another, as fabric.Fabric does.
type Coster interface {
	Cost(from, to int) time.Duration
}

// Overlay is a connected graph of hosts.
type Overlay struct {
	Name  string
	Peers [][]int32 // of each host, in ascending order; if a is a peer of b, b is one of a
}

// edge joins two hosts.
type edge struct{ a, b int32 }

// newOverlay makes an overlay of edges. A duplicate edge counts once.
func newOverlay(name string, hosts int, edges []edge) Overlay {
	o := Overlay{Name: name, Peers: make([][]int32, hosts)}
	for _, e := range edges {
		if e.a != e.b {
			o.Peers[e.a] = append(o.Peers[e.a], e.b)
			o.Peers[e.b] = append(o.Peers[e.b], e.a)
		}
	}
	for i, p := range o.Peers {
		slices.Sort(p)
		o.Peers[i] = slices.Compact(p)
	}
	return o
}

// edges lists each edge once, in the order of its hosts.
func (o Overlay) edges() []edge {
	var edges []edge
	for a, peers := range o.Peers {
		for _, b := range peers {
			if int32(a) < b {
				edges = append(edges, edge{int32(a), b})
			}
		}
	}
	return edges
}

// Validate returns an error if an overlay is not valid: if a peer does not exist or does not have this host as a peer,
// or if parts are not joined.
func (o Overlay) Validate() error {
	for a, peers := range o.Peers {
		for i, b := range peers {
			if b < 0 || int(b) >= len(o.Peers) || int(b) == a {
				return fmt.Errorf("overlay %s: host %d has the peer %d", o.Name, a, b)
			}
			if i > 0 && peers[i-1] >= b {
				return fmt.Errorf("overlay %s: the peers of host %d are not in ascending order", o.Name, a)
			}
			if _, ok := slices.BinarySearch(o.Peers[b], int32(a)); !ok {
				return fmt.Errorf("overlay %s: host %d is no peer of its peer %d", o.Name, a, b)
			}
		}
	}
	if len(o.Peers) == 0 {
		return fmt.Errorf("overlay %s: it has no host", o.Name)
	}
	if s := o.shape(); !s.connected {
		return fmt.Errorf("overlay %s: not all hosts are joined", o.Name)
	}
	return nil
}

// Random returns an overlay in which each host has up to degree random peers: degree/2 rings through all hosts in
// random orders, and random pairs if the degree is odd. So it is connected.
func Random(hosts, degree int, seed uint64) Overlay {
	r := rand.New(rand.NewPCG(seed, 0x72616e646f6d))
	var edges []edge
	for range max(degree/2, 1) {
		edges = append(edges, ring(r.Perm(hosts))...)
	}
	if degree%2 == 1 && degree > 2 {
		for p := r.Perm(hosts); len(p) >= 2; p = p[2:] {
			edges = append(edges, edge{int32(p[0]), int32(p[1])})
		}
	}
	return newOverlay(fmt.Sprintf("random of degree %d", degree), hosts, edges)
}

func ring(order []int) []edge {
	edges := make([]edge, 0, len(order))
	for i, a := range order {
		edges = append(edges, edge{int32(a), int32(order[(i+1)%len(order)])})
	}
	return edges
}

// Complete joins each host with all others: the best possible knowledge, at the highest price.
func Complete(hosts int) Overlay {
	var edges []edge
	for a := range hosts {
		for b := range a {
			edges = append(edges, edge{int32(b), int32(a)})
		}
	}
	return newOverlay("all to all", hosts, edges)
}

// SpanningTree returns a minimum spanning tree of the path costs between hosts. Most costs in a data center are equal.
// Of equal choices it takes those that keep the tree shallow, and give no host more than degree peers if possible.
func SpanningTree(net Coster, hosts, degree int) Overlay {
	return newOverlay("spanning tree", hosts, prim(net, hosts, degree))
}

// prim runs Prim's algorithm on the complete graph of hosts, from host 0. It takes time in proportion to hosts², and
// memory in proportion to hosts; that of gonum needs the whole graph in memory.
func prim(net Coster, hosts, degree int) []edge {
	nearest := make([]time.Duration, hosts) // by host: the cost of its cheapest edge to the tree
	var outside []int
	for h := 1; h < hosts; h++ {
		nearest[h] = net.Cost(0, h)
		outside = append(outside, h)
	}
	t := tree{net: net, hosts: []int{0}, depth: make([]int, hosts), peers: make([]int, hosts), degree: degree}
	var edges []edge
	for len(outside) > 0 {
		best := 0
		for i, h := range outside {
			if b := outside[best]; nearest[h] < nearest[b] || nearest[h] == nearest[b] && h < b {
				best = i
			}
		}
		next := outside[best]
		outside[best] = outside[len(outside)-1]
		outside = outside[:len(outside)-1]
		edges = append(edges, edge{int32(t.add(next, nearest[next])), int32(next)})
		for _, h := range outside {
			nearest[h] = min(nearest[h], net.Cost(next, h))
		}
	}
	return edges
}

// tree is the hosts that Prim's algorithm has reached.
type tree struct {
	net    Coster
	hosts  []int
	depth  []int // edges to host 0
	peers  []int
	degree int
}

// add joins a host to the best host of the tree to which it has an edge of this cost, and returns that host.
func (t *tree) add(host int, cost time.Duration) int {
	parent := -1
	for _, h := range t.hosts {
		if t.net.Cost(h, host) == cost && (parent < 0 || t.better(h, parent)) {
			parent = h
		}
	}
	t.peers[parent]++
	t.peers[host]++
	t.depth[host] = t.depth[parent] + 1
	t.hosts = append(t.hosts, host)
	return parent
}

// better reports whether it is better to add a host to a than to b.
func (t *tree) better(a, b int) bool {
	freeA, freeB := t.peers[a] < t.degree, t.peers[b] < t.degree
	if freeA != freeB {
		return freeA
	}
	return t.depth[a] < t.depth[b]
}

// depthFirst orders hosts along a tree, so that hosts that are near each other follow each other.
func depthFirst(tree Overlay, net Coster) []int {
	order := make([]int, 0, len(tree.Peers))
	seen := make([]bool, len(tree.Peers))
	for stack := []int{0}; len(stack) > 0; {
		h := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		if seen[h] {
			continue
		}
		seen[h] = true
		order = append(order, h)
		next := slices.Clone(tree.Peers[h])
		slices.SortFunc(next, func(a, b int32) int { // the nearest is last, so that it is taken first
			return cmp.Or(cmp.Compare(net.Cost(h, int(b)), net.Cost(h, int(a))), cmp.Compare(b, a))
		})
		for _, p := range next {
			stack = append(stack, int(p))
		}
	}
	return order
}
