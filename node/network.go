package node

// The parts that use the libp2p host: the DHT, the sessions and the gossip topic.

import (
	"context"

	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/musterhq/muster/dht"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/p2p/gossip"
	"github.com/musterhq/muster/p2p/session"
)

// buildNetwork builds the DHT, the sessions and the gossip topic.
func (n *Node) buildNetwork(context.Context) (err error) {
	cluster := n.host.Cluster()
	tc := dht.DefaultConfig()
	tc.Cluster = cluster
	if n.table, err = dht.New(tc, n.host.Libp2p(), n.part("dht")); err != nil {
		return err
	}
	if n.groups, err = newDirectory(n.host.Peer(), n.store.Group(), n.store, n.table, n.part("node")); err != nil {
		return err
	}
	n.router = &router{
		self: n.host.Peer(), groups: n.groups, closeConn: func(p peer.ID) error { return n.host.Libp2p().Network().ClosePeer(p) },
		onSession: n.sessionOpened, departed: n.departed, defects: newDefects(n.part("node")), log: n.part("node"),
	}
	if n.sessions, err = session.New(session.DefaultConfig(), guarded{n.host.Libp2p(), n.host}, n.router, n.part("session")); err != nil {
		return err
	}
	n.router.sessions, n.router.wants = n.sessions, newWants(n.host.Peer(), n.sessions, n.part("node"))
	gc := gossip.DefaultConfig()
	gc.Cluster = cluster
	n.callers = newCallers(n.profile, n.router.wants.of(forCallers), func() int { return len(n.host.Members()) })
	isMember := func(p job.Peer) bool { _, ok := n.host.Member(p); return ok }
	n.topic, err = gossip.New(gc, n.host.Libp2p(), isMember, n.callers.hear, n.part("gossip"))
	return err
}

// sessionOpened records that a session has been opened.
func (n *Node) sessionOpened(job.Peer) {
	select {
	case n.anySession <- struct{}{}:
	default:
	}
}
