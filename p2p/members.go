package p2p

// The other members: connecting to them, and what is known about them.

import (
	"context"
	"fmt"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/musterhq/muster/job"
)

// Connect connects to a member at the addresses where it was last seen. The error says why it could not be reached or
// why it refused.
func (h *Host) Connect(ctx context.Context, p job.Peer) error {
	id, err := peer.Decode(string(p))
	if err != nil {
		return fmt.Errorf("p2p: connect to %.80q: %w", p, err)
	}
	known, _ := h.book.get(id)
	return h.dialer.connect(ctx, peer.AddrInfo{ID: id, Addrs: known.dial})
}

// ConnectAddr connects to the member at an address that ends in /p2p/ID.
func (h *Host) ConnectAddr(ctx context.Context, addr string) error {
	infos, err := parseAddrs([]string{addr})
	if err != nil {
		return fmt.Errorf("p2p: connect to %w", err)
	}
	return h.dialer.connect(ctx, infos[0])
}

// Members returns the other daemons of the cluster that were ever admitted here.
func (h *Host) Members() []Member {
	list := h.book.list()
	members := make([]Member, 0, len(list))
	for _, c := range list {
		members = append(members, memberOf(c, h.roster))
	}
	return members
}

// Member returns one other daemon; false if it was never admitted here.
func (h *Host) Member(p job.Peer) (Member, bool) {
	id, err := peer.Decode(string(p))
	if err != nil {
		return Member{}, false
	}
	c, ok := h.book.get(id)
	if !ok {
		return Member{}, false
	}
	return memberOf(c, h.roster), true
}

func memberOf(c contact, r *roster) Member {
	m := Member{Peer: job.Peer(c.Peer), Name: c.Name, Roles: c.Roles, Addrs: c.Addrs, LastSeen: c.LastSeen}
	if g, ok := r.get(c.id); ok && g.connected {
		m.Connected, m.LastSeen = true, time.Now().UTC()
	}
	return m
}

// Subscribe reports members that come and go, beginning with those that are connected.
func (h *Host) Subscribe() *Subscription { return h.roster.subscribe() }
