package daemon

// The parts that use the libp2p host: the DHT, the sessions and the gossip topic.

import (
	"net/http"

	"github.com/musterhq/muster/api"
	"github.com/musterhq/muster/dht"
	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/p2p"
	"github.com/musterhq/muster/p2p/gossip"
	"github.com/musterhq/muster/p2p/peerhttp"
	"github.com/musterhq/muster/p2p/session"
)

// overlay holds the parts that connect this daemon with others.
type overlay struct {
	table   *dht.Table
	topic   *gossip.Topic
	callers *callers
	router  *router
	toPeers *http.Transport // requests to other daemons
}

// newOverlay builds the DHT, the sessions and the gossip topic. It calls onSession when a session has been opened.
func newOverlay(b base, profile contract.Profile, onSession func(job.Peer)) (_ *overlay, err error) {
	n := &overlay{}
	cluster := b.host.Cluster()
	tc := dht.DefaultConfig()
	tc.Cluster = cluster
	if n.table, err = dht.New(tc, b.host.Libp2p(), b.part("dht")); err != nil {
		return nil, err
	}
	asking := peerhttp.DefaultConfig()
	asking.HeaderTimeout = job.MaxLease // a followed log sends nothing until its task starts; the session detects a silent peer
	if n.toPeers, err = peerhttp.NewTransport(asking, guarded{b.host.Libp2p(), b.host}); err != nil {
		return nil, err
	}
	prover := api.Foundings{HTTP: &http.Client{Transport: n.toPeers}}
	groups, err := newDirectory(b.host.Peer(), b.homes, b.store, holding{n.table, b.host, p2p.RoleScheduler}, prover, b.part("node"))
	if err != nil {
		return nil, err
	}
	n.router = &router{
		self: b.host.Peer(), groups: groups, signed: b.host.Grants.Labels, may: b.host.Grants.MayHave,
		onSession: onSession, departed: newDeparted(), defects: newDefects(b.part("node")), log: b.part("node"),
	}
	sc := session.DefaultConfig()
	sc.Denied = auditBackend{b.audit, b.host}.denied
	if n.router.sessions, err = session.New(sc, guarded{b.host.Libp2p(), b.host}, n.router, b.part("session")); err != nil {
		return nil, err
	}
	n.router.wants = newWantedSessions(b.host.Peer(), n.router.sessions, b.part("node"))
	gc := gossip.DefaultConfig()
	gc.Cluster = cluster
	n.callers = newCallers(profile, n.router.wants.of(forCallers), func() int { return len(b.host.Members()) })
	n.topic, err = gossip.New(gc, b.host.Libp2p(), grants{b.host}, n.callers.hear, b.part("gossip"))
	return n, err
}

// become applies a changed profile of this host to announcements and to the DHT.
func (n *overlay) become(host contract.Profile) {
	n.callers.become(host)
	n.advertise(host)
}

// advertise advertises this host's resource classes, and the groups that it owns, in the DHT.
func (n *overlay) advertise(host contract.Profile) {
	var classes []string
	if n.router.owners.home != nil {
		for _, g := range n.router.groups.own.groups() {
			classes = append(classes, groupClass(g))
		}
	}
	n.table.Advertise(append(classes, contract.Classes(host)...))
}
