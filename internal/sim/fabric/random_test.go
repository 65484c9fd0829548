package fabric

import (
	"fmt"
	"math"
	"testing"
	"time"

	"gonum.org/v1/gonum/graph/path"
	"gonum.org/v1/gonum/graph/simple"
	"pgregory.net/rapid"
)

// anyTopology draws hosts with one or two links, direct links, and a network of switches with cycles.
func anyTopology(t *rapid.T) *Topology {
	hosts := rapid.IntRange(2, 6).Draw(t, "hosts")
	count := rapid.IntRange(1, 6).Draw(t, "switches")
	top := &Topology{Hosts: hosts}
	for i := range hosts {
		top.Nodes = append(top.Nodes, Node{Name: fmt.Sprintf("h%d", i)})
	}
	for i := range count {
		top.Nodes = append(top.Nodes, Node{Name: fmt.Sprintf("s%d", i)})
	}
	joined := map[[2]int]bool{}
	join := func(a, b int) {
		if a == b || joined[[2]int{min(a, b), max(a, b)}] {
			return
		}
		joined[[2]int{min(a, b), max(a, b)}] = true
		top.Links = append(top.Links, Link{
			A: a, B: b,
			Latency:   time.Duration(rapid.IntRange(0, 3).Draw(t, "latency")) * time.Microsecond,
			Bandwidth: rapid.SampledFrom([]Bandwidth{Gbps, 10 * Gbps}).Draw(t, "bandwidth"),
		})
	}
	for i := 1; i < count; i++ {
		join(hosts+i, hosts+rapid.IntRange(0, i-1).Draw(t, "tree"))
	}
	for range rapid.IntRange(0, 8).Draw(t, "more links") {
		join(hosts+rapid.IntRange(0, count-1).Draw(t, "a"), hosts+rapid.IntRange(0, count-1).Draw(t, "b"))
	}
	for h := range hosts {
		for range rapid.IntRange(1, 2).Draw(t, "uplinks") {
			join(h, hosts+rapid.IntRange(0, count-1).Draw(t, "switch"))
		}
	}
	if rapid.Bool().Draw(t, "direct link") {
		join(0, 1)
	}
	if err := top.Validate(); err != nil {
		t.Fatal(err)
	}
	return top
}

// cheapest returns the cost of the cheapest path over working links, by gonum on a graph in which no path leads through
// a host. Without a path it is infinite.
func cheapest(top *Topology, works func(link int) bool, from, to int) float64 {
	g := simple.NewWeightedUndirectedGraph(0, math.Inf(1))
	for i := range top.Nodes {
		if i >= top.Hosts || i == from || i == to {
			g.AddNode(simple.Node(i))
		}
	}
	for i, l := range top.Links {
		if works(i) && g.Node(int64(l.A)) != nil && g.Node(int64(l.B)) != nil {
			g.SetWeightedEdge(simple.WeightedEdge{F: simple.Node(l.A), T: simple.Node(l.B), W: float64(l.Weight())})
		}
	}
	return path.DijkstraFrom(simple.Node(from), g).WeightTo(int64(to))
}

// A message arrives exactly if routers know a path and its links work while the message is on them. If routers learn at
// once and no fault happens during its flight, it arrives exactly if there is a path.
func TestMessagesArriveIfThereIsAPath(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		top := anyTopology(t)
		cfg := DefaultConfig()
		cfg.Convergence = rapid.SampledFrom([]time.Duration{0, 10 * time.Millisecond}).Draw(t, "convergence")
		c := &Clock{}
		f, err := New(cfg, top, c)
		if err != nil {
			t.Fatal(err)
		}
		known := make([]bool, len(top.Links)) // to the routers, as dead
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			from, to := rapid.IntRange(0, top.Hosts-1).Draw(t, "from"), rapid.IntRange(0, top.Hosts-1).Draw(t, "to")
			believed := cheapest(top, func(l int) bool { return !known[l] }, from, to)
			checkPath(t, f, top, from, to, believed)
			way := f.Path(from, to)
			sent := c.Now()
			arrived := time.Duration(-1)
			f.Send(from, to, 100, func() { arrived = c.Now() })
			// A link fails or works again while the message is under way, or long after.
			link := rapid.IntRange(0, len(top.Links)-1).Draw(t, "link")
			works := rapid.Bool().Draw(t, "works")
			after := time.Duration(rapid.IntRange(0, 9000).Draw(t, "after"))
			before := wireStates(f)
			c.At(sent+after, func() { f.SetLink(link, works) })
			c.Run(sent + 5*time.Millisecond)
			want, at := len(way) > 0, sent
			for i := 1; i < len(way); i++ {
				l := cable(&testing.T{}, top, way[i-1], way[i])
				leaves := at + time.Duration(math.Ceil(100*8e9/float64(top.Links[l].Bandwidth))) + top.Links[l].Latency
				dead := before[l]
				if l == link && !works {
					dead = dead || sent+after <= leaves
				}
				if l == link && works && before[l] {
					dead = sent+after >= at
				}
				want = want && !dead
				at = leaves
			}
			if got := arrived >= 0; got != want || got && arrived != at {
				t.Fatalf("%d to %d over %v, link %d works=%v after %v: arrived at %v, want %v at %v", from, to, way, link, works, after, arrived-sent, want, at-sent)
			}
			c.Run(sent + time.Second)
			for l, w := range f.wires {
				known[l] = w.down > 0
			}
		}
	})
}

func wireStates(f *Fabric) []bool {
	dead := make([]bool, len(f.wires))
	for l, w := range f.wires {
		dead[l] = w.down > 0
	}
	return dead
}

// checkPath compares cost, hops and path with the cheapest path.
func checkPath(t *rapid.T, f *Fabric, top *Topology, from, to int, want float64) {
	p := f.Path(from, to)
	if from == to {
		if len(p) != 1 || f.Cost(from, to) != 0 || f.Hops(from, to) != 0 {
			t.Fatalf("path to itself %v, want one without cost and hops", p)
		}
		return
	}
	if math.IsInf(want, 1) {
		if p != nil || f.Cost(from, to) != NoPath || f.Hops(from, to) != -1 || f.Reachable(from, to) {
			t.Fatalf("%d to %d: path %v of cost %v, want none", from, to, p, f.Cost(from, to))
		}
		return
	}
	cost := time.Duration(0)
	for i := 1; i < len(p); i++ {
		cost += top.Links[cable(&testing.T{}, top, p[i-1], p[i])].Weight()
		if i < len(p)-1 && p[i] < top.Hosts {
			t.Fatalf("the path %v leads through a host", p)
		}
	}
	if p == nil || float64(cost) != want || f.Cost(from, to) != cost || f.Hops(from, to) < 1 {
		t.Fatalf("%d to %d: path %v of cost %v, Cost %v, %d hops, want cost %v", from, to, p, cost, f.Cost(from, to), f.Hops(from, to), time.Duration(want))
	}
}
