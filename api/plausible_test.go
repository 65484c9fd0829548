package api

// A daemon that lies about its own node has no effect on the totals of the others.

import (
	"math"
	"testing"
	"testing/synctest"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
)

// absurd are documents of a node that are impossible.
func absurd(of func() Node) map[string]Node {
	one := func(change func(n *Node)) Node {
		n := of()
		change(&n)
		return n
	}
	minus := -1.0
	return map[string]Node{
		"state":          one(func(n *Node) { n.State = "<script>" }),
		"no CPUs":        one(func(n *Node) { n.CPUs = -5 }),
		"all CPUs":       one(func(n *Node) { n.CPUs, n.Free.CPUs = math.MaxInt, math.MaxInt }),
		"free CPUs":      one(func(n *Node) { n.Free.CPUs = n.CPUs + 1 }),
		"no memory":      one(func(n *Node) { n.Memory = -1 }),
		"all memory":     one(func(n *Node) { n.Memory, n.Free.Memory = math.MaxInt64, 1 }),
		"minus free":     one(func(n *Node) { n.Free.Memory = math.MinInt64 }),
		"disk":           one(func(n *Node) { n.Disk = -1 }),
		"free GPUs":      one(func(n *Node) { n.Free.GPUs = 1_000_000 }),
		"minus GPUs":     one(func(n *Node) { n.Free.GPUs = -1 }),
		"GPUs":           one(func(n *Node) { n.GPUs = make([]GPU, contract.MaxGPUs+1) }),
		"running":        one(func(n *Node) { n.Running = new(-1) }),
		"usage":          one(func(n *Node) { n.Usage = &NodeNow{CPUs: &minus} }),
		"share of a GPU": one(func(n *Node) { n.GPUs = []GPU{{NodeID: n.ID, Free: -1e300}} }),
		"memory of GPUs": one(func(n *Node) { n.GPUs = []GPU{{NodeID: n.ID, Memory: math.MaxInt64}} }),
		"use of GPUs":    one(func(n *Node) { n.GPUs = []GPU{{NodeID: n.ID, MemoryUsed: -2}} }),
		"job of a GPU":   one(func(n *Node) { n.GPUs = []GPU{{NodeID: n.ID, Job: "\x1b]0;x\a"}} }),
		"jobs of a GPU":  one(func(n *Node) { n.GPUs = []GPU{{NodeID: n.ID, Jobs: []job.ID{"0000000000-mdxchras0wg7"}}} }),
		"percent":        one(func(n *Node) { n.GPUs = []GPU{{NodeID: n.ID, Utilization: 1 << 40}} }),
		"power":          one(func(n *Node) { n.GPUs = []GPU{{NodeID: n.ID, GPUReading: GPUReading{Power: -1e9}}} }),
	}
}

// A member with impossible values is named and left out, with and without the picture. Its totals, where they are asked
// for, are true here: TestImpossibleTotalsAreNotBelieved has false ones.
func TestImpossibleNodesAreLeftOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "amy", "ben")
		amy, ben := c.daemons[0], c.daemons[1]
		truth, err := amy.client.Stats(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		own, err := ben.client.Node(t.Context(), string(ben.peer))
		if err != nil {
			t.Fatal(err)
		}
		for name, n := range absurd(func() Node { return own }) {
			ben.mu.Lock()
			ben.lies = map[string]any{
				"/v1/nodes": Listing[Node]{Schema: SchemaNodes, Items: []Node{n}}, "/v1/nodes/" + string(ben.peer): n,
				pathFeed: []feedLine{{Node: &n}, {Synced: true}},
			}
			ben.mu.Unlock()
			for _, how := range []string{"asked", "from the picture"} {
				l, err := amy.client.Nodes(t.Context())
				if err != nil || len(l.Partial) != 1 || len(l.Items) != 2 || l.Items[1].State != NodeSuspect {
					t.Errorf("%s, %s: got %+v, %v, want ben left out and suspect", name, how, l, err)
				}
				if d, err := amy.client.Node(t.Context(), string(ben.peer)); err != nil || d.State != NodeSuspect {
					t.Errorf("%s, %s: got %+v, %v, want a suspect node", name, how, d, err)
				}
				s, err := amy.client.Stats(t.Context())
				if err != nil || s.CPUs.Total > truth.CPUs.Total || s.CPUs.Free < 0 || s.Memory.Total > truth.Memory.Total || s.Memory.Free < 0 ||
					s.GPUs.Total > truth.GPUs.Total || s.GPUs.Free < 0 || len(s.Models) > len(truth.Models) {
					t.Errorf("%s, %s: got %+v, %v, want totals no larger than the truth", name, how, s, err)
				}
				synctest.Wait()
			}
		}
	})
}

// A daemon's totals and measurements are believed no more than its node.
func TestImpossibleTotalsAreNotBelieved(t *testing.T) {
	minus, many := -0.5, 1e9
	for name, change := range map[string]func(s *Stats){
		"state of nodes": func(s *Stats) { s.Nodes = map[NodeState]int{"fine": 1} },
		"minus nodes":    func(s *Stats) { s.Nodes[NodeLost] = -1; s.Nodes[NodeDraining] = 1 },
		"state of jobs":  func(s *Stats) { s.Jobs["<b>"] = 1 },
		"minus jobs":     func(s *Stats) { s.Jobs[job.Pending] = -1 },
		"many jobs":      func(s *Stats) { s.Jobs[job.Pending] = math.MaxInt },
		"CPUs":           func(s *Stats) { s.CPUs.Total = math.MinInt64 },
		"free CPUs":      func(s *Stats) { s.CPUs.Free = 1 << 40 },
		"memory":         func(s *Stats) { s.Memory = Amount{math.MaxInt64, 0} },
		"GPUs":           func(s *Stats) { s.GPUs.Total = 1 << 40 },
		"free GPUs":      func(s *Stats) { s.GPUs.Free = -1 },
		"held GPUs":      func(s *Stats) { s.GPUs.Held = &minus },
		"models":         func(s *Stats) { s.Models["H100"] = GPUAmount{Held: &many} },
	} {
		s := Stats{Nodes: map[NodeState]int{NodeReady: 1}, Jobs: map[job.State]int{}, Models: map[string]GPUAmount{}}
		if !s.ofOneNode() {
			t.Fatal("an idle node is not believed")
		}
		if change(&s); s.ofOneNode() {
			t.Errorf("%s: %+v is believed", name, s)
		}
	}
	for _, line := range []string{
		`{"measured": {"usage": {"cpus": -1}}}`,
		`{"measured": {"usage": null, "memory_used": [-2], "utilization": [1], "temperature": [1], "power": [1]}}`,
		`{"measured": {"usage": null, "memory_used": [1], "utilization": [100000], "temperature": [1], "power": [1]}}`,
		`{"measured": {"usage": null, "memory_used": [1], "utilization": [1], "temperature": [1], "power": [-1]}}`,
	} {
		if _, err := parseFeedLine([]byte(line)); err == nil {
			t.Errorf("%s is believed, want an error", line)
		}
	}
}
