package dht

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/libp2p/go-libp2p"
	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/p2p/net/connmgr"
	"github.com/libp2p/go-libp2p/x/simlibp2p"
	"github.com/marcopolo/simnet"

	"github.com/musterhq/muster/job"
)

// fabric is a simulated network of tables. Its hosts can be made silent.
type fabric struct {
	hosts  []host.Host
	tables []*Table
	silent atomic.Pointer[map[string]bool] // IPs to and from which no packet gets through
}

const oneWay = 5 * time.Millisecond

// newFabric starts n hosts. Each of them knows only the first.
func newFabric(t *testing.T, n int) *fabric {
	f := &fabric{}
	f.silent.Store(&map[string]bool{})
	sim := &simnet.Simnet{LatencyFunc: func(p *simnet.Packet) time.Duration {
		silent := *f.silent.Load()
		if silent[ipOf(p.From)] || silent[ipOf(p.To)] {
			return 1000 * time.Hour
		}
		return oneWay
	}}
	link := simnet.NodeBiDiLinkSettings{
		Downlink: simnet.LinkSettings{BitsPerSecond: 1000 * simlibp2p.OneMbps},
		Uplink:   simnet.LinkSettings{BitsPerSecond: 1000 * simlibp2p.OneMbps},
	}
	var closing []func()
	for i := range n {
		ip := simnet.IntToPublicIPv4(i)
		cm, err := connmgr.NewConnManager(400, 600)
		if err != nil {
			t.Fatal(err)
		}
		h, err := libp2p.New(
			libp2p.ListenAddrStrings(fmt.Sprintf("/ip4/%s/udp/8000/quic-v1", ip)),
			simlibp2p.QUICSimnet(sim, link),
			libp2p.DisableIdentifyAddressDiscovery(),
			libp2p.ResourceManager(&network.NullResourceManager{}),
			libp2p.ConnectionManager(cm),
			libp2p.DisableMetrics(),
		)
		if err != nil {
			t.Fatal(err)
		}
		cfg := DefaultConfig()
		cfg.Cluster = "test"
		table, err := New(cfg, h, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			if err := table.Run(ctx); err != nil {
				t.Error(err)
			}
		}()
		closing = append(closing, func() { cancel(); h.Close(); <-done })
		f.hosts, f.tables = append(f.hosts, h), append(f.tables, table)
	}
	sim.Start()
	t.Cleanup(func() {
		for _, c := range closing {
			c()
		}
		sim.Close()
	})
	return f
}

func ipOf(a net.Addr) string { return a.(*net.UDPAddr).IP.String() }

// join connects all hosts to the first.
func (f *fabric) join(t *testing.T) {
	seed := peer.AddrInfo{ID: f.hosts[0].ID(), Addrs: f.hosts[0].Addrs()}
	for _, h := range f.hosts[1:] {
		if err := h.Connect(t.Context(), seed); err != nil {
			t.Fatal(err)
		}
	}
}

func (f *fabric) silence(hosts []host.Host) {
	silent := map[string]bool{}
	for _, h := range hosts {
		ip, err := h.Addrs()[0].ValueForProtocol(4) // ip4
		if err == nil {
			silent[ip] = true
		}
	}
	f.silent.Store(&silent)
}

func find(t *testing.T, table *Table, class string, most int) []job.Peer {
	t.Helper()
	got := map[job.Peer]int{}
	for p := range table.Find(t.Context(), class, most) {
		if got[p]++; got[p] > 1 {
			t.Errorf("%s was found twice", p)
		}
	}
	return slices.Sorted(maps.Keys(got))
}

func (f *fabric) ids(from, to int) []job.Peer {
	var ids []job.Peer
	for _, h := range f.hosts[from:to] {
		ids = append(ids, job.Peer(h.ID().String()))
	}
	slices.Sort(ids)
	return ids
}

func settle(d time.Duration) {
	<-time.NewTimer(d).C // the bubble's fake clock jumps, so this takes no time
	synctest.Wait()
}

// TestSmallClustersFindTheirHosts has one, two and three hosts. A later host finds a record that was written while the
// first was alone.
func TestSmallClustersFindTheirHosts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFabric(t, 3)
		f.tables[0].Advertise([]string{"gpu/model/h100"})
		settle(time.Second)
		if got := find(t, f.tables[0], "gpu/model/h100", 0); len(got) != 0 {
			t.Errorf("alone, found %v, want none", got)
		}
		f.join(t)
		settle(2 * time.Second)
		for i := 1; i < 3; i++ {
			if got := find(t, f.tables[i], "gpu/model/h100", 0); !slices.Equal(got, f.ids(0, 1)) {
				t.Errorf("host %d found %v, want host 0", i, got)
			}
		}
		f.tables[1].Advertise([]string{"cpu/32"})
		f.tables[2].Advertise([]string{"cpu/32"})
		settle(2 * time.Second)
		if got := find(t, f.tables[0], "cpu/32", 0); !slices.Equal(got, f.ids(1, 3)) {
			t.Errorf("host 0 found %v, want hosts 1 and 2", got)
		}
		if got := find(t, f.tables[0], "cpu/64", 0); len(got) != 0 {
			t.Errorf("for a class of no host found %v, want none", got)
		}
	})
}

// TestLookUpFindsAllDespiteSilentHosts checks that a look-up finds all matching hosts. When 30 % are silent, it still finds
// the others within its second. Package daemon tests the same with 200 complete daemons.
func TestLookUpFindsAllDespiteSilentHosts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFabric(t, 60)
		f.join(t)
		settle(10 * time.Second)
		for _, table := range f.tables[40:] {
			table.Advertise([]string{"gpu/model/h100/x8"})
		}
		settle(10 * time.Second)
		if got := find(t, f.tables[7], "gpu/model/h100/x8", 0); !slices.Equal(got, f.ids(40, 60)) {
			t.Errorf("found %d of 20 hosts, want all", len(got))
		}
		if got := find(t, f.tables[9], "gpu/model/h100/x8", 5); len(got) != 5 {
			t.Errorf("asked for 5, found %d, want 5", len(got))
		}
		checkRoundTrips(t, f.tables[10:25], "gpu/model/h100/x8")
		f.silence(f.hosts[32:50])
		settle(time.Second)
		living := f.ids(50, 60)
		start := time.Now()
		got := find(t, f.tables[7], "gpu/model/h100/x8", 0)
		for _, p := range living {
			if !slices.Contains(got, p) {
				t.Errorf("%s is alive and was not found", p)
			}
		}
		if took := time.Since(start); took > findTimeout {
			t.Errorf("took %s, want at most %v", took, findTimeout)
		}
	})
}

// checkRoundTrips checks what the simulator assumes of look-ups (sim/gossip, lookUpCosts): among 50 to 200 hosts the
// median takes three to six round trips. Which hosts are asked depends on their random keys, so a third more or less is
// no error.
func checkRoundTrips(t *testing.T, tables []*Table, class string) {
	var took []time.Duration
	for _, table := range tables {
		start := time.Now()
		find(t, table, class, 0)
		took = append(took, time.Since(start))
	}
	slices.Sort(took)
	const trip = 2 * oneWay
	if median := took[len(took)/2]; median < 2*trip || median > 8*trip {
		t.Errorf("the median look-up took %s, want %s to %s: correct lookUpCosts", median, 3*trip, 6*trip)
	}
	t.Logf("look-ups took %s to %s, the median %s", took[0], took[len(took)-1], took[len(took)/2])
}

// TestRecordsExpireUnlessRenewed checks that a record expires unless it is written again.
func TestRecordsExpireUnlessRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFabric(t, 4)
		f.join(t)
		f.tables[3].Advertise([]string{"mem/256"})
		settle(time.Second)
		if got := find(t, f.tables[1], "mem/256", 0); len(got) != 1 {
			t.Fatalf("found %v, want 1 of them", got)
		}
		f.tables[3].Advertise(nil)
		settle(DefaultConfig().Validity + time.Second)
		if got := find(t, f.tables[1], "mem/256", 0); len(got) != 0 {
			t.Errorf("after the validity of the record found %v, want none", got)
		}
	})
}

func TestHostsAreSpreadOverShards(t *testing.T) {
	for _, n := range []int{1, 2, 64} {
		counts := make([]int, n)
		for i := range 1000 {
			counts[shardOf(peer.ID(fmt.Sprint("peer", i)), n)]++
		}
		for s, c := range counts {
			if c < 1000/n/4 {
				t.Errorf("of 1000 hosts only %d write to shard %d of %d, want at least %v", c, s, n, 1000/n/4)
			}
		}
	}
}
