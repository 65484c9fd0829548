package p2p

// Seeds: the bootstrap addresses are dialled for ever, and the peer book until enough members are connected.

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	ma "github.com/multiformats/go-multiaddr"
)

const (
	// enoughMembers connected ends the dialling of the peer book: from there
	// the DHT and the sessions find the rest.
	enoughMembers = 32
	// maxDials bounds the dials at once.
	maxDials = 32
	// bookMost is the longest pause between tries of a peer of the book, which
	// may be gone for good.
	bookMost = time.Minute
	// seedDial bounds one dial.
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

// dialled is how a dial went.
type dialled struct {
	id  peer.ID
	err error
}

// keeper decides whom to dial when. Run owns it.
type keeper struct {
	h       *Host
	targets map[peer.ID]*target
	busy    int
	results chan dialled
	wg      sync.WaitGroup
}

// keepConnected dials until ctx ends.
func (h *Host) keepConnected(ctx context.Context) {
	k := &keeper{h: h, targets: map[peer.ID]*target{}, results: make(chan dialled, maxDials)}
	defer k.wg.Wait()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case d := <-k.results:
			k.done(d, time.Now())
		case <-h.awake:
		case <-timer.C:
		}
		timer.Reset(k.step(ctx, time.Now()))
	}
}

// idleCheck is how often the keeper looks although nothing happened.
const idleCheck = 30 * time.Second

// step dials who is due and returns when to look again.
func (k *keeper) step(ctx context.Context, now time.Time) time.Duration {
	enough := k.h.roster.count() >= enoughMembers
	k.refresh(enough)
	wait := idleCheck
	for id, t := range k.targets {
		if t.busy || k.h.host.Network().Connectedness(id) == network.Connected {
			continue
		}
		if due := t.next.Sub(now); due > 0 {
			wait = min(wait, due)
			continue
		}
		if k.busy >= maxDials {
			continue // a result wakes us
		}
		t.busy, k.busy = true, k.busy+1
		k.wg.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, seedDial)
			defer cancel()
			k.results <- dialled{id, k.h.connect(ctx, t.info)} // has room for all
		})
	}
	return wait
}

// refresh takes up new seeds and, while there are not enough, members, and
// drops those that are gone.
func (k *keeper) refresh(enough bool) {
	want := map[peer.ID]bool{}
	take := func(info peer.AddrInfo, seed bool) {
		if info.ID == k.h.me.id || k.h.revoked.has(info.ID) {
			return
		}
		t := k.targets[info.ID]
		if t == nil {
			t = &target{}
			k.targets[info.ID] = t
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
	for _, info := range k.h.seeds() {
		take(info, true)
	}
	if !enough {
		for _, c := range k.h.book.list() {
			take(peer.AddrInfo{ID: c.id, Addrs: c.dial}, false)
		}
	}
	for id, t := range k.targets {
		if !want[id] && !t.busy {
			delete(k.targets, id)
		}
	}
}

func (k *keeper) done(d dialled, now time.Time) {
	k.busy--
	t := k.targets[d.id]
	t.busy = false
	if d.err == nil {
		t.pause, t.said = 0, ""
		return
	}
	most := bookMost
	if t.seed {
		most = retryMost
	}
	t.pause = min(max(2*t.pause, retryFirst), most)
	t.next = now.Add(t.pause/2 + rand.N(t.pause/2))
	reason := d.err.Error()
	if reason == t.said || errors.Is(d.err, context.Canceled) {
		return
	}
	t.said = reason
	if t.seed {
		k.h.log.Warn("bootstrap peer not connected, trying on", "peer", d.id, "error", d.err)
		return
	}
	k.h.log.Debug("known member not connected", "peer", d.id, "error", d.err)
}

// wake has the keeper look again.
func (h *Host) wake() {
	select {
	case h.awake <- struct{}{}:
	default:
	}
}

// seeds are the peers of the configuration and of the invitation.
func (h *Host) seeds() []peer.AddrInfo {
	infos, err := parseAddrs(*h.seeded.Load())
	if err != nil {
		infos = nil // New has refused it
	}
	if m := h.member.Load(); m != nil {
		more, err := parseAddrs(m.bootstrap)
		if err != nil {
			h.log.Debug("bootstrap addresses of the invitation", "error", err)
		}
		infos = append(infos, more...)
	}
	return infos
}

// SetBootstrap replaces the bootstrap addresses of the configuration, as
// multiaddrs with /p2p/ID; connections that exist stay.
func (h *Host) SetBootstrap(addrs []string) error {
	if _, err := parseAddrs(addrs); err != nil {
		return fmt.Errorf("p2p: bootstrap address %w", err)
	}
	h.seeded.Store(&addrs)
	h.wake()
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
