package fabric

// Faults: dead links, dead hosts and switches, partitions; and the change of routes that follows after a while.

import (
	"math"
	"slices"
	"time"
)

// wire is both directions of a link: whether it works, and when it did not.
type wire struct {
	down  int // how many faults it has at present
	spans []span
}

// span is a time in which a link was dead, both ends included. It ends at math.MaxInt64 while the link is dead.
type span struct{ from, to int64 }

// maxSpans bounds the spans that are remembered of a link that fails again and again. No message is under way through
// that many.
const maxSpans = 64

// deadWithin reports whether the link was dead at some time from a to b.
func (w *wire) deadWithin(a, b int64) bool {
	for _, s := range slices.Backward(w.spans) {
		if s.from <= b && s.to >= a {
			return true
		}
	}
	return false
}

// faults are the links and nodes that were made to fail.
type faults struct {
	links   []bool
	nodes   []bool
	of      [][]int // links of each node
	changes int     // how often links have changed their state so far
}

func newFaults(t *Topology) faults {
	x := faults{links: make([]bool, len(t.Links)), nodes: make([]bool, len(t.Nodes)), of: make([][]int, len(t.Nodes))}
	for i, l := range t.Links {
		x.of[l.A] = append(x.of[l.A], i)
		x.of[l.B] = append(x.of[l.B], i)
	}
	return x
}

// SetLink makes a link of the topology fail or work again. What is under way on a link that fails is lost. Routers
// learn of it after the convergence time. Setting the present state again does nothing.
func (f *Fabric) SetLink(link int, works bool) {
	if f.faults.links[link] != works {
		return
	}
	f.faults.links[link] = !works
	f.change([]int{link}, !works)
}

// SetNode makes a host or a switch fail or work again, with all its links. Copies from and to a host that fails end,
// and their done is never called.
func (f *Fabric) SetNode(node int, works bool) {
	if f.faults.nodes[node] != works {
		return
	}
	f.faults.nodes[node] = !works
	f.change(f.faults.of[node], !works)
	if node < f.topology.Hosts && !works {
		f.bulk.drop(node)
	}
}

// Cut separates some nodes from all others: the links between them fail. A host whose leaf is among them must be listed
// too, or it is cut off alone. heal undoes the cut; further calls do nothing.
func (f *Fabric) Cut(nodes []int) (heal func()) {
	inside := make([]bool, len(f.topology.Nodes))
	for _, n := range nodes {
		inside[n] = true
	}
	var links []int
	for i, l := range f.topology.Links {
		if inside[l.A] != inside[l.B] {
			links = append(links, i)
		}
	}
	f.change(links, true)
	healed := false
	return func() {
		if !healed {
			healed = true
			f.change(links, false)
		}
	}
}

// Below lists a switch of tier 1 and the hosts that are joined only to it: a rack that can be cut off as one.
func (f *Fabric) Below(leaf int) []int {
	nodes := []int{leaf}
	for _, i := range f.faults.of[leaf] {
		l := f.topology.Links[i]
		if h := min(l.A, l.B); h < f.topology.Hosts && len(f.faults.of[h]) == 1 {
			nodes = append(nodes, h)
		}
	}
	return nodes
}

// change adds a fault to links, or removes one from them.
func (f *Fabric) change(links []int, fault bool) {
	now := int64(f.time.Now())
	var changed []int
	for _, i := range links {
		w := &f.wires[i]
		was := w.down > 0
		if fault {
			w.down++
		} else {
			w.down--
		}
		if is := w.down > 0; is != was {
			changed = append(changed, i)
			w.mark(now, is)
		}
	}
	if len(changed) == 0 {
		return
	}
	f.faults.changes++
	f.bulk.urge()
	f.time.At(time.Duration(now)+f.cfg.Convergence, func() {
		f.routes.learn(f.topology, changed, fault)
		f.bulk.reroute()
	})
}

// mark remembers that the link has died or works again.
func (w *wire) mark(now int64, dead bool) {
	if !dead {
		w.spans[len(w.spans)-1].to = now
		return
	}
	if len(w.spans) == maxSpans {
		w.spans = append(w.spans[:0], w.spans[maxSpans/2:]...)
	}
	w.spans = append(w.spans, span{from: now, to: math.MaxInt64})
}
