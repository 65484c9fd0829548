package gossip

// An overlay of low diameter and bounded degree whose edges are short, found by local search.

import (
	"fmt"
	"math/bits"
	"math/rand/v2"
	"slices"
	"time"
)

// shape is what the speed of an overlay depends on: distances between hosts, in edges.
type shape struct {
	connected bool
	diameter  int
	mean      float64 // over all pairs of hosts
}

// shape measures all pairs. The sets of hosts that have been reached from each host grow by one edge at a time, as sets of
// bits, so that 64 pairs are one operation.
func (o Overlay) shape() shape {
	n := len(o.Peers)
	words := (n + 63) / 64
	reached, next := make([]uint64, n*words), make([]uint64, n*words)
	for h := range n {
		reached[h*words+h/64] |= 1 << (h % 64)
	}
	var s shape
	sum, before := 0, n
	for before < n*n {
		copy(next, reached)
		for h, peers := range o.Peers {
			row := next[h*words : (h+1)*words]
			for _, p := range peers {
				for w, x := range reached[int(p)*words : (int(p)+1)*words] {
					row[w] |= x
				}
			}
		}
		reached, next = next, reached
		count := 0
		for _, x := range reached {
			count += bits.OnesCount64(x)
		}
		if count == before {
			return s
		}
		s.diameter++
		sum += (count - before) * s.diameter
		before = count
	}
	s.connected = true
	if n > 1 {
		s.mean = float64(sum) / float64(n) / float64(n-1)
	}
	return s
}

// effort is how many operations on 64 pairs the search for a better overlay may take: some tenths of a second.
const effort = 300_000_000

// maxSwaps bounds the swaps that are tried.
const maxSwaps = 50_000

// Optimised returns an overlay in which no host has more than degree peers (at least 3). It begins with a ring along a
// minimum spanning tree, so that neighbours are near, and random chords. Then pairs of edges swap their ends as long as
// that improves the overlay. Better means smaller mean distance and diameter in edges, and a smaller cost of its edges
// compared with that of any pair of hosts.
func Optimised(net Coster, hosts, degree int, seed uint64) Overlay {
	degree = max(degree, 3)
	r := rand.New(rand.NewPCG(seed, 0x73776170))
	order := depthFirst(SpanningTree(net, hosts, degree), net)
	edges := ring(order)
	edges = append(edges, chords(edges, hosts, degree, r)...)
	o := newOverlay(fmt.Sprintf("optimised of degree %d", degree), hosts, edges)
	s := search{net: net, random: r, o: o, edges: o.edges(), pair: meanCost(net, hosts, r)}
	s.run()
	return s.o
}

// chords joins random hosts, until nearly all have degree peers.
func chords(ring []edge, hosts, degree int, r *rand.Rand) []edge {
	used := make([]int, hosts)
	taken := map[edge]bool{}
	for _, e := range ring {
		used[e.a]++
		used[e.b]++
		taken[edge{min(e.a, e.b), max(e.a, e.b)}] = true
	}
	var found []edge
	for range (degree - 2) * hosts * 2 {
		a, b := int32(r.IntN(hosts)), int32(r.IntN(hosts))
		e := edge{min(a, b), max(a, b)}
		if a != b && used[a] < degree && used[b] < degree && !taken[e] {
			used[a]++
			used[b]++
			taken[e] = true
			found = append(found, e)
		}
	}
	return found
}

// meanCost returns the mean cost between two hosts, from a sample.
func meanCost(net Coster, hosts int, r *rand.Rand) float64 {
	const sample = 10_000
	var sum time.Duration
	for range sample {
		sum += net.Cost(r.IntN(hosts), r.IntN(hosts))
	}
	return max(float64(sum)/sample, 1)
}

// search is the local search for a better overlay.
type search struct {
	net    Coster
	random *rand.Rand
	o      Overlay
	edges  []edge
	cost   time.Duration // of all edges together
	pair   float64       // mean cost between two hosts
}

func (s *search) run() {
	for _, e := range s.edges {
		s.cost += s.net.Cost(int(e.a), int(e.b))
	}
	n := len(s.o.Peers)
	if n < 4 {
		return
	}
	best := s.value()
	step := max(len(s.edges)*((n+63)/64)*12, 1) // operations of one measurement, with six rounds
	left := effort / step
	for swaps := 0; swaps < maxSwaps && left > 0; swaps++ {
		i, j := s.random.IntN(len(s.edges)), s.random.IntN(len(s.edges))
		if s.random.IntN(2) == 0 {
			s.edges[j].a, s.edges[j].b = s.edges[j].b, s.edges[j].a
		}
		cost := s.cost
		if !s.swap(i, j) {
			continue
		}
		if s.cost >= cost && s.random.IntN(8) != 0 { // most swaps with a higher cost are no better, so few of them are measured
			s.swap(i, j)
			continue
		}
		left--
		if v := s.value(); v < best {
			best = v
		} else {
			s.swap(i, j) // swaps back
		}
	}
}

// value returns what the search minimizes.
func (s *search) value() float64 {
	x := s.o.shape()
	if !x.connected {
		return float64(len(s.o.Peers)) * 2
	}
	return x.mean + float64(x.diameter) + 4*float64(s.cost)/float64(len(s.edges))/s.pair
}

// swap makes the edges a-b and c-d into a-d and c-b, unless one of those exists. The same swap again undoes it.
func (s *search) swap(i, j int) bool {
	e, f := s.edges[i], s.edges[j]
	if e.a == f.b || f.a == e.b || e.a == f.a || e.b == f.b || s.joined(e.a, f.b) || s.joined(f.a, e.b) {
		return false
	}
	s.unjoin(e)
	s.unjoin(f)
	s.edges[i], s.edges[j] = edge{e.a, f.b}, edge{f.a, e.b}
	s.join(s.edges[i])
	s.join(s.edges[j])
	return true
}

func (s *search) joined(a, b int32) bool {
	_, ok := slices.BinarySearch(s.o.Peers[a], b)
	return ok
}

func (s *search) join(e edge) {
	for _, x := range []edge{e, {e.b, e.a}} {
		i, _ := slices.BinarySearch(s.o.Peers[x.a], x.b)
		s.o.Peers[x.a] = slices.Insert(s.o.Peers[x.a], i, x.b)
	}
	s.cost += s.net.Cost(int(e.a), int(e.b))
}

func (s *search) unjoin(e edge) {
	for _, x := range []edge{e, {e.b, e.a}} {
		i, _ := slices.BinarySearch(s.o.Peers[x.a], x.b)
		s.o.Peers[x.a] = slices.Delete(s.o.Peers[x.a], i, i+1)
	}
	s.cost -= s.net.Cost(int(e.a), int(e.b))
}
