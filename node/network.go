package node

// What runs on the host: table, sessions, topic.

import (
	"context"

	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/musterhq/muster/dht"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/p2p/gossip"
	"github.com/musterhq/muster/p2p/session"
)

// buildNetwork builds what runs on the host: table, topic, sessions.
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
	n.board = &switchboard{
		self: n.host.Peer(), groups: n.groups, cut: func(p peer.ID) error { return n.host.Libp2p().Network().ClosePeer(p) },
		met: n.met, left: n.left, defects: newDefects(n.part("node")), log: n.part("node"),
	}
	if n.sessions, err = session.New(session.DefaultConfig(), guarded{n.host.Libp2p(), n.host}, n.board, n.part("session")); err != nil {
		return err
	}
	n.board.sessions, n.board.wants = n.sessions, newWants(n.host.Peer(), n.sessions, n.part("node"))
	gc := gossip.DefaultConfig()
	gc.Cluster = cluster
	n.callers = newCallers(n.profile, n.board.wants.of(forCallers), func() int { return len(n.host.Members()) })
	isMember := func(p job.Peer) bool { _, ok := n.host.Member(p); return ok }
	n.topic, err = gossip.New(gc, n.host.Libp2p(), isMember, n.callers.hear, n.part("gossip"))
	return err
}

// met notes that a session came up.
func (n *Node) met(job.Peer) {
	select {
	case n.metAny <- struct{}{}:
	default:
	}
}
