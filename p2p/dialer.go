package p2p

// The dialer. It retries the bootstrap addresses for ever, and the peer book until enough members are connected. It also
// chooses the order in which a peer's addresses are dialled.

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/p2p/net/swarm"
	ma "github.com/multiformats/go-multiaddr"
	manet "github.com/multiformats/go-multiaddr/net"
)

const (
	// enoughMembers is the number of connected members at which the dialer stops dialling the peer book: the DHT and the
	// sessions find the rest.
	enoughMembers = 32
	// maxDials bounds concurrent dials.
	maxDials = 32
	// bookMost is the longest pause between dials of a peer from the book, which may be gone for good.
	bookMost = time.Minute
	// seedDial bounds the time of one dial.
	seedDial = 15 * time.Second
)

// target is a peer to connect to.
type target struct {
	info  peer.AddrInfo
	seed  bool
	busy  bool
	pause time.Duration
	next  time.Time
	said  string // the last error that was logged
}

// dialled is the result of a dial.
type dialled struct {
	id  peer.ID
	err error
}

// dialer decides which peers to dial and when, and dials them.
type dialer struct {
	own     *ownMembership
	host    host.Host
	roster  *roster
	revoked *revocations
	book    *book
	seeded  atomic.Pointer[[]string] // bootstrap addresses of the configuration
	awake   chan struct{}            // holds a token while run should check again
	log     *slog.Logger

	// Only run accesses these.
	targets map[peer.ID]*target
	busy    int
	results chan dialled
	wg      sync.WaitGroup
}

func newDialer(own *ownMembership, bootstrap []string, node host.Host, a *admission, log *slog.Logger) *dialer {
	d := &dialer{
		own: own, host: node, roster: a.roster, revoked: a.revoked, book: a.book, awake: make(chan struct{}, 1), log: log,
		targets: map[peer.ID]*target{}, results: make(chan dialled, maxDials),
	}
	d.seeded.Store(&bootstrap)
	return d
}

// run dials until ctx ends.
func (d *dialer) run(ctx context.Context) {
	defer d.wg.Wait()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case r := <-d.results:
			d.done(r, time.Now())
		case <-d.awake:
		case <-timer.C:
		}
		timer.Reset(d.step(ctx, time.Now()))
	}
}

// idleCheck is how often run checks if nothing happens.
const idleCheck = 30 * time.Second

// step dials the peers that are due, and returns the time until the next check.
func (d *dialer) step(ctx context.Context, now time.Time) time.Duration {
	enough := d.roster.count() >= enoughMembers
	d.refresh(enough)
	wait := idleCheck
	for id, t := range d.targets {
		if t.busy || d.host.Network().Connectedness(id) == network.Connected {
			continue
		}
		if due := t.next.Sub(now); due > 0 {
			wait = min(wait, due)
			continue
		}
		if d.busy >= maxDials {
			continue // run checks again when a dial ends
		}
		t.busy, d.busy = true, d.busy+1
		d.wg.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, seedDial)
			defer cancel()
			d.results <- dialled{id, d.connect(ctx, t.info)} // the channel has room for all results
		})
	}
	return wait
}

// refresh adds new bootstrap peers and, while too few members are connected, members of the book. It removes targets that
// no longer apply.
func (d *dialer) refresh(enough bool) {
	want := map[peer.ID]bool{}
	take := func(info peer.AddrInfo, seed bool) {
		if info.ID == d.own.identity.id || d.revoked.has(info.ID) {
			return
		}
		t := d.targets[info.ID]
		if t == nil {
			t = &target{}
			d.targets[info.ID] = t
		}
		if !want[info.ID] && !t.busy {
			t.info, t.seed = peer.AddrInfo{ID: info.ID}, false
		}
		want[info.ID] = true
		if !t.busy {
			t.seed = t.seed || seed
			t.info.Addrs = ma.Unique(append(t.info.Addrs, info.Addrs...))
		}
	}
	for _, info := range d.seeds() {
		take(info, true)
	}
	if !enough {
		for _, c := range d.book.list() {
			take(peer.AddrInfo{ID: c.id, Addrs: c.dial}, false)
		}
	}
	for id, t := range d.targets {
		if !want[id] && !t.busy {
			delete(d.targets, id)
		}
	}
}

func (d *dialer) done(r dialled, now time.Time) {
	d.busy--
	t := d.targets[r.id]
	t.busy = false
	if r.err == nil {
		t.pause, t.said = 0, ""
		return
	}
	most := bookMost
	if t.seed {
		most = retryMost
	}
	t.pause = min(max(2*t.pause, retryFirst), most)
	t.next = now.Add(t.pause/2 + rand.N(t.pause/2))
	reason := r.err.Error()
	if reason == t.said || errors.Is(r.err, context.Canceled) {
		return
	}
	t.said = reason
	if t.seed {
		d.log.Warn("bootstrap peer not connected, will retry", "peer", r.id, "error", r.err)
		return
	}
	d.log.Debug("known member not connected", "peer", r.id, "error", r.err)
}

// connect dials a member unless it is revoked.
func (d *dialer) connect(ctx context.Context, info peer.AddrInfo) error {
	if d.revoked.has(info.ID) {
		return fmt.Errorf("p2p: connect to %s: %w", info.ID, ErrRevoked)
	}
	if s, ok := d.host.Network().(*swarm.Swarm); ok {
		s.Backoff().Clear(info.ID) // the dialer has its own back-off
	}
	if err := d.host.Connect(ctx, info); err != nil {
		return fmt.Errorf("p2p: connect to %s: %w", info.ID, err)
	}
	return nil
}

// wake makes run check again.
func (d *dialer) wake() {
	select {
	case d.awake <- struct{}{}:
	default:
	}
}

// seeds returns the bootstrap peers of the configuration and of the invitation.
func (d *dialer) seeds() []peer.AddrInfo {
	infos, err := parseAddrs(*d.seeded.Load())
	if err != nil {
		infos = nil // New has already refused such a configuration
	}
	if m := d.own.load(); m != nil {
		more, err := parseAddrs(m.bootstrap)
		if err != nil {
			d.log.Debug("bootstrap addresses of the invitation", "error", err)
		}
		infos = append(infos, more...)
	}
	return infos
}

// setBootstrap replaces the bootstrap addresses of the configuration.
func (d *dialer) setBootstrap(addrs []string) error {
	if _, err := parseAddrs(addrs); err != nil {
		return fmt.Errorf("p2p: bootstrap address %w", err)
	}
	d.seeded.Store(&addrs)
	d.wake()
	return nil
}

func toMultiaddrs(texts []string) []ma.Multiaddr {
	addrs := make([]ma.Multiaddr, 0, len(texts))
	for _, t := range texts {
		if a, err := ma.NewMultiaddr(t); err == nil {
			addrs = append(addrs, a)
		}
	}
	return addrs
}

// siteDelay is how long the other transports wait for TCP when private addresses are dialled. It is far longer than a
// handshake within a site takes.
const siteDelay = 300 * time.Millisecond

// dialOrder prefers TCP within a site: with TCP the end of a process is noticed at once, and a small message costs a
// third less CPU. For public addresses it keeps the order of libp2p, which prefers QUIC for its shorter handshake.
func dialOrder(addrs []ma.Multiaddr) []network.AddrDelay {
	var public []ma.Multiaddr
	var ranked []network.AddrDelay
	for _, a := range addrs {
		switch _, err := a.ValueForProtocol(ma.P_TCP); {
		case manet.IsPublicAddr(a):
			public = append(public, a)
		case err == nil:
			ranked = append(ranked, network.AddrDelay{Addr: a})
		default:
			ranked = append(ranked, network.AddrDelay{Addr: a, Delay: siteDelay})
		}
	}
	if len(ranked) > 0 && allDelayed(ranked) { // there is nothing to wait for
		for i := range ranked {
			ranked[i].Delay = 0
		}
	}
	return append(ranked, swarm.DefaultDialRanker(public)...)
}

func allDelayed(ranked []network.AddrDelay) bool {
	for _, r := range ranked {
		if r.Delay == 0 {
			return false
		}
	}
	return true
}
