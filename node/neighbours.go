package node

// Which daemons to keep a session with, and who is told when work waits.

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/lease"
	"github.com/musterhq/muster/p2p"
	"github.com/musterhq/muster/p2p/gossip"
	"github.com/musterhq/muster/p2p/session"
	"github.com/musterhq/muster/scheduler"
)

// standing is how many members a daemon keeps a session with although nothing
// is to be said: in a cluster of this size every job finds its worker without
// asking around.
const standing = 32

// neighbours wants sessions with members as they appear.
type neighbours struct {
	host     *p2p.Host
	sessions *session.Manager
	log      *slog.Logger

	mu   sync.Mutex
	kept map[job.Peer]bool // guarded by mu
}

// run follows the members that come and go.
func (n *neighbours) run(ctx context.Context) error {
	sub := n.host.Subscribe()
	defer sub.Close()
	for _, m := range n.host.Members() {
		n.keep(m.Peer)
	}
	for {
		e, err := sub.Next(ctx)
		if err != nil {
			return nil //nolint:nilerr // ctx has ended
		}
		switch e.Kind {
		case p2p.MemberUp:
			n.keep(e.Peer)
		case p2p.MemberDown:
		case p2p.ClusterChanged:
			return ErrRejoin
		}
	}
}

// keep wants a session with one of the first members.
func (n *neighbours) keep(p job.Peer) {
	n.mu.Lock()
	want := !n.kept[p] && len(n.kept) < standing
	if want {
		n.kept[p] = true
	}
	n.mu.Unlock()
	if want {
		n.sessions.Want(p)
	}
}

// announcer is the scheduler's voice on the topic.
type announcer struct{ topic *gossip.Topic }

var _ scheduler.Announcer = announcer{}

// Announce says what this scheduler looks for.
func (a announcer) Announce(wants []scheduler.Want) {
	out := make([]gossip.Want, 0, len(wants))
	for _, w := range wants {
		out = append(out, gossip.Want{Class: w.Class, Count: w.Count})
	}
	a.topic.Announce(out, sessionsAsked)
}

// sessionsAsked is how many workers an announcement asks to come: as many as a
// scheduler weighs for one decision.
const sessionsAsked = 64

// answer opens a session to a scheduler that looks for what this host has.
func answer(profile lease.Profile, sessions *session.Manager, members func() int) func(job.Peer, gossip.Announcement) {
	classes := lease.Classes(profile)
	return func(from job.Peer, a gossip.Announcement) {
		if !profile.Worker || !slices.ContainsFunc(a.Wants, func(w gossip.Want) bool { return slices.Contains(classes, w.Class) }) {
			return
		}
		if gossip.Answers(a.Sessions, members(), rand.Float64()) {
			sessions.Want(from)
		}
	}
}

// peerNames is how members are called, by id.
func peerNames(h *p2p.Host) map[job.Peer]string {
	names := map[job.Peer]string{}
	for _, m := range h.Members() {
		names[m.Peer] = m.Name
	}
	return names
}

// ErrRejoin ends a node because its daemon has joined another cluster: build
// it anew.
var ErrRejoin = fmt.Errorf("the daemon joined another cluster")
