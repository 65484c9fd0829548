package gossip

// Daemons that end and start again, neighbours that are silent or never answer, and news that is hours old.

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/sim/fabric"
)

// A host whose daemon ends forgets all, and learns all again when it starts, including hosts that have not published
// since. Meanwhile nothing is sent to it.
func TestRestartedDaemonLearnsAllNews(t *testing.T) {
	for _, o := range overlays(t, 64) {
		net, c := network(t, leafSpine(t, 8, 8))
		heard := map[int]int{}
		n, err := New(DefaultConfig(), o, net, c, func(at, about int, _ uint32, _ time.Duration) {
			if at == 9 {
				heard[about]++
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		for h := range 64 {
			n.Publish(h, 1)
		}
		c.Run(time.Minute)
		if len(heard) != 63 {
			t.Fatalf("%s: it has heard of %d hosts, want 63", o.Name, len(heard))
		}
		clear(heard)
		n.SetUp(9, false)
		n.SetUp(9, false)
		if v, _ := n.Version(9, 3); v != 0 {
			t.Errorf("%s: a daemon that has ended knows version %d, want 0", o.Name, v)
		}
		n.Publish(3, 2)
		c.Run(c.Now() + 10*time.Minute)
		if len(heard) != 0 {
			t.Errorf("%s: %d hosts were heard of by a daemon that does not run, want none", o.Name, len(heard))
		}
		before := net.Totals().Messages
		c.Run(c.Now() + 10*time.Minute)
		if sent := net.Totals().Messages - before; sent != 0 {
			t.Errorf("%s: %d messages though all that is up is known, want 0", o.Name, sent)
		}
		n.SetUp(9, true)
		c.Run(c.Now() + 10*time.Minute)
		want := 63
		if o.Name == "spanning tree" { // the hosts behind it have learnt of version 2 from it only
			want = len(heard)
		}
		if v, _ := n.Version(9, 3); len(heard) != want || v != 2 {
			t.Errorf("%s: it has heard of %d hosts again, and knows version %d, want %v and 2", o.Name, len(heard), v, want)
		}
		for h := range 64 {
			if v, _ := n.Version(h, 3); v != 2 {
				t.Errorf("%s: host %d knows version %d, want 2", o.Name, h, v)
			}
		}
		if f := n.Figures(); f.Reached < 64 {
			t.Errorf("%s: %+v, want Reached at least 64", o.Name, f)
		}
	}
}

// Hosts that forward nothing block nothing if there is another path. On a tree the hosts behind them learn nothing.
func TestSilentHostsDoNotBlockOtherPaths(t *testing.T) {
	net, _ := network(t, leafSpine(t, 8, 8))
	unknown := func(o Overlay) (n int) {
		still, c := network(t, leafSpine(t, 8, 8))
		x, err := New(DefaultConfig(), o, still, c, nil)
		if err != nil {
			t.Fatal(err)
		}
		for h := 0; h < 64; h += 7 {
			x.SetSilent(h)
		}
		for h := range 64 {
			x.Publish(h, 1)
		}
		c.Run(10 * time.Minute)
		for at := range 64 {
			for about := range 64 {
				if v, _ := x.Version(at, about); v == 0 {
					n++
				}
			}
		}
		return n
	}
	if n := unknown(Random(64, 6, 1)); n != 0 {
		t.Errorf("random: %d beliefs are missing, want 0", n)
	}
	if n := unknown(Optimised(net, 64, 6, 1)); n != 0 {
		t.Errorf("optimised: %d beliefs are missing, want 0", n)
	}
	if n := unknown(SpanningTree(net, 64, 6)); n == 0 {
		t.Error("all hosts learn the news on a tree with silent hosts")
	}
}

// A peer that never answers is tried less and less often, and learns all once it answers.
func TestPeerWithoutAnswersIsTriedLessOften(t *testing.T) {
	net, c := network(t, leafSpine(t, 2, 2))
	n, err := New(DefaultConfig(), Complete(4), net, c, nil)
	if err != nil {
		t.Fatal(err)
	}
	net.SetNode(2, false)
	version := uint32(0)
	var publish func()
	publish = func() {
		if version++; version < 3600 {
			n.Publish(0, version)
			c.At(c.Now()+time.Second, publish)
		}
	}
	publish()
	c.Run(time.Hour)
	f := n.Figures()
	// Host 0 sends each version to hosts 1 and 3, and they send it to each other. Three hosts try host 2 every 33 s.
	if f.Pushes > 4*3600+3*3600/32+60 {
		t.Errorf("%d pushes in an hour, want at most %v", f.Pushes, 4*3600+3*3600/32+60)
	}
	if len(n.board.spread[0].versions) > maxWaves {
		t.Errorf("%d versions are waited for, want at most %v", len(n.board.spread[0].versions), maxWaves)
	}
	net.SetNode(2, true)
	c.Run(c.Now() + time.Minute)
	if v, _ := n.Version(2, 0); v != 3599 {
		t.Errorf("it knows version %d, want 3599", v)
	}
}

// Daemons end and start in any order. In the end all running ones know what was published last, and the counts are
// right.
func TestAllRunningDaemonsLearnTheNewestVersion(t *testing.T) {
	for seed := range uint64(20) {
		top := leafSpine(t, 4, 4)
		c := &fabric.Clock{}
		cfg := fabric.DefaultConfig()
		cfg.Loss, cfg.Seed = 0.05, seed
		net, err := fabric.New(cfg, top, c)
		if err != nil {
			t.Fatal(err)
		}
		n, err := New(DefaultConfig(), Random(16, 4, seed), net, c, nil)
		if err != nil {
			t.Fatal(err)
		}
		r := rand.New(rand.NewPCG(seed, 1))
		versions := make([]uint32, 16)
		for range 300 {
			h, up := r.IntN(16), r.IntN(3) > 0
			c.At(time.Duration(r.Int64N(int64(2*time.Minute))), func() {
				if r.IntN(3) == 0 {
					n.SetUp(h, up)
				} else if !n.hosts[h].down {
					versions[h]++
					n.Publish(h, versions[h])
				}
			})
		}
		c.At(2*time.Minute, func() {
			for h := range 16 {
				n.SetUp(h, true)
			}
		})
		c.Run(15 * time.Minute)
		for at := range 16 {
			for about := range 16 {
				if v, _ := n.Version(at, about); v != versions[about] {
					t.Errorf("seed %d: host %d knows version %d of %d, want %d", seed, at, v, about, versions[about])
				}
			}
		}
		for h := range 16 {
			for _, w := range n.board.spread[h].versions {
				if w.hosts > 16 || w.hosts < 0 {
					t.Errorf("seed %d: version %d of host %d is known to %d hosts, want at most 16 and at least 0", seed, w.version, h, w.hosts)
				}
			}
		}
		if n.board.members != 16 {
			t.Errorf("seed %d: %d members, want 16", seed, n.board.members)
		}
	}
}

// In the DHT a host whose daemon has ended learns nothing, and what it has stored stays. Only hosts that look up count.
func TestLookUpsInTheDHTSurviveMissingHosts(t *testing.T) {
	net, c := network(t, leafSpine(t, 4, 8))
	d, err := NewDHT(DefaultConfig(), 32, net, c, nil)
	if err != nil {
		t.Fatal(err)
	}
	d.ReadBy([]int{1, 2})
	d.SetUp(2, false)
	d.Publish(3, 1)
	c.Run(time.Second)
	d.SetUp(3, false)
	d.LookUp(1, nil)
	d.LookUp(2, nil)
	c.Run(c.Now() + time.Minute)
	one, _ := d.Version(1, 3)
	two, _ := d.Version(2, 3)
	if f := d.Figures(); one != 1 || two != 0 || f.Reached != 1 {
		t.Errorf("host 1 knows version %d, host 2, which is down, %d; %+v, want 1, 0 and Reached 1", one, two, f)
	}
	d.SetUp(2, true)
	d.LookUp(2, nil)
	c.Run(c.Now() + time.Minute)
	if two, _ = d.Version(2, 3); two != 1 || d.board.members != 2 {
		t.Errorf("host 2 knows version %d; %d members, want 1 and 2", two, d.board.members)
	}
}
