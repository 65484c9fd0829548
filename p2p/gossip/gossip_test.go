package gossip

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/libp2p/go-libp2p"
	pubsub "github.com/libp2p/go-libp2p-pubsub"
	pubsubpb "github.com/libp2p/go-libp2p-pubsub/pb"
	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/test"
	"github.com/libp2p/go-libp2p/x/simlibp2p"
	"github.com/marcopolo/simnet"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/p2p/wirepb"
)

// pass advances the virtual time and waits until all goroutines are idle.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// node is a daemon that has only the topic.
type node struct {
	*Topic
	host host.Host

	mu  sync.Mutex
	got []Announcement // guarded by mu
}

func (n *node) count() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.got)
}

func (n *node) last() Announcement {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.got) == 0 {
		return Announcement{}
	}
	return n.got[len(n.got)-1]
}

// everyone is a membership in which every peer hears and announces.
type everyone struct{}

func (everyone) MayHear(job.Peer) bool     { return true }
func (everyone) MayAnnounce(job.Peer) bool { return true }

// allBut is like everyone, but one peer announces nothing.
type allBut job.Peer

func (allBut) MayHear(job.Peer) bool         { return true }
func (a allBut) MayAnnounce(p job.Peer) bool { return p != job.Peer(a) }

// cluster starts n topics on hosts that are not connected.
func cluster(t *testing.T, n int, lost func(from, to net.Addr) bool) []*node {
	sim := &simnet.Simnet{LatencyFunc: func(p *simnet.Packet) time.Duration {
		if lost != nil && lost(p.From, p.To) {
			return 1000 * time.Hour
		}
		return 5 * time.Millisecond
	}}
	link := simnet.LinkSettings{BitsPerSecond: 1000 * simlibp2p.OneMbps}
	ctx, cancel := context.WithCancel(context.Background())
	var nodes []*node
	var wg sync.WaitGroup
	for i := range n {
		h, err := libp2p.New(
			libp2p.ListenAddrStrings(fmt.Sprintf("/ip4/%s/udp/8000/quic-v1", simnet.IntToPublicIPv4(i))),
			simlibp2p.QUICSimnet(sim, simnet.NodeBiDiLinkSettings{Downlink: link, Uplink: link}),
			libp2p.DisableIdentifyAddressDiscovery(), libp2p.ResourceManager(&network.NullResourceManager{}), libp2p.DisableMetrics(),
		)
		if err != nil {
			t.Fatal(err)
		}
		nd := &node{host: h}
		cfg := DefaultConfig()
		cfg.Cluster = "test"
		nd.Topic, err = New(cfg, h, everyone{}, func(_ job.Peer, a Announcement) {
			nd.mu.Lock()
			defer nd.mu.Unlock()
			nd.got = append(nd.got, a)
		}, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			if err := nd.Run(ctx); err != nil {
				t.Error(err)
			}
		})
		nodes = append(nodes, nd)
	}
	sim.Start()
	t.Cleanup(func() {
		cancel()
		wg.Wait()
		for _, nd := range nodes {
			nd.host.Close()
		}
		sim.Close()
	})
	return nodes
}

func connect(t *testing.T, a, b *node) {
	t.Helper()
	if err := a.host.Connect(t.Context(), peer.AddrInfo{ID: b.host.ID(), Addrs: b.host.Addrs()}); err != nil {
		t.Fatal(err)
	}
}

// TestAnnouncementReachesTwentyHosts connects the hosts in a ring with a few additional connections, so that most hosts
// receive the announcement indirectly.
func TestAnnouncementReachesTwentyHosts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := cluster(t, 20, nil)
		for i := range nodes {
			connect(t, nodes[i], nodes[(i+1)%20])
			connect(t, nodes[i], nodes[(i+7)%20])
		}
		pass(3 * time.Second)
		want := []Want{{Class: "gpu/model/h100-80gb/x4", Count: 3}, {Class: "cpu/32", Count: 1}}
		nodes[0].Announce(want, 8)
		pass(time.Second)
		for i, n := range nodes[1:] {
			if got := n.last(); !reflect.DeepEqual(got.Wants, want) || got.Sessions != 8 || got.TTL != 30*time.Second {
				t.Errorf("host %d received %+v, want got.Wants = %v, got.Sessions = 8 and got.TTL = 30 s", i+1, got, want)
			}
		}
		if n := nodes[0].count(); n != 0 {
			t.Errorf("the author received %d of its own announcements, want 0", n)
		}
		pass(time.Minute)
		if n := nodes[9].count(); n < 6 || n > 7 {
			t.Errorf("%d announcements in a minute of waiting work, want 6 to 7", n)
		}
		nodes[0].Announce(nil, 0)
		before := nodes[9].count()
		pass(time.Minute)
		if n := nodes[9].count(); n != before {
			t.Errorf("got %d announcements though nothing waits, want 0", n-before)
		}
	})
}

func TestManyChangesAreOneAnnouncement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := cluster(t, 2, nil)
		connect(t, nodes[0], nodes[1])
		pass(3 * time.Second)
		for i := range 500 {
			nodes[0].Announce([]Want{{Class: "cpu/1", Count: i + 1}}, 1)
			pass(10 * time.Millisecond)
		}
		pass(2 * time.Second)
		if n := nodes[1].count(); n < 5 || n > 7 {
			t.Errorf("got %d announcements of changes over 5 s, want 5 to 7", n)
		}
		if got := nodes[1].last().Wants; len(got) != 1 || got[0].Count != 500 {
			t.Errorf("the newest change was not announced: got %v, want one entry with count 500", got)
		}
	})
}

// TestLaterHostReceivesAnnouncement checks that a host that connects later receives the announcement of work that
// already waits.
func TestLaterHostReceivesAnnouncement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := cluster(t, 3, nil)
		nodes[0].Announce([]Want{{Class: "cpu/1", Count: 1}}, 1)
		pass(time.Hour)
		for _, late := range nodes[1:] {
			connect(t, nodes[0], late)
			pass(2 * time.Second)
			if late.count() == 0 {
				t.Error("nothing was received within 2 s of connecting")
			}
			pass(time.Minute)
		}
	})
}

func TestAnnouncementReachesAllDespiteLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var packets atomic.Int64
		nodes := cluster(t, 20, func(net.Addr, net.Addr) bool { return packets.Add(1)%50 == 0 })
		for _, n := range nodes[1:] {
			connect(t, n, nodes[0])
		}
		pass(3 * time.Second)
		nodes[0].Announce([]Want{{Class: "cpu/1", Count: 1}}, 1)
		pass(3 * time.Second)
		for i, n := range nodes[1:] {
			if n.count() == 0 {
				t.Errorf("host %d received nothing", i+1)
			}
		}
	})
}

func TestAnnouncementLeavesOutWhatDoesNotFit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := cluster(t, 2, nil)
		connect(t, nodes[0], nodes[1])
		var wants []Want
		for i := range 100 {
			wants = append(wants, Want{Class: fmt.Sprintf("label/%d=%s", i, strings.Repeat("x", 200)), Count: 1})
		}
		nodes[0].Announce(wants, 10_000)
		pass(5 * time.Second)
		got := nodes[1].last()
		if n := len(got.Wants); n < 10 || !reflect.DeepEqual(got.Wants, wants[:n]) || got.Sessions != MaxSessions {
			t.Errorf("got %d wants and %d sessions, want the first wants and the most sessions", n, got.Sessions)
		}
	})
}

func TestMalformedAnnouncementsAreRefused(t *testing.T) {
	self, other := test.RandPeerIDFatal(t), test.RandPeerIDFatal(t)
	good := func() *wirepb.Announcement {
		return toWire(self, Announcement{Seq: 1, TTL: time.Second, Wants: []Want{{Class: "cpu/1", Count: 1}}, Sessions: 1})
	}
	for name, change := range map[string]func(*wirepb.Announcement){
		"another's":      func(a *wirepb.Announcement) { a.Peer = other.String() },
		"no ttl":         func(a *wirepb.Announcement) { a.TtlNs = 0 },
		"for ever":       func(a *wirepb.Announcement) { a.TtlNs = int64(maxTTL) + 1 },
		"no wants":       func(a *wirepb.Announcement) { a.Wants = nil },
		"too many wants": func(a *wirepb.Announcement) { a.Wants = make([]*wirepb.Want, MaxWants+1) },
		"no class":       func(a *wirepb.Announcement) { a.Wants[0].Class = "" },
		"a blank":        func(a *wirepb.Announcement) { a.Wants[0].Class = "cpu 1" },
		"long class":     func(a *wirepb.Announcement) { a.Wants[0].Class = strings.Repeat("x", maxClass+1) },
		"no count":       func(a *wirepb.Announcement) { a.Wants[0].Count = 0 },
		"count":          func(a *wirepb.Announcement) { a.Wants[0].Count = job.MaxTasks + 1 },
		"sessions":       func(a *wirepb.Announcement) { a.Sessions = MaxSessions + 1 },
		"below 0":        func(a *wirepb.Announcement) { a.Sessions = -1 },
		"size":           func(a *wirepb.Announcement) { a.Peer = strings.Repeat("p", MaxMessage) },
	} {
		m := good()
		change(m)
		b, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := fromWire(self, b); err == nil {
			t.Errorf("%s was accepted: got %+v, want an error", name, got)
		}
	}
	b, err := proto.Marshal(good())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fromWire(self, b); err != nil {
		t.Error(err)
	}
}

// TestValidatorRefusesStrangersAndFloods calls the validator as GossipSub does.
func TestValidatorRefusesStrangersAndFloods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		author, stranger := test.RandPeerIDFatal(t), test.RandPeerIDFatal(t)
		topic := cluster(t, 1, nil)[0].Topic
		topic.members = allBut(stranger.String()) // a stranger, or a member without the role scheduler
		say := func(by peer.ID, claims peer.ID, seq uint64) pubsub.ValidationResult {
			data, err := proto.Marshal(toWire(claims, Announcement{Seq: seq, TTL: time.Second, Wants: []Want{{Class: "cpu/1", Count: 1}}}))
			if err != nil {
				t.Fatal(err)
			}
			return topic.validate(t.Context(), by, &pubsub.Message{Message: &pubsubpb.Message{From: []byte(by), Data: data}})
		}
		for i, c := range []struct {
			by, claims peer.ID
			seq        uint64
			want       pubsub.ValidationResult
		}{
			{author, author, 5, pubsub.ValidationAccept},
			{author, author, 5, pubsub.ValidationIgnore},
			{author, author, 4, pubsub.ValidationIgnore},
			{author, author, 6, pubsub.ValidationAccept},
			{author, stranger, 7, pubsub.ValidationReject},
			{stranger, stranger, 1, pubsub.ValidationIgnore},
		} {
			if got := say(c.by, c.claims, c.seq); got != c.want {
				t.Errorf("case %d: got %v, want %v", i, got, c.want)
			}
		}
		accepted := 0
		for i := range 100 {
			if say(author, author, uint64(10+i)) == pubsub.ValidationAccept {
				accepted++
			}
		}
		if accepted > burst {
			t.Errorf("got %d announcements of one author at once, want at most %v", accepted, burst)
		}
		pass(remember)
		if say(author, author, 1) != pubsub.ValidationAccept {
			t.Error("announcements of an author whose clock was set back are refused for ever")
		}
	})
}

func FuzzFromWire(f *testing.F) {
	self, err := test.RandPeerID()
	if err != nil {
		f.Fatal(err)
	}
	b, err := proto.Marshal(toWire(self, Announcement{Seq: 1, TTL: time.Second, Wants: []Want{{Class: "cpu/1", Count: 1}}, Sessions: 1}))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		var m wirepb.Announcement // with its own name as the author, which the fuzzer cannot guess
		if proto.Unmarshal(b, &m) == nil {
			m.Peer = self.String()
			b, _ = proto.Marshal(&m)
		}
		a, err := fromWire(self, b)
		if err != nil {
			return
		}
		out, err := proto.Marshal(toWire(self, a))
		if err != nil {
			t.Fatal(err)
		}
		again, err := fromWire(self, out)
		if err != nil || !reflect.DeepEqual(a, again) {
			t.Fatalf("got %+v, then %+v, %v, want the same twice", a, again, err)
		}
	})
}

// TestAboutAsManyWorkersAnswerAsRequested checks that about as many workers answer as were requested, whatever the
// numbers are, and that their answers are spread over time.
func TestAboutAsManyWorkersAnswerAsRequested(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		asked, matching := rapid.IntRange(1, MaxSessions).Draw(t, "asked"), rapid.IntRange(1, 5000).Draw(t, "matching")
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		const rounds = 20
		came := 0
		for range rounds * matching {
			after, open := Answer(asked, matching, r)
			if after < 0 || after > spread {
				t.Fatalf("got an answer after %s, want 0 to %v", after, spread)
			}
			if open {
				came++
			}
		}
		got, want := float64(came)/rounds, float64(min(asked, matching))
		if got < 0.7*want || got > 2.5*want+3 {
			t.Fatalf("%.1f of %d workers answered, want about %d", got, matching, asked)
		}
	})
	if _, open := Answer(0, 10, rand.New(rand.NewPCG(1, 2))); open {
		t.Error("a worker answered though none was requested")
	}
}
