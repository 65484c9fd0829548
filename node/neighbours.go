package node

// Which daemons to keep a session with, and who is told when work waits.

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/protocol"

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
	left     *departed
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
			return nil // ctx has ended
		}
		switch e.Kind {
		case p2p.MemberUp:
			n.left.back(e.Peer)
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

// callers answers schedulers that look for what this host has: it opens a
// session to some of them, after a pause, so that not all hosts come at once.
type callers struct {
	classes  atomic.Pointer[[]string] // none if this host runs no tasks
	sessions *session.Manager
	members  func() int
	heard    chan call
}

type call struct {
	from  job.Peer
	asked int
}

// maxCalls bounds the announcements that wait; more come again in ten seconds.
const maxCalls = 256

func newCallers(profile lease.Profile, sessions *session.Manager, members func() int) *callers {
	c := &callers{sessions: sessions, members: members, heard: make(chan call, maxCalls)}
	c.become(profile)
	return c
}

// become takes what the host could now ever give.
func (c *callers) become(profile lease.Profile) {
	var classes []string
	if profile.Worker {
		classes = lease.Classes(profile)
	}
	c.classes.Store(&classes)
}

// hear takes an announcement; it does not wait.
func (c *callers) hear(from job.Peer, a gossip.Announcement) {
	classes := *c.classes.Load()
	if !slices.ContainsFunc(a.Wants, func(w gossip.Want) bool { return slices.Contains(classes, w.Class) }) {
		return
	}
	select {
	case c.heard <- call{from, a.Sessions}:
	default:
	}
}

// run opens the sessions, each in its time.
func (c *callers) run(ctx context.Context) error {
	r := rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())) //nolint:gosec // chance, not secrecy
	var wg sync.WaitGroup
	defer wg.Wait()
	for {
		select {
		case <-ctx.Done():
			return nil
		case h := <-c.heard:
			after, open := gossip.Answer(h.asked, c.members(), r)
			if !open {
				continue
			}
			wg.Go(func() {
				t := time.NewTimer(after)
				defer t.Stop()
				select {
				case <-t.C:
					c.sessions.Want(h.from)
				case <-ctx.Done():
				}
			})
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
