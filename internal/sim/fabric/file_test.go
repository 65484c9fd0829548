package fabric

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

const twoRacks = `# two racks in a ring of switches
nodes:
  - {name: leaf1, kind: switch}
  - {name: gpu1, kind: host}
  - {name: leaf2, kind: switch}
  - {name: gpu2, kind: host}
  - {name: spine, kind: switch}
edges:
  - {from: gpu1, to: leaf1, latency: 1us, bandwidth: 25Gbps}
  - {from: gpu2, to: leaf2, latency: 1us, bandwidth: 25Gbps, loss: 0.001}
  - {from: leaf1, to: leaf2, latency: 9us, bandwidth: 100Gbps}
  - from: leaf1
    to: spine
    latency: 2us
    bandwidth: 100Gbps
  - {from: spine, to: leaf2, latency: 2us, bandwidth: 400Mbps}
`

func TestFileIsParsed(t *testing.T) {
	top, err := Parse("net.yaml", []byte(twoRacks))
	if err != nil {
		t.Fatal(err)
	}
	want := []Node{{"gpu1", 0}, {"gpu2", 0}, {"leaf1", 1}, {"leaf2", 1}, {"spine", 2}}
	if fmt.Sprint(top.Nodes) != fmt.Sprint(want) || top.Hosts != 2 || len(top.Links) != 5 {
		t.Errorf("%d hosts of %v, links %v, want those of the file", top.Hosts, top.Nodes, top.Links)
	}
	if l := top.Links[1]; l != (Link{A: 1, B: 3, Latency: time.Microsecond, Bandwidth: 25 * Gbps, Loss: 0.001}) {
		t.Errorf("%+v, want %v", l, (Link{A: 1, B: 3, Latency: time.Microsecond, Bandwidth: 25 * Gbps, Loss: 0.001}))
	}
	if r := top.Racks(); r[0] != "leaf1" || r[1] != "leaf2" || top.Rack(1) != "leaf2" {
		t.Errorf("racks %v, want leaf1 and leaf2", r)
	}
	f, _ := build(t, DefaultConfig(), top)
	if h := f.Hops(0, 1); h != 3 { // the slow link of the spine counts
		t.Errorf("%d hops, want 3: leaf to leaf is cheaper than over a link with 400 Mb/s", h)
	}
	if err := top.Order([]string{"gpu2"}); err != nil {
		t.Fatal(err)
	}
	if r := top.Racks(); top.Nodes[0].Name != "gpu2" || r[0] != "leaf2" || r[1] != "leaf1" || top.Find("spine") != 4 {
		t.Errorf("after Order: %v, racks %v, want gpu2 first and leaf2 before leaf1", top.Nodes, r)
	}
	for names, want := range map[string]string{"gpu2,gpu2": `two machines with the name "gpu2"`, "leaf1": `"leaf1" is no host`} {
		if err := top.Order(strings.Split(names, ",")); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Order(%s): %v, want an error and %v in it", names, err, want)
		}
	}
}

func TestParseErrorsSayWhatIsWrong(t *testing.T) {
	for _, x := range []struct{ old, new, want string }{
		{twoRacks, "", "topology file net.yaml: it is empty; want nodes and edges"},
		{twoRacks, "5", "topology file net.yaml:1: the file: want nodes, edges"},
		{"nodes:", "hosts:", "net.yaml:2: the file.hosts: unknown field; want nodes, edges"},
		{twoRacks, "edges: []", "net.yaml:1: nodes: missing"},
		{twoRacks, "nodes: 7\nedges: []", "net.yaml:1: nodes: want a list"},
		{twoRacks, "nodes: []\nedges: []", "net.yaml: topology: there is no host"},
		{"{name: leaf2, kind: switch}", "leaf2", "net.yaml:5: nodes[2]: want name, kind"},
		{"{name: leaf2, kind: switch}", "{kind: switch}", "net.yaml:5: nodes[2].name: missing"},
		{"{name: leaf2, kind: switch}", "{name: [a], kind: switch}", "net.yaml:5: nodes[2].name: want a plain value"},
		{"{name: leaf2, kind: switch}", "{name: \"a\\nb\", kind: switch}", "net.yaml:5: nodes[2].name: want 1 to 253 characters without line breaks"},
		{"name: leaf2, kind: switch", "name: leaf2, kind: router", `net.yaml:5: nodes[2].kind: "router": want host or switch`},
		{"name: leaf2", "name: gpu1", `net.yaml:5: nodes[2].name: "gpu1" is also in line 4`},
		{"from: gpu2", "from: gpu3", `net.yaml:10: edges[1].from: there is no node "gpu3"`},
		{"from: gpu2", "from: leaf2", "net.yaml:10: edges[1].to: it leads to the node that it comes from"},
		{"latency: 9us", "latency: -9us", "net.yaml:11: edges[2]: latency -9µs: want 0 to 1m"},
		{"latency: 9us", "latency: 9", `net.yaml:11: edges[2].latency: "9": want a duration such as 2us or 1.5ms`},
		{"latency: 9us, ", "", "net.yaml:11: edges[2].latency: missing"},
		{"    latency: 2us\n    bandwidth: 100Gbps", "    latency: 2us\n    bandwidth: 100", `net.yaml:15: edges[3].bandwidth: "100": want a number and one of bps`},
		{"bandwidth: 400Mbps", "bandwidth: 0Mbps", `net.yaml:16: edges[4].bandwidth: "0Mbps": want a number from 1kbps`},
		{"loss: 0.001", "loss: 1.5", "net.yaml:10: edges[1]: loss 1.5: want at least 0 and less than 1"},
		{"loss: 0.001", "lose: 1", "net.yaml:10: edges[1].lose: unknown field; want from, to, latency, bandwidth, loss"},
		{"from: spine, to: leaf2", "from: leaf2, to: leaf1", "net.yaml:16: edges[4]: leaf2 and leaf1 are joined in line 11 too: make it one edge with the sum of the bandwidth"},
		{"  - {from: gpu2, to: leaf2, latency: 1us, bandwidth: 25Gbps, loss: 0.001}\n", "", "net.yaml:6: nodes: host gpu2 has no path to host gpu1"},
		{"nodes:", "nodes: [", "topology file net.yaml:"},
		{"# two", "---\n{}\n---\n# two", "there is a second document; want one"},
	} {
		text := strings.Replace(twoRacks, x.old, x.new, 1)
		_, err := Parse("net.yaml", []byte(text))
		if err == nil || !strings.Contains(err.Error(), x.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q for %.30q:\n%v\nwant\n%s", x.new, x.old, err, x.want)
		}
	}
}

func TestBandwidthIsParsed(t *testing.T) {
	for s, want := range map[string]Bandwidth{"25Gbps": 25 * Gbps, "1.5Gbps": 1500 * Mbps, "1Tbps": 1000 * Gbps, "9kbps": 9000, "64000bps": 64000} {
		b, err := ParseBandwidth(s)
		if err != nil || b != want {
			t.Errorf("%s: %v, %v, want no error and %v", s, b, err, want)
		}
		if again, err := ParseBandwidth(b.String()); err != nil || again != b {
			t.Errorf("%s: written as %s, read as %v, %v, want the same", s, b, again, err)
		}
	}
	for _, s := range []string{"", "Gbps", "-1Gbps", "NaNGbps", "infGbps", "1e99bps", "25", "25GB"} {
		if b, err := ParseBandwidth(s); err == nil {
			t.Errorf("%q: read as %s, want an error", s, b)
		}
	}
}

func TestErrorsOfShapesSayWhatIsWrong(t *testing.T) {
	for _, x := range []struct {
		build func() (*Topology, error)
		want  string
	}{
		{LeafSpine{Leaves: 1, Hosts: 1}.Build, "0 spines"},
		{LeafSpine{Spines: 1, Leaves: 5000, Hosts: 1}.Build, "at most 4096 switches"},
		{LeafSpine{Spines: 1, Leaves: 4000, Hosts: 1000}.Build, "at most 100000 hosts"},
		{LeafSpine{Spines: 1, Leaves: 2, Hosts: 2, Machines: 5}.Build, "5 machines do not fit on 2 leaves of 2 hosts"},
		{LeafSpine{Spines: 1, Leaves: 2, Hosts: 2}.Build, "oversubscription 0"},
		{LeafSpine{Spines: 1, Leaves: 2, Hosts: 2, Oversubscription: 1}.Build, "bandwidth 0"},
		{LeafSpine{Spines: 1, Leaves: 2, Hosts: 2, Oversubscription: 1, Bandwidth: Gbps, HostLatency: -1}.Build, "latency -1ns"},
		{FatTree{K: 3}.Build, "want an even number"},
		{FatTree{K: 58}.Build, "at most 56"},
		{FatTree{K: 4, Machines: 17}.Build, "k 4 has 16 hosts"},
	} {
		if _, err := x.build(); err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%v, want %s", err, x.want)
		}
	}
	for _, cfg := range []Config{{Convergence: -1, Bin: 1}, {Loss: 1, Bin: 1}, {}} {
		if _, err := New(cfg, small(t), &Clock{}); err == nil {
			t.Errorf("%+v is accepted", cfg)
		}
	}
}

// A built shape has the nodes and links of its definition, and the expected hops.
func TestShapesHaveTheirNodesAndLinks(t *testing.T) {
	top, err := FatTree{K: 4, Bandwidth: Gbps, Latency: 1000}.Build()
	if err != nil {
		t.Fatal(err)
	}
	if top.Hosts != 16 || len(top.Nodes) != 16+8+8+4 || len(top.Links) != 48 {
		t.Errorf("fat-tree of 4: %d hosts, %d nodes, %d links, want 16, %v and 48", top.Hosts, len(top.Nodes), len(top.Links), 16+8+8+4)
	}
	tiers := append([]Node(nil), top.Nodes...)
	top.setTiers()
	if fmt.Sprint(tiers) != fmt.Sprint(top.Nodes) {
		t.Errorf("tiers %v, want %v", tiers, top.Nodes)
	}
	f, _ := build(t, DefaultConfig(), top)
	if f.Hops(0, 1) != 2 || f.Hops(0, 2) != 4 || f.Hops(0, 15) != 6 {
		t.Errorf("hops %d, %d, %d, want 2, 4 and 6", f.Hops(0, 1), f.Hops(0, 2), f.Hops(0, 15))
	}
	top, err = LeafSpine{Spines: 4, Leaves: 3, Hosts: 8, Machines: 20, Oversubscription: 2, Bandwidth: 10 * Gbps}.Build()
	if err != nil {
		t.Fatal(err)
	}
	if up := top.Links[len(top.Links)-1].Bandwidth; top.Hosts != 20 || up != 10*Gbps || top.Rack(19) != "leaf2" || top.Rack(7) != "leaf0" {
		t.Errorf("%d hosts, uplinks of %v, want 20, with uplinks of 10 Gb/s", top.Hosts, up)
	}
}

// FuzzParse checks that any text is a network on which messages can be sent, or gives an error of one line that names
// the file.
func FuzzParse(f *testing.F) {
	f.Add([]byte(twoRacks))
	f.Add([]byte("nodes: [{name: a, kind: host}, {name: b, kind: host}]\nedges: [{from: a, to: b, latency: 0s, bandwidth: 1kbps}]"))
	f.Add([]byte("nodes: &x [*x]\nedges: *x"))
	f.Add([]byte("nodes: !!map [? ]"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if len(text) > 1<<16 {
			return
		}
		top, err := Parse("net.yaml", text)
		if err != nil {
			if s := err.Error(); strings.Contains(s, "\n") || !strings.Contains(s, "net.yaml") {
				t.Fatalf("error %q, want one line that names the file", s)
			}
			return
		}
		c := &Clock{}
		n, err := New(DefaultConfig(), top, c)
		if err != nil {
			t.Fatal(err)
		}
		last := top.Hosts - 1
		arrived, done := false, false
		n.Send(0, last, 100, func() { arrived = true })
		n.Copy(last, 0, 100, func() { done = true })
		lossy := false
		for _, l := range top.Links {
			lossy = lossy || l.Loss > 0
		}
		c.Run(1000 * time.Hour)
		if !arrived && !lossy || !done {
			t.Fatalf("message arrived: %v, copy done: %v, want both true (the message may be lost)", arrived, done)
		}
	})
}
