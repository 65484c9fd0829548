package node

// What runs on the host: table, sessions, topic.

import (
	"net/http"

	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/musterhq/muster/dht"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/lease"
	"github.com/musterhq/muster/p2p/gossip"
	"github.com/musterhq/muster/p2p/peerhttp"
	"github.com/musterhq/muster/p2p/session"
)

// overlay is what joins this daemon to others.
type overlay struct {
	table   *dht.Table
	topic   *gossip.Topic
	callers *callers
	board   *switchboard
	toPeers *http.Transport // requests to other daemons
}

// newOverlay builds what runs on the host: table, topic, sessions. It calls met when a session comes up.
func newOverlay(b base, profile lease.Profile, met func(job.Peer)) (_ *overlay, err error) {
	n := &overlay{}
	cluster := b.host.Cluster()
	tc := dht.DefaultConfig()
	tc.Cluster = cluster
	if n.table, err = dht.New(tc, b.host.Libp2p(), b.part("dht")); err != nil {
		return nil, err
	}
	groups, err := newDirectory(b.host.Peer(), b.store.Group(), b.store, n.table, b.part("node"))
	if err != nil {
		return nil, err
	}
	n.board = &switchboard{
		self: b.host.Peer(), groups: groups, cut: func(p peer.ID) error { return b.host.Libp2p().Network().ClosePeer(p) },
		met: met, left: newDeparted(), defects: newDefects(b.part("node")), log: b.part("node"),
	}
	if n.board.sessions, err = session.New(session.DefaultConfig(), guarded{b.host.Libp2p(), b.host}, n.board, b.part("session")); err != nil {
		return nil, err
	}
	n.board.wants = newWants(b.host.Peer(), n.board.sessions, b.part("node"))
	gc := gossip.DefaultConfig()
	gc.Cluster = cluster
	n.callers = newCallers(profile, n.board.wants.of(forCallers), func() int { return len(b.host.Members()) })
	isMember := func(p job.Peer) bool { _, ok := b.host.Member(p); return ok }
	if n.topic, err = gossip.New(gc, b.host.Libp2p(), isMember, n.callers.hear, b.part("gossip")); err != nil {
		return nil, err
	}
	asking := peerhttp.DefaultConfig()
	asking.HeaderTimeout = job.MaxLease // a followed log says nothing until its task starts; a silent peer's connection is cut by its session
	n.toPeers, err = peerhttp.NewTransport(asking, guarded{b.host.Libp2p(), b.host})
	return n, err
}

// become tells others what this host could now ever give.
func (n *overlay) become(host lease.Profile) {
	n.callers.become(host)
	n.advertise(host)
}

// advertise tells the table what this host could ever run.
func (n *overlay) advertise(host lease.Profile) {
	n.table.Advertise(append([]string{groupClass(n.board.groups.own)}, lease.Classes(host)...))
}
