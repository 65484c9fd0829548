package api

import (
	"math"
	"testing"
	"time"

	"github.com/musterhq/muster/job"
)

// Use is reported for the GPUs whose drivers report it. Unknown use is left out, and the values of another daemon are
// bounded.
func TestUseOfGPUsIsSummedWhereKnown(t *testing.T) {
	now := time.Now()
	node := func(use ...int) *Node {
		n := &Node{State: NodeReady}
		for _, u := range use {
			g := GPU{Utilization: u}
			if u >= 0 {
				g.ReadAt = &now
			}
			n.GPUs = append(n.GPUs, g)
		}
		return n
	}
	none := map[job.State]int{}
	if s := nodeStats(node(-1, -1), none); s.InUse != nil {
		t.Errorf("of unknown use: got %+v, want none", s.InUse)
	}
	sum := nodeStats(node(50, -1, 400), none)
	sum.add(nodeStats(node(0, 25), none))
	sum.add(nodeStats(node(), none))
	for _, lie := range []GPUsInUse{{Known: -5, Busy: 1}, {Known: 1, Busy: -3}, {Known: 1, Busy: 1e9}, {Known: 0, Busy: 0}, {Known: 1, Busy: math.Inf(1)}} {
		sum.add(Stats{InUse: &lie})
	}
	if sum.InUse == nil || *sum.InUse != (GPUsInUse{Known: 4, Busy: 1.75}) {
		t.Errorf("got %+v, want %+v", sum.InUse, GPUsInUse{Known: 4, Busy: 1.75})
	}
}

// How much of the GPUs jobs hold is reported with shares. A GPU that is set aside is held by no job, and the sum is
// unknown if one node does not report.
func TestHeldGPUsAreSummedWithShares(t *testing.T) {
	node := func(gpus ...GPU) Stats {
		n := &Node{State: NodeReady, GPUs: gpus}
		return nodeStats(n, nil)
	}
	held := func(free float64) GPU { return GPU{Class: "h100-80gb", Free: free, Jobs: []job.ID{job.NewID(7, 1)}} }
	sum := node(held(0), held(0.7), GPU{Class: "h100-80gb", Free: 1}, GPU{Class: "h100-80gb"}) // the last is set aside
	sum.add(node(held(0.9), held(0.9), GPU{Class: "a100-40gb", Free: 1}))
	for what, a := range map[string]GPUAmount{"all": sum.GPUs, "h100-80gb": sum.Models["h100-80gb"]} {
		if a.Held == nil || *a.Held != 1.5 {
			t.Errorf("%s: got %+v held %g, want 1.5", what, a, seconds(a.Held))
		}
	}
	if a := sum.Models["a100-40gb"]; a.Total != 1 || a.Free != 1 || a.Held == nil || *a.Held != 0 {
		t.Errorf("a100-40gb: got %+v, want one free GPU, none held", a)
	}
	two, much := 2.0, 1e9
	old := Stats{Nodes: map[NodeState]int{NodeReady: 1}, GPUs: GPUAmount{Total: 2, Free: 1}, Models: map[string]GPUAmount{"h100-80gb": {Total: 2, Free: 1}}}
	sum.add(old)
	if sum.GPUs.Held != nil || sum.GPUs.Total != 9 || sum.Models["h100-80gb"].Held != nil || sum.Models["a100-40gb"].Held == nil {
		t.Errorf("with a node that does not report: got %+v, want an unknown sum", sum)
	}
	for held, ok := range map[*float64]bool{nil: true, &two: true, &much: false} {
		s := old
		if s.GPUs.Held = held; s.ofOneNode() != ok {
			t.Errorf("held %g of 2: believed %t, want the opposite", seconds(held), !ok)
		}
		s.GPUs.Held, s.Models = nil, map[string]GPUAmount{"x": {Total: 2, Held: held}}
		if s.ofOneNode() != ok {
			t.Errorf("held %g of 2 of a model: believed %t, want the opposite", seconds(held), !ok)
		}
	}
}
