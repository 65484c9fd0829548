package node

// Which members a daemon keeps a session with although nothing is to be said.

import (
	"context"
	"errors"
	"time"

	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/protocol"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/p2p"
)

const (
	// standing is how many members a daemon keeps a session with although nothing is to be said. As others choose it
	// in turn, a daemon of a large cluster has about twice as many.
	standing = 16
	// goneFor is how long a neighbour must be out of reach, or have said goodbye,
	// before another member takes its place: longer than a host takes to restart.
	goneFor = 10 * time.Minute
	// reviewEvery is how often the neighbours are looked at although no member
	// came or went.
	reviewEvery = time.Minute
)

// roster is what is known of the members.
type roster interface {
	Members() []p2p.Member
	Member(p job.Peer) (p2p.Member, bool)
}

// neighbours wants sessions with members as they appear. Its run's goroutine
// owns it.
type neighbours struct {
	members roster
	wants   seeker
	left    *departed
	kept    map[job.Peer]time.Time // since when each is gone; the zero time: it is not. At most standing
}

func newNeighbours(members roster, wants seeker, left *departed) *neighbours {
	return &neighbours{members: members, wants: wants, left: left, kept: map[job.Peer]time.Time{}}
}

// run follows the members that come and go.
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
			case err != nil: // it is time for a review
			case e.Kind == p2p.ClusterChanged:
				return ErrRejoin
			default:
				n.changed(e, time.Now())
			}
		}
	}
}

// changed takes a member that came or went.
func (n *neighbours) changed(e p2p.Event, now time.Time) {
	if e.Kind == p2p.MemberUp {
		n.left.back(e.Peer)
	}
	if _, ok := n.kept[e.Peer]; ok {
		n.look(e.Peer, now)
		return
	}
	if e.Kind == p2p.MemberUp {
		n.keep(e.Peer, now)
	}
}

// look notes whether a neighbour is gone. One that is no member any more is let
// go at once: it was revoked.
func (n *neighbours) look(p job.Peer, now time.Time) {
	m, known := n.members.Member(p)
	_, stopped := n.left.when(p)
	switch {
	case !known:
		n.drop(p)
	case m.Connected && !stopped:
		n.kept[p] = time.Time{}
	case n.kept[p].IsZero():
		n.kept[p] = now
	}
}

// keep makes a member a neighbour if there is a place for it, and says whether
// there was.
func (n *neighbours) keep(p job.Peer, now time.Time) bool {
	if len(n.kept) >= standing {
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

// longestGone is the neighbour whose place another may take. Without another
// it stays: it is dialled until it is back.
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

// review looks at all neighbours, and fills their places: with the members that
// are there, then with those that were seen last.
func (n *neighbours) review(now time.Time) {
	for p := range n.kept {
		n.look(p, now)
	}
	if _, gone := n.longestGone(now); len(n.kept) >= standing && !gone {
		return
	}
	members := n.members.Members() // those that were seen last first
	for _, connected := range []bool{true, false} {
		for _, m := range members {
			_, kept := n.kept[m.Peer]
			_, stopped := n.left.when(m.Peer)
			there := m.Connected && !stopped
			if kept || there != connected || !there && len(n.kept) >= standing {
				continue
			}
			if !n.keep(m.Peer, now) {
				return
			}
			n.look(m.Peer, now)
		}
	}
}

// guarded is the host on which our own protocols are served: each behind its
// row of the table.
type guarded struct {
	host.Host
	table *p2p.Host
}

// SetStreamHandler serves a protocol of the table.
func (g guarded) SetStreamHandler(id protocol.ID, serve network.StreamHandler) {
	if err := g.table.Handle(id, serve); err != nil {
		panic(err) // a protocol of ours without a row: found by the first test that starts a node
	}
}

// ErrRejoin ends a node because its daemon has joined another cluster: build
// it anew.
var ErrRejoin = errors.New("the daemon joined another cluster")

// followMembers keeps the standing sessions.
func (n *Node) followMembers(ctx context.Context) error {
	return newNeighbours(n.host, n.net.board.wants.of(forNeighbours), n.net.board.left).run(ctx, n.host)
}
