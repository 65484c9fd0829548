package session

// The addresses of the two ends of a session.

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/libp2p/go-libp2p"
	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peerstore"
	ma "github.com/multiformats/go-multiaddr"

	"github.com/musterhq/muster/internal/contract"
)

func (n *node) path(of *node) contract.Path { return n.table.get(of.id()).info().Path }

// Both ends of a session report the same addresses, in opposite order, whichever end has opened it.
func TestBothEndsReportTheSamePath(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		c.nodes[0].Want(c.nodes[1].id())
		c.nodes[2].Want(c.nodes[0].id())
		pass(time.Second)
		for _, other := range c.nodes[1:] {
			a, b := c.nodes[0].path(other), other.path(c.nodes[0])
			if a.Local == "" || a.Remote == "" || a.Local == a.Remote || a != (contract.Path{Local: b.Remote, Remote: b.Local}) {
				t.Errorf("got %+v and %+v, want two addresses, in opposite order", a, b)
			}
		}
		if a, b := c.nodes[0].path(c.nodes[1]), c.nodes[0].path(c.nodes[2]); a.Local != b.Local || a.Remote == b.Remote {
			t.Errorf("got %+v and %+v of one host, want the same local and different remote addresses", a, b)
		}
	})
}

// On a QUIC connection that a host has dialled, its own address is unknown if it listens at all its addresses.
func TestHostThatListensEverywhereReportsItsPath(t *testing.T) {
	var nodes []*node
	for _, at := range []string{"/ip4/0.0.0.0/udp/0/quic-v1", "/ip4/0.0.0.0/udp/0/quic-v1"} {
		h, err := libp2p.New(libp2p.ListenAddrStrings(at), libp2p.DisableRelay(), libp2p.DisableMetrics())
		if err != nil {
			t.Fatal(err)
		}
		n := &node{host: h}
		n.start(t)
		t.Cleanup(func() { n.stop(); h.Close() })
		nodes = append(nodes, n)
	}
	a, b := nodes[0], nodes[1]
	a.host.Peerstore().AddAddrs(b.host.ID(), onLoopback(b.host), peerstore.PermanentAddrTTL)
	a.Want(b.id())
	until(t, "no session", func() bool { return a.isUp(b.id()) && b.isUp(a.id()) })
	if want := (contract.Path{Local: "127.0.0.1", Remote: "127.0.0.1"}); a.path(b) != want || b.path(a) != want {
		t.Errorf("got %+v and %+v, want %+v", a.path(b), b.path(a), want)
	}
}

func onLoopback(h host.Host) []ma.Multiaddr {
	return ma.FilterAddrs(h.Addrs(), func(a ma.Multiaddr) bool {
		ip, ok := addressOf(a)
		return ok && ip.IsLoopback()
	})
}

// ends are the addresses of a connection.
type ends struct{ local, remote string }

func (e ends) LocalMultiaddr() ma.Multiaddr  { return ma.StringCast(e.local) }
func (e ends) RemoteMultiaddr() ma.Multiaddr { return ma.StringCast(e.remote) }

var _ network.ConnMultiaddrs = ends{}

func TestPathNeedsDirectRoutableAddresses(t *testing.T) {
	const relay = "/ip4/10.0.0.9/tcp/4701/p2p/12D3KooWNbXmmoznxXaRArq2f2kCmHvrwAfEA3X4CP1LbytmZC9V/p2p-circuit"
	for _, c := range []struct {
		ends
		want contract.Path
	}{
		{ends{"/ip4/10.0.0.1/tcp/1", "/ip4/10.0.0.2/tcp/2"}, contract.Path{Local: "10.0.0.1", Remote: "10.0.0.2"}},
		{ends{"/ip6/2001:db8::1/udp/1/quic-v1", "/ip6/2001:db8:0:0::2/udp/2/quic-v1"}, contract.Path{Local: "2001:db8::1", Remote: "2001:db8::2"}},
		{ends{"/ip6/::ffff:10.0.0.1/tcp/1", "/ip4/10.0.0.2/tcp/2"}, contract.Path{Local: "10.0.0.1", Remote: "10.0.0.2"}},
		{ends{relay, "/ip4/10.0.0.2/tcp/2"}, contract.Path{}},
		{ends{"/ip4/10.0.0.1/tcp/1", relay}, contract.Path{}},
		{ends{"/ip6/fe80::1/tcp/1", "/ip6/fe80::2/tcp/2"}, contract.Path{}},
		{ends{"/ip6zone/eth0/ip6/fe80::1/tcp/1", "/ip6zone/eth0/ip6/fe80::2/tcp/2"}, contract.Path{}},
		{ends{"/ip4/10.0.0.1/tcp/1", "/ip4/0.0.0.0/tcp/2"}, contract.Path{}},
		{ends{"/ip4/10.0.0.1/tcp/1", "/dns4/example/tcp/2"}, contract.Path{}},
	} {
		if got := pathOf(c.ends); got != c.want {
			t.Errorf("%+v: got %+v, want %+v", c.ends, got, c.want)
		}
	}
}

// A peer of an earlier version gets no gang, so its path is not needed.
func TestSessionWithAnEarlierVersionHasNoPath(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 2)
		a, b := c.nodes[0], c.nodes[1]
		b.stop() // the test itself acts as b
		b.host.SetStreamHandler(ID, func(s network.Stream) {
			if _, err := readOpen(t.Context(), s); err != nil {
				t.Error(err)
				return
			}
			accept := acceptFrame(count{1, 1})
			accept.GetAccept().Gangs = false
			first, err := appendFrame(nil, accept)
			if err == nil {
				_, err = s.Write(first)
			}
			if err != nil {
				t.Error(err)
			}
		})
		a.Want(b.id())
		pass(time.Second)
		if got := a.path(b); got != (contract.Path{}) {
			t.Errorf("got path %+v, want none", got)
		}
	})
}
