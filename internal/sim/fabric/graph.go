package fabric

// The network of switches as a graph of gonum.

import (
	"math"

	"gonum.org/v1/gonum/graph"
	"gonum.org/v1/gonum/graph/simple"
)

// switches is the graph of the switches and of the links between them that routers believe to work. It implements
// traverse.Graph and path.Weighted on the same slices that are used to route messages.
type switches struct {
	r     *routes
	nodes []graph.Node // by switch, made once
	at    neighbours   // of the node that was last asked for
}

func newSwitches(r *routes, count int) *switches {
	g := &switches{r: r, nodes: make([]graph.Node, count)}
	for s := range g.nodes {
		g.nodes[s] = simple.Node(r.hosts + s)
	}
	return g
}

// From lists the switches that a switch has links to. The list is valid until the next call.
func (g *switches) From(id int64) graph.Nodes {
	g.at = neighbours{g: g, from: id, next: -1}
	return &g.at
}

// Edge returns the link between two switches, nil if there is none.
func (g *switches) Edge(from, to int64) graph.Edge {
	if w, ok := g.Weight(from, to); ok {
		return simple.WeightedEdge{F: simple.Node(from), T: simple.Node(to), W: w}
	}
	return nil
}

// Weight returns the cost of the link between two switches in nanoseconds.
func (g *switches) Weight(from, to int64) (float64, bool) {
	if g.at.from == from && g.at.next >= 0 { // Dijkstra asks for the neighbour that it has just got
		if a := g.r.arcs[from][g.at.next]; int64(a.to) == to {
			return float64(a.weight), true
		}
	}
	if from == to {
		return 0, true
	}
	for _, a := range g.r.arcs[from] {
		if int64(a.to) == to && !g.r.dead[a.link>>1] {
			return float64(a.weight), true
		}
	}
	return math.Inf(1), false
}

// neighbours is an iterator over the switches that a switch has links to.
type neighbours struct {
	g    *switches
	from int64
	next int
}

// Next moves to the next neighbour.
func (n *neighbours) Next() bool {
	arcs := n.g.r.arcs[n.from]
	for n.next++; n.next < len(arcs); n.next++ {
		if a := arcs[n.next]; int(a.to) >= n.g.r.hosts && !n.g.r.dead[a.link>>1] {
			return true
		}
	}
	n.next = -1
	return false
}

// Node returns the present neighbour.
func (n *neighbours) Node() graph.Node {
	return n.g.nodes[int(n.g.r.arcs[n.from][n.next].to)-n.g.r.hosts]
}

// Len returns -1: the number of neighbours is not known in advance.
func (n *neighbours) Len() int { return -1 }

// Reset goes back to the beginning.
func (n *neighbours) Reset() { n.next = -1 }
