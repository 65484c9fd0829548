package daemon

// The neighbours: members with which a daemon always keeps a session, even without work.

import (
	"context"
	"errors"
	"time"

	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/protocol"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/p2p"
	schedulerloop "github.com/musterhq/muster/scheduler/loop"
)

const (
	// maxNeighbours bounds the neighbours that a daemon chooses. Other daemons choose this daemon too, so in a large cluster
	// it has about twice as many sessions with neighbours. Without any, the first job of a quiet cluster would wait for a dial.
	maxNeighbours = 16
	// goneFor is how long a neighbour must be gone before another member replaces it. It is longer than a host takes to
	// restart.
	goneFor = 10 * time.Minute
	// reviewEvery is how often all neighbours are checked. In addition a member is checked at each of its events.
	reviewEvery = time.Minute
)

// memberList is the part of p2p.Host that lists the members.
type memberList interface {
	Members() []p2p.Member
	Member(p job.Peer) (p2p.Member, bool)
}

// neighbours keeps sessions with some members. Only the goroutine of run uses it.
type neighbours struct {
	members  memberList
	wants    seeker
	departed *departed
	revoked  func(job.Peer)         // called with each peer that is no longer a member
	kept     map[job.Peer]time.Time // the time since which each neighbour is gone; zero: not gone. At most maxNeighbours
}

func newNeighbours(members memberList, wants seeker, gone *departed, revoked func(job.Peer)) *neighbours {
	return &neighbours{members: members, wants: wants, departed: gone, revoked: revoked, kept: map[job.Peer]time.Time{}}
}

// run follows the events of the members until ctx ends.
func (n *neighbours) run(ctx context.Context, h *p2p.Host) error {
	sub := h.Subscribe()
	defer sub.Close()
	for {
		now := time.Now()
		n.review(now)
		next := now.Add(reviewEvery)
		for time.Now().Before(next) {
			waiting, cancel := context.WithDeadline(ctx, next)
			e, err := sub.Next(waiting)
			cancel()
			switch {
			case ctx.Err() != nil:
				return nil
			case err != nil: // the next review is due
			case e.Kind == p2p.ClusterChanged:
				return ErrRejoin
			default:
				n.changed(e, time.Now())
			}
		}
	}
}

// changed handles an event of a member.
func (n *neighbours) changed(e p2p.Event, now time.Time) {
	if e.Kind == p2p.MemberUp {
		n.departed.back(e.Peer)
	} else if _, known := n.members.Member(e.Peer); !known {
		n.revoked(e.Peer)
	}
	if _, ok := n.kept[e.Peer]; ok {
		n.look(e.Peer, now)
		return
	}
	if e.Kind == p2p.MemberUp {
		n.keep(e.Peer, now)
	}
}

// look records when a neighbour began to be gone, which means not connected, or stopped after a goodbye. A neighbour that
// is no longer a member was revoked, and is dropped at once.
func (n *neighbours) look(p job.Peer, now time.Time) {
	m, known := n.members.Member(p)
	_, stopped := n.departed.when(p)
	switch {
	case !known:
		n.drop(p)
	case m.Connected && !stopped:
		n.kept[p] = time.Time{}
	case n.kept[p].IsZero():
		n.kept[p] = now
	}
}

// keep makes a member a neighbour. It returns false if there are maxNeighbours and none of them can be replaced.
func (n *neighbours) keep(p job.Peer, now time.Time) bool {
	if len(n.kept) >= maxNeighbours {
		gone, ok := n.longestGone(now)
		if !ok {
			return false
		}
		n.drop(gone)
	}
	n.kept[p] = time.Time{}
	n.wants.Want(p)
	return true
}

// longestGone returns the neighbour to replace: the one that has been gone longest, and for at least goneFor. If no other
// member is connected, it is not replaced, and this daemon goes on dialling it.
func (n *neighbours) longestGone(now time.Time) (longest job.Peer, ok bool) {
	for p, since := range n.kept {
		if since.IsZero() || now.Sub(since) < goneFor {
			continue
		}
		if !ok || since.Before(n.kept[longest]) || since.Equal(n.kept[longest]) && p < longest {
			longest, ok = p, true
		}
	}
	return longest, ok
}

func (n *neighbours) drop(p job.Peer) {
	delete(n.kept, p)
	n.wants.Unwant(p)
}

// review checks all neighbours, and adds new ones up to maxNeighbours: first members that are connected, then the most
// recently seen.
func (n *neighbours) review(now time.Time) {
	for p := range n.kept {
		n.look(p, now)
	}
	if _, gone := n.longestGone(now); len(n.kept) >= maxNeighbours && !gone {
		return
	}
	members := n.members.Members() // the most recently seen first
	for _, connected := range []bool{true, false} {
		for _, m := range members {
			_, kept := n.kept[m.Peer]
			_, stopped := n.departed.when(m.Peer)
			there := m.Connected && !stopped
			if kept || there != connected || !there && len(n.kept) >= maxNeighbours {
				continue
			}
			if !n.keep(m.Peer, now) {
				return
			}
			n.look(m.Peer, now)
		}
	}
}

// guarded is a libp2p host that serves our own protocols within the bounds of p2p's table of protocols.
type guarded struct {
	host.Host
	table *p2p.Host
}

// SetStreamHandler serves a protocol that is in the table.
func (g guarded) SetStreamHandler(id protocol.ID, serve network.StreamHandler) {
	if err := g.table.Handle(id, serve); err != nil {
		panic(err) // the table has no such protocol; any test that starts a node finds this
	}
}

// RolesOf returns the roles that an admitted peer has now.
func (g guarded) RolesOf(id peer.ID) p2p.Roles { return g.table.Grants.Of(id) }

// ErrRejoin ends a node because its daemon has joined another cluster. Build a new one.
var ErrRejoin = errors.New("the daemon joined another cluster")

// followMembers runs the neighbours.
func (n *Node) followMembers(ctx context.Context) error {
	revoked := func(p job.Peer) {
		for _, o := range n.owners.by {
			schedulerloop.TellRevoked(o.Loop, p)
		}
	}
	return newNeighbours(n.host, n.net.router.wants.of(forNeighbours), n.net.router.departed, revoked).run(ctx, n.host)
}
