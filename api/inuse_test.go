package api

import (
	"math"
	"testing"
	"time"

	"github.com/musterhq/muster/job"
)

// Use is told of the GPUs whose drivers tell it. Unknown use is absent, and what another daemon says is kept within reason.
func TestGPUsInUse(t *testing.T) {
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
		t.Errorf("of unknown use %+v", s.InUse)
	}
	sum := nodeStats(node(50, -1, 400), none)
	sum.add(nodeStats(node(0, 25), none))
	sum.add(nodeStats(node(), none))
	for _, lie := range []GPUsInUse{{Known: -5, Busy: 1}, {Known: 1, Busy: -3}, {Known: 1, Busy: 1e9}, {Known: 0, Busy: 0}, {Known: 1, Busy: math.Inf(1)}} {
		sum.add(Stats{InUse: &lie})
	}
	if sum.InUse == nil || *sum.InUse != (GPUsInUse{Known: 4, Busy: 1.75}) {
		t.Errorf("%+v", sum.InUse)
	}
}
