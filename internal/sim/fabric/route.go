package fabric

// Routes: the cheapest paths between switches by Dijkstra, and which of several equally cheap ones a flow takes (ECMP).

import (
	"math"
	"slices"
	"time"

	"gonum.org/v1/gonum/graph/path"
)

// unreachable is the cost where there is no path.
const unreachable = int64(math.MaxInt64)

// NoPath is what Cost returns if there is no path.
const NoPath = time.Duration(math.MaxInt64)

// routes knows the paths that routers use at present, which lag behind the state of the links. Hosts are joined to
// switches, so only paths between switches are computed. The table for a switch is computed when something is first
// sent to it.
type routes struct {
	hosts  int
	arcs   [][]arc // of each node
	sole   []arc   // of each host that has one link, to a switch; its link is -1 for other hosts
	dead   []bool  // by link of the topology, as the routers know it
	ends   []int32 // by directed link: the node that it leads to
	graph  *switches
	tables []*table // by switch
	ways   []way    // for best
}

// arc is a directed link that leaves a node.
type arc struct {
	link   int32 // directed
	to     int32
	weight int64 // nanoseconds
}

// table has the way from each switch to one switch.
type table struct {
	from []leg // by switch
	next []int32
}

// leg is the way from one switch to another.
type leg struct {
	cost  int64 // nanoseconds
	first int32 // next[first:first+count] are the directed links that lead closer
	count uint16
	hops  int16 // links of the path that always takes the first of equal choices; -1 without a path
}

func newRoutes(t *Topology) *routes {
	r := &routes{
		hosts: t.Hosts, arcs: make([][]arc, len(t.Nodes)), dead: make([]bool, len(t.Links)), ends: make([]int32, 2*len(t.Links)),
		tables: make([]*table, len(t.Nodes)-t.Hosts), sole: make([]arc, t.Hosts),
	}
	for i, l := range t.Links {
		w := int64(l.Weight())
		r.arcs[l.A] = append(r.arcs[l.A], arc{link: int32(2 * i), to: int32(l.B), weight: w})
		r.arcs[l.B] = append(r.arcs[l.B], arc{link: int32(2*i + 1), to: int32(l.A), weight: w})
		r.ends[2*i], r.ends[2*i+1] = int32(l.B), int32(l.A)
	}
	for h := range t.Hosts {
		r.sole[h].link = -1
		if a := r.arcs[h]; len(a) == 1 && int(a[0].to) >= t.Hosts {
			r.sole[h] = a[0]
		}
	}
	r.graph = newSwitches(r, len(r.tables))
	return r
}

// learn makes the routers know the state of some links. If they join switches, all tables are dropped.
func (r *routes) learn(t *Topology, links []int, dead bool) {
	dropped := false
	for _, i := range links {
		if r.dead[i] == dead {
			continue
		}
		r.dead[i] = dead
		if l := t.Links[i]; l.A >= t.Hosts && l.B >= t.Hosts {
			dropped = true
		}
	}
	if dropped {
		clear(r.tables)
	}
}

// to returns the table of a switch.
func (r *routes) to(sw int32) *table {
	if t := r.tables[int(sw)-r.hosts]; t != nil {
		return t
	}
	t := r.compute(int(sw))
	r.tables[int(sw)-r.hosts] = t
	return t
}

// compute runs Dijkstra from a switch. Links are the same in both directions, so that these are the costs to it. Weights
// are whole nanoseconds, at least one, and bounded by Validate, so that float64 holds their sums exactly.
func (r *routes) compute(sw int) *table {
	t := &table{from: make([]leg, len(r.tables))}
	shortest := path.DijkstraFrom(r.graph.nodes[sw-r.hosts], r.graph)
	for s := range t.from {
		t.from[s].cost = unreachable
		if w := shortest.WeightTo(int64(r.hosts + s)); !math.IsInf(w, 1) {
			t.from[s].cost = int64(w)
		}
	}
	for s := range t.from {
		x := &t.from[s]
		x.first = int32(len(t.next))
		if s == sw-r.hosts || x.cost == unreachable {
			continue
		}
		for _, a := range r.arcs[r.hosts+s] {
			if int(a.to) < r.hosts || r.dead[a.link>>1] {
				continue
			}
			if c := t.from[int(a.to)-r.hosts].cost; c != unreachable && c+a.weight == x.cost {
				t.next = append(t.next, a.link)
			}
		}
		x.count = uint16(int32(len(t.next)) - x.first)
	}
	for s := range t.from {
		t.count(r, s, sw-r.hosts)
	}
	return t
}

// count sets the hops of a switch. It follows the first choices until a switch whose hops are known.
func (t *table) count(r *routes, s, sw int) {
	var way []int
	for s != sw && t.from[s].hops == 0 {
		if t.from[s].count == 0 {
			t.from[s].hops = -1
			break
		}
		way = append(way, s)
		s = int(r.ends[t.next[t.from[s].first]]) - r.hosts
	}
	hops := t.from[s].hops
	for _, s := range slices.Backward(way) {
		hops++
		t.from[s].hops = hops
	}
}

// way is a choice of the first and last link of a path between two hosts.
type way struct {
	first, last arc // the link from a host to its switch; the last one is used backwards
	direct      bool
	cost        int64
}

// best returns the cheapest way between two hosts, its cost in nanoseconds, and how many ways are as cheap. If there
// are several, it returns the one with number pick modulo their count.
func (r *routes) best(from, to int, pick uint64) (w way, cost int64, count int) {
	if a, b := r.sole[from], r.sole[to]; a.link >= 0 && b.link >= 0 { // the usual case
		c := r.to(b.to).from[int(a.to)-r.hosts].cost
		if c == unreachable || r.dead[a.link>>1] || r.dead[b.link>>1] {
			return w, unreachable, 0
		}
		return way{first: a, last: b}, a.weight + c + b.weight, 1
	}
	cost = unreachable
	r.ways = r.ways[:0]
	for _, a := range r.arcs[from] {
		if !r.dead[a.link>>1] {
			r.waysOver(a, to)
		}
	}
	for _, w := range r.ways {
		cost = min(cost, w.cost)
	}
	cheapest := slices.DeleteFunc(r.ways, func(w way) bool { return w.cost > cost })
	if len(cheapest) == 0 {
		return w, unreachable, 0
	}
	return cheapest[pick%uint64(len(cheapest))], cost, len(cheapest)
}

// waysOver adds the ways to a host whose first link is a.
func (r *routes) waysOver(a arc, to int) {
	if int(a.to) < r.hosts {
		if int(a.to) == to {
			r.ways = append(r.ways, way{first: a, direct: true, cost: a.weight})
		}
		return
	}
	for _, b := range r.arcs[to] {
		if int(b.to) < r.hosts || r.dead[b.link>>1] {
			continue
		}
		if c := r.to(b.to).from[int(a.to)-r.hosts].cost; c != unreachable {
			r.ways = append(r.ways, way{first: a, last: b, cost: a.weight + c + b.weight})
		}
	}
}

// path appends the directed links from one host to another that a flow with this hash takes, nothing if there is no path.
func (r *routes) path(from, to int, hash uint64, buf []int32) []int32 {
	w, _, ways := r.best(from, to, hash)
	if ways == 0 {
		return buf
	}
	buf = append(buf, w.first.link)
	if w.direct {
		return buf
	}
	t := r.to(w.last.to)
	for at := w.first.to; at != w.last.to; {
		x := &t.from[int(at)-r.hosts]
		choices := t.next[x.first : x.first+int32(x.count)]
		l := choices[0]
		if len(choices) > 1 {
			h := mix(hash + uint64(at))
			l = choices[(h>>32)*uint64(len(choices))>>32]
		}
		buf = append(buf, l)
		at = r.ends[l]
	}
	return append(buf, w.last.link^1)
}

// Cost returns the cost of the cheapest path between two hosts that the routers know: the sum of the weights of its
// links. It returns NoPath if there is no path, and 0 for the same host.
func (f *Fabric) Cost(from, to int) time.Duration {
	if from == to {
		return 0
	}
	_, cost, _ := f.routes.best(from, to, 0)
	return time.Duration(cost)
}

// Hops returns how many links the path between two hosts has: 0 for the same host, -1 without a path. Of several
// cheapest paths it takes the first.
func (f *Fabric) Hops(from, to int) int {
	if from == to {
		return 0
	}
	w, _, ways := f.routes.best(from, to, 0)
	switch {
	case ways == 0:
		return -1
	case w.direct:
		return 1
	}
	return 2 + int(f.routes.to(w.last.to).from[int(w.first.to)-f.routes.hosts].hops)
}

// Reachable reports whether a message that is sent now would arrive if nothing changes: the routers know a path, and
// its links work. It ignores loss. A host reaches itself.
func (f *Fabric) Reachable(from, to int) bool {
	if from == to {
		return true
	}
	f.path = f.routes.path(from, to, f.hash(from, to, 0), f.path[:0])
	for _, l := range f.path {
		if f.wires[l>>1].down > 0 {
			return false
		}
	}
	return len(f.path) > 0
}

// Path lists the nodes that messages from one host to another pass, both hosts included; nil without a path.
func (f *Fabric) Path(from, to int) []int {
	if from == to {
		return []int{from}
	}
	f.path = f.routes.path(from, to, f.hash(from, to, 0), f.path[:0])
	if len(f.path) == 0 {
		return nil
	}
	nodes := []int{from}
	for _, l := range f.path {
		nodes = append(nodes, int(f.routes.ends[l]))
	}
	return nodes
}
