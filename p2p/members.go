package p2p

// The other members: how to reach them, and what is known of them.

import (
	"context"
	"fmt"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/p2p/net/swarm"

	"github.com/musterhq/muster/job"
)

// Connect connects to a member, wherever it was last seen. The error says why
// it was not reached or refused us.
func (h *Host) Connect(ctx context.Context, p job.Peer) error {
	id, err := peer.Decode(string(p))
	if err != nil {
		return fmt.Errorf("p2p: connect to %.80q: %w", p, err)
	}
	known, _ := h.book.get(id)
	return h.connect(ctx, peer.AddrInfo{ID: id, Addrs: known.dial})
}

// ConnectAddr connects to the member at an address that ends in /p2p/ID.
func (h *Host) ConnectAddr(ctx context.Context, addr string) error {
	infos, err := parseAddrs([]string{addr})
	if err != nil {
		return fmt.Errorf("p2p: connect to %w", err)
	}
	return h.connect(ctx, infos[0])
}

func (h *Host) connect(ctx context.Context, info peer.AddrInfo) error {
	if h.revoked.has(info.ID) {
		return fmt.Errorf("p2p: connect to %s: %w", info.ID, ErrRevoked)
	}
	if s, ok := h.host.Network().(*swarm.Swarm); ok {
		s.Backoff().Clear(info.ID) // we have a back-off of our own
	}
	if err := h.host.Connect(ctx, info); err != nil {
		return fmt.Errorf("p2p: connect to %s: %w", info.ID, err)
	}
	return nil
}

// Members lists the other daemons of the cluster that were ever admitted here.
func (h *Host) Members() []Member {
	list := h.book.list()
	members := make([]Member, 0, len(list))
	for _, c := range list {
		members = append(members, h.memberOf(c))
	}
	return members
}

// Member tells of one other daemon.
func (h *Host) Member(p job.Peer) (Member, bool) {
	id, err := peer.Decode(string(p))
	if err != nil {
		return Member{}, false
	}
	c, ok := h.book.get(id)
	if !ok {
		return Member{}, false
	}
	return h.memberOf(c), true
}

func (h *Host) memberOf(c contact) Member {
	m := Member{Peer: job.Peer(c.Peer), Name: c.Name, Roles: c.Roles, Addrs: c.Addrs, LastSeen: c.LastSeen}
	if g, ok := h.roster.get(c.id); ok && g.connected {
		m.Connected, m.LastSeen = true, time.Now().UTC()
	}
	return m
}

// Subscribe tells of members that come and go, beginning with those that are
// connected.
func (h *Host) Subscribe() *Subscription { return h.roster.subscribe() }
