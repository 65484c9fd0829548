package gossip

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"gonum.org/v1/gonum/graph/path"
	"gonum.org/v1/gonum/graph/simple"
	"pgregory.net/rapid"

	"github.com/musterhq/muster/internal/sim/fabric"
)

func leafSpine(t testing.TB, leaves, hosts int) *fabric.Topology {
	c := fabric.DefaultLeafSpine()
	c.Leaves, c.Hosts = leaves, hosts
	top, err := c.Build()
	if err != nil {
		t.Fatal(err)
	}
	return top
}

func network(t testing.TB, top *fabric.Topology) (*fabric.Fabric, *fabric.Clock) {
	c := &fabric.Clock{}
	f, err := fabric.New(fabric.DefaultConfig(), top, c)
	if err != nil {
		t.Fatal(err)
	}
	return f, c
}

// overlays are all kinds, on a network with racks of 8 hosts.
func overlays(t testing.TB, hosts int) []Overlay {
	net, _ := network(t, leafSpine(t, (hosts+7)/8, 8))
	return []Overlay{Random(hosts, 4, 1), Random(hosts, 5, 2), SpanningTree(net, hosts, 4), Optimised(net, hosts, 4, 4), Complete(hosts)}
}

func TestOverlaysAreConnectedAndBounded(t *testing.T) {
	for _, hosts := range []int{1, 2, 3, 7, 64, 100} {
		for i, o := range overlays(t, hosts) {
			if err := o.Validate(); err != nil {
				t.Errorf("%d hosts: %v", hosts, err)
			}
			most := 0
			for _, p := range o.Peers {
				most = max(most, len(p))
			}
			if bound := []int{4, 5, 5, 4, hosts}[i]; most > bound {
				t.Errorf("%d hosts, %s: a host has %d peers, want at most %v", hosts, o.Name, most, bound)
			}
		}
	}
	for _, bad := range []Overlay{{Peers: [][]int32{{1}, {}}}, {Peers: [][]int32{{}, {}}}, {Peers: [][]int32{{0}}}, {Peers: [][]int32{{7}}}, {}} {
		if bad.Validate() == nil {
			t.Errorf("the invalid overlay %v is valid", bad.Peers)
		}
	}
}

// The distances that the search computes are those of a search from each host.
func TestDistancesAreThoseOfASearchFromEachHost(t *testing.T) {
	for _, o := range overlays(t, 100) {
		sum, most := 0, 0
		for h := range o.Peers {
			far := make([]int, len(o.Peers))
			for queue := []int32{int32(h)}; len(queue) > 0; queue = queue[1:] {
				for _, p := range o.Peers[queue[0]] {
					if far[p] == 0 && int(p) != h {
						far[p] = far[queue[0]] + 1
						sum += far[p]
						most = max(most, far[p])
						queue = append(queue, p)
					}
				}
			}
		}
		if s := o.shape(); s.diameter != most || math.Abs(s.mean-float64(sum)/9900) > 1e-9 {
			t.Errorf("%s: %+v, want diameter %d and mean %v", o.Name, s, most, float64(sum)/9900)
		}
	}
}

// randomCosts are symmetric, with many equal ones.
type randomCosts struct {
	seed uint64
	most uint64
}

func (c randomCosts) Cost(a, b int) time.Duration {
	return time.Duration(1 + rand.NewPCG(c.seed, uint64(min(a, b))<<32|uint64(max(a, b))).Uint64()%c.most)
}

func TestSpanningTreeIsMinimal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		hosts := rapid.IntRange(2, 40).Draw(t, "hosts")
		net := randomCosts{rapid.Uint64().Draw(t, "seed"), rapid.Uint64Range(1, 50).Draw(t, "most")}
		tree := SpanningTree(net, hosts, 4)
		if err := tree.Validate(); err != nil {
			t.Fatal(err)
		}
		g := simple.NewWeightedUndirectedGraph(0, math.Inf(1))
		for a := range hosts {
			for b := range a {
				g.SetWeightedEdge(simple.WeightedEdge{F: simple.Node(a), T: simple.Node(b), W: float64(net.Cost(a, b))})
			}
		}
		want := path.Kruskal(simple.NewWeightedUndirectedGraph(0, math.Inf(1)), g)
		got := 0.0
		for _, e := range tree.edges() {
			got += float64(net.Cost(int(e.a), int(e.b)))
		}
		if len(tree.edges()) != hosts-1 || got != want {
			t.Fatalf("%d edges of weight %v, want %v", len(tree.edges()), got, want)
		}
	})
}

// Compared with a random overlay of the same degree, the optimised one has no larger diameter, and shorter edges.
func TestOptimisedOverlayIsBetterThanARandomOne(t *testing.T) {
	net, _ := network(t, leafSpine(t, 16, 16))
	var random, optimised Row
	random.describe(Random(256, 6, 1), net)
	optimised.describe(Optimised(net, 256, 6, 1), net)
	if optimised.Diameter > random.Diameter || optimised.EdgeHops > 0.75*random.EdgeHops || optimised.Mean > 1.1*random.Mean {
		t.Errorf("optimised %+v\nrandom %+v, want Diameter at most %v, EdgeHops at most %v and Mean at most %v", optimised, random, random.Diameter, 0.75*random.EdgeHops, 1.1*random.Mean)
	}
}

func TestNewsSpreadsOverEachOverlay(t *testing.T) {
	top := leafSpine(t, 8, 8)
	for _, o := range overlays(t, 64) {
		net, c := network(t, top)
		heard := map[int]time.Duration{}
		n, err := New(DefaultConfig(), o, net, c, func(at, about int, version uint32, age time.Duration) {
			if about != 5 || version != 1 || heard[at] != 0 {
				t.Errorf("%s: host %d learnt version %d of %d twice or by mistake", o.Name, at, version, about)
			}
			heard[at] = age
		})
		if err != nil {
			t.Fatal(err)
		}
		n.Publish(5, 1)
		c.Run(time.Hour)
		if len(heard) != 63 {
			t.Errorf("%s: %d hosts heard it, want 63", o.Name, len(heard))
		}
		f := n.Figures()
		if f.Reached != 1 || f.Unreached != 0 || f.ReachMean < f.DelayMean {
			t.Errorf("%s: %+v, want Reached 1, Unreached 0 and ReachMean at least %v", o.Name, f, f.DelayMean)
		}
		for at, age := range heard {
			v, now := n.Version(at, 5)
			if v != 1 || now != time.Hour || age > f.DelayP99*65/64+1 && age > f.ReachMean {
				t.Errorf("%s: host %d knows version %d for %v, want version 1 since its publication", o.Name, at, v, now)
			}
		}
		if edges := int64(len(o.edges())); f.Pushes < 63 || f.Pushes > 2*edges {
			t.Errorf("%s: %d pushes for one version over %d edges, want at least 63 and at most %v", o.Name, f.Pushes, edges, 2*edges)
		}
		// Once all is known and acknowledged, nothing is sent and no event is planned.
		before := net.Totals().Messages
		if events := c.Run(2 * time.Hour); events != 0 || net.Totals().Messages != before {
			t.Errorf("%s: %d events after all is known, want none", o.Name, events)
		}
	}
}

// With loss, a host that was down and a partition, all that is published reaches all hosts in the end, in ascending
// versions.
func TestNewsSurvivesFaults(t *testing.T) {
	for seed := range uint64(10) {
		top := leafSpine(t, 4, 4)
		c := &fabric.Clock{}
		cfg := fabric.DefaultConfig()
		cfg.Loss, cfg.Seed = 0.05, seed
		net, err := fabric.New(cfg, top, c)
		if err != nil {
			t.Fatal(err)
		}
		latest := map[[2]int]uint32{}
		n, err := New(DefaultConfig(), Random(16, 4, seed), net, c, func(at, about int, version uint32, age time.Duration) {
			if latest[[2]int{at, about}] >= version || age < 0 {
				t.Errorf("host %d learnt version %d of %d although it had version %d", at, version, about, latest[[2]int{at, about}])
			}
			latest[[2]int{at, about}] = version
		})
		if err != nil {
			t.Fatal(err)
		}
		r := rand.New(rand.NewPCG(seed, 1))
		versions := make([]uint32, 16)
		for range 500 {
			h := r.IntN(16)
			c.At(time.Duration(r.Int64N(int64(time.Minute))), func() {
				versions[h]++
				n.Publish(h, versions[h])
				n.Publish(h, versions[h]) // the same version is no news
			})
		}
		c.At(10*time.Second, func() { net.SetNode(3, false) })
		c.At(30*time.Second, func() { net.SetNode(3, true) })
		c.At(40*time.Second, func() {
			heal := net.Cut(net.Below(16))
			c.At(70*time.Second, heal)
		})
		c.Run(5 * time.Minute)
		for at := range 16 {
			for about := range 16 {
				if v, _ := n.Version(at, about); v != versions[about] {
					t.Errorf("seed %d: host %d knows version %d of %d, want %d", seed, at, v, about, versions[about])
				}
			}
		}
		if f := n.Figures(); f.Unreached != 0 || f.Reached != 500 {
			t.Errorf("seed %d: %+v, want Unreached 0 and Reached 500", seed, f)
		}
	}
}

// Without faults a host sends a version at most once to each peer, and never to the one from which it has it.
func TestVersionIsSentAtMostOnceToEachPeer(t *testing.T) {
	top := leafSpine(t, 2, 8)
	net, c := network(t, top)
	n, err := New(DefaultConfig(), Complete(16), net, c, nil)
	if err != nil {
		t.Fatal(err)
	}
	for v := range uint32(20) {
		n.Publish(0, v+1)
		c.Run(c.Now() + time.Minute)
	}
	if f := n.Figures(); f.Entries > 20*(15+15*14) {
		t.Errorf("%d entries for 20 versions among 16 hosts, want at most %v", f.Entries, 20*(15+15*14))
	}
	n.Stop()
	n.Publish(0, 99)
	if c.Run(c.Now()+time.Hour) != 0 {
		t.Error("messages are sent after Stop")
	}
}

// The ages and delays are those that a plain list gives.
func TestFiguresAgreeWithAPlainList(t *testing.T) {
	var h histogram
	r := rand.New(rand.NewPCG(1, 1))
	var all []int64
	for range 20_000 {
		v := int64(math.Exp(r.Float64() * 35))
		all = append(all, v)
		h.add(v)
	}
	slices.Sort(all)
	sum := 0.0
	for _, v := range all {
		sum += float64(v)
	}
	if got, want := float64(h.mean()), sum/20_000; math.Abs(got-want) > 1 {
		t.Errorf("mean %v, want %v", got, want)
	}
	for _, q := range []float64{0, 0.1, 0.5, 0.99, 0.9999} {
		got, want := float64(h.quantile(q)), float64(all[int(q*20_000)])
		if got < want || got > want*(1+1.0/64)+1 {
			t.Errorf("quantile %v: %v, want %v", q, got, want)
		}
	}
	for v := int64(1); v < math.MaxInt64/3; v += v/4 + 1 {
		if b := bucketOf(v); top(b) < v || b > 0 && top(b-1) >= v {
			t.Fatalf("%d is in bucket %d, which is up to %d, want the first that holds it", v, b, top(b))
		}
	}
	if new(histogram).quantile(0.99) != 0 || new(histogram).mean() != 0 {
		t.Error("there are figures of an empty histogram")
	}
}

func TestSampleMeasuresTheAgeOfNews(t *testing.T) {
	net, c := network(t, leafSpine(t, 1, 2))
	n, err := New(DefaultConfig(), Complete(2), net, c, nil)
	if err != nil {
		t.Fatal(err)
	}
	n.Publish(0, 1)
	c.Run(10 * time.Second)
	n.Sample() // host 1 knows a version that is 10 s old, host 0 nothing
	if f := n.Figures(); f.Unknown != 0.5 || f.AgeMean != 10*time.Second {
		t.Errorf("%+v, want Unknown 0.5 and AgeMean %v", f, 10*time.Second)
	}
}

func TestLookUpTakesItsRoundTrips(t *testing.T) {
	top := leafSpine(t, 4, 8)
	net, c := network(t, top)
	heard := 0
	d, err := NewDHT(DefaultConfig(), 32, net, c, func(int, int, uint32, time.Duration) { heard++ })
	if err != nil {
		t.Fatal(err)
	}
	d.Publish(3, 1)
	d.Publish(3, 2) // waits until version 1 is stored
	c.Run(time.Second)
	if d.stored[3].version != 2 || heard != 0 {
		t.Errorf("stored %+v, %d learnt, want version 2 and 0", d.stored[3], heard)
	}
	var took time.Duration
	start, before := c.Now(), net.Totals().Messages
	d.LookUp(7, func() { took = c.Now() - start })
	c.Run(c.Now() + time.Minute)
	v, _ := d.Version(7, 3)
	requests := (net.Totals().Messages - before) / 2
	if heard != 1 || v != 2 || requests != int64(d.find.requests) || requests < 22 || requests > 29 {
		t.Errorf("%d learnt, version %d, %d requests, want 1, version 2 and 22 to 29", heard, v, requests)
	}
	// Most hosts are in other racks, over two links of 1 µs and two of 2 µs each way.
	if trip := 12 * time.Microsecond; took < 3*trip || took > 5*trip {
		t.Errorf("a look-up of %d round trips took %v, want at least %v and at most %v", d.find.trips, took, 3*trip, 5*trip)
	}
	// A look-up without answers still ends.
	net.SetNode(9, false)
	over := false
	d.LookUp(9, func() { over = true })
	c.Run(c.Now() + time.Minute)
	if !over {
		t.Error("a look-up without answers does not end")
	}
}

func TestCostsOfLookUpsGrowWithTheHosts(t *testing.T) {
	for _, row := range lookUpCosts {
		find, store := costs(int(row.hosts))
		if float64(find.trips) != row.findTrips || float64(find.requests) != row.findRequests || float64(store.trips) != row.storeTrips || float64(store.requests) != row.storeRequests {
			t.Errorf("%v hosts: %+v, %+v, want those of the row", row.hosts, find, store)
		}
	}
	if find, store := costs(8000); find.trips < 8 || find.trips > 12 || store.trips < 10 || store.trips > 16 {
		t.Errorf("8000 hosts: %+v, %+v, want 8 to 12 and 10 to 16 round trips", find, store)
	}
	if find, _ := costs(1); find.trips != 3 {
		t.Errorf("1 host: %+v, want trips 3", find)
	}
}

func TestWrongValuesAreRefused(t *testing.T) {
	top := leafSpine(t, 1, 4)
	net, c := network(t, top)
	for _, cfg := range []Config{{}, {Interval: 1, Fanout: -1}, {Interval: 1, Entry: -1}} {
		if _, err := New(cfg, Complete(4), net, c, nil); err == nil {
			t.Errorf("%+v is accepted", cfg)
		}
	}
	if _, err := New(DefaultConfig(), Complete(5), net, c, nil); err == nil || !strings.Contains(err.Error(), "the network 4") {
		t.Errorf(`got %v, want an error and "the network 4" in it`, err)
	}
	if _, err := newBoard(MaxHosts+1, c, nil); err == nil {
		t.Error("too many hosts are accepted")
	}
	if _, err := Study(StudyConfig{Topology: top}); err == nil {
		t.Error("an empty study is accepted")
	}
}

func TestStudyIsTheSameForTheSameSeed(t *testing.T) {
	cfg := DefaultStudy(leafSpine(t, 4, 4))
	cfg.For = time.Minute
	run := func() string {
		rows, err := Study(cfg)
		if err != nil {
			t.Fatal(err)
		}
		if len(rows) != 4 {
			t.Fatalf("%d rows, want 4", len(rows))
		}
		for _, r := range rows {
			if r.Reached == 0 || r.Bytes == 0 || r.AgeMean < r.DelayMean || r.Busiest <= 0 || r.Between <= 0 {
				t.Errorf("got %+v, want plausible figures of hosts that were reached", r)
			}
		}
		return fmt.Sprintf("%+v\n%s", rows, Table(rows))
	}
	if a, b := run(), run(); a != b {
		t.Error("two studies with the same seed differ")
	}
}

// BenchmarkStudy simulates 512 hosts for ten minutes, by each way of distribution; -v prints the table.
func BenchmarkStudy(b *testing.B) {
	cfg := DefaultStudy(leafSpine(b, 16, 32))
	for range b.N {
		rows, err := Study(cfg)
		if err != nil {
			b.Fatal(err)
		}
		b.Log("\n" + Table(rows))
	}
}
