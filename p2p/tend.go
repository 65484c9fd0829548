package p2p

// Tending: what a running host does by itself, besides dialling: renew, look for the expired, spread revocations, keep the book.

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/musterhq/muster/p2p/wirepb"
)

const (
	// tendEvery is how long an expired credential may be overlooked.
	tendEvery = 10 * time.Second
	// bookEvery is how long the book on disk may be behind; a new member is
	// written within bookSoon, with its address.
	bookEvery = 2 * time.Second
	bookSoon  = 50 * time.Millisecond
	// compareEvery is how often revocations are compared with one member.
	compareEvery = 10 * time.Minute
	// renewRetry is the longest pause between tries to renew.
	renewRetry = 5 * time.Minute
	// spreadAtOnce bounds the streams that tell all members something.
	spreadAtOnce = 16
	// tellTimeout bounds one of them.
	tellTimeout = 10 * time.Second
)

// keepBook writes the peer book as it changes; newcomers that arrive together
// share a write.
func (h *Host) keepBook(ctx context.Context) {
	tick := time.NewTicker(bookEvery)
	defer tick.Stop()
	soon := time.NewTimer(bookEvery)
	defer soon.Stop()
	for more := true; more; {
		select {
		case <-h.newcomer:
			soon.Reset(bookSoon)
			continue
		case <-soon.C:
			h.noteAddrs()
		case <-tick.C:
			h.noteAddrs()
		case <-ctx.Done():
			more = false // once more
			h.noteAddrs()
		}
		if err := h.book.save(); err != nil {
			h.log.ErrorContext(ctx, "peer book not written", "error", err)
		}
	}
}

// noteAddrs enters where the members are that are connected now.
func (h *Host) noteAddrs() {
	now := time.Now()
	for _, g := range h.roster.present() {
		h.book.seen(g.id, h.host.Peerstore().Addrs(g.id), now)
	}
}

// tend renews our credential and ends the connections of those whose has run out.
func (h *Host) tend(ctx context.Context) {
	next := h.renewalDue(time.Now())
	compare := time.Now().Add(compareEvery)
	var pause time.Duration
	for {
		timer := time.NewTimer(min(tendEvery, max(time.Until(next), retryFirst)))
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-h.renewNow:
			next, pause = time.Now(), 0
		case <-timer.C:
		}
		timer.Stop()
		now := time.Now()
		for _, id := range h.roster.sweep(now) {
			h.log.WarnContext(ctx, "member disconnected: its credential has expired", "peer", id)
			_ = h.host.Network().ClosePeer(id)
		}
		if !now.Before(next) {
			if err := h.renew(ctx); err != nil {
				pause = min(max(2*pause, time.Second), renewRetry)
				next = now.Add(pause/2 + rand.N(pause/2))
				h.log.WarnContext(ctx, "credential not renewed", "not_after", h.member.Load().own.NotAfter, "error", err)
			} else {
				next, pause = h.renewalDue(now), 0
			}
		}
		if !now.Before(compare) {
			compare = now.Add(compareEvery)
			h.compareOne(ctx)
		}
	}
}

// renewalDue is half-way to the end of our credential, jittered so that hosts
// that joined together do not all come at once.
func (h *Host) renewalDue(now time.Time) time.Time {
	left := h.member.Load().own.NotAfter.Sub(now)
	spare := h.cfg.CredentialLife / 2
	if left <= 0 {
		return now
	}
	due := max(min(left-spare, left/2), 0)
	if left > spare {
		due = max(left-spare, left/4)
	}
	return now.Add(due - rand.N(due/10+1))
}

// renew gets a newer credential: from the cluster key if it is here, else from
// any connected inviter, else, as an inviter, by our own signature.
func (h *Host) renew(ctx context.Context) error {
	leave, err := h.enterChange(ctx)
	if err != nil {
		return err
	}
	defer leave()
	m := h.member.Load()
	fresh, err := h.newerCredential(ctx, m)
	if err != nil {
		return err
	}
	base := *m
	if base.issuing != nil && h.revoked.tainted(base.issuing) {
		base.issuing = nil // what we signed under it, nobody would take
	}
	next := base.with(fresh)
	if err := saveMembership(h.disk, next); err != nil {
		return err
	}
	h.member.Store(next)
	h.log.InfoContext(ctx, "credential renewed", "not_after", fresh.NotAfter)
	h.tellAll(ctx, h.rehello)
	return nil
}

func (h *Host) newerCredential(ctx context.Context, m *membership) (*Credential, error) {
	notAfter := time.Now().Add(h.cfg.CredentialLife)
	if m.secret != nil {
		return authority{key: m.secret, cluster: m.key}.issue(h.me.id, m.own.Roles, notAfter)
	}
	if !time.Now().Before(m.own.NotAfter) {
		return nil, fmt.Errorf("%w; join again with a new token", ErrExpired)
	}
	last := errors.New("no inviter is connected")
	for _, g := range h.roster.present() {
		if !g.cred.Roles.Has(RoleInviter) {
			continue
		}
		c, err := h.renewAt(ctx, g.id, m)
		if err == nil {
			return c, nil
		}
		last = fmt.Errorf("%s: %w", g.id, err)
	}
	if auth, err := m.authority(h.me); err == nil && !h.revoked.tainted(m.issuing) {
		if c, err := auth.issue(h.me.id, m.own.Roles, notAfter); err == nil {
			return c, nil
		}
	}
	return nil, last
}

func (h *Host) renewAt(ctx context.Context, p peer.ID, m *membership) (*Credential, error) {
	ctx, cancel := context.WithTimeout(ctx, tellTimeout)
	defer cancel()
	s, err := h.openTo(ctx, p)
	if err != nil {
		return nil, err
	}
	var r wirepb.JoinReply
	if err := ask(ctx, s, JoinID, &wirepb.JoinRequest{Cluster: m.cluster[:], Credential: m.own.toWire(), Name: h.cfg.Name}, &r); err != nil {
		return nil, err
	}
	if err := code(r.GetCode()).toError(); err != nil {
		return nil, err
	}
	c, err := h.credentialFor(&r, m.cluster)
	if err != nil {
		return nil, err
	}
	if !c.Roles.Has(m.own.Roles) || h.revoked.tainted(c) {
		return nil, fmt.Errorf("%w: no better than the one we have", ErrBadCredential)
	}
	return c, nil
}

// openTo opens a bare stream to a connected member.
func (h *Host) openTo(ctx context.Context, p peer.ID) (network.Stream, error) {
	return h.host.Network().NewStream(network.WithNoDial(ctx, "connected members only"), p)
}

// tellAll does something with each connected member, some at a time.
func (h *Host) tellAll(ctx context.Context, tell func(context.Context, peer.ID) error) {
	var wg sync.WaitGroup
	slots := make(chan struct{}, spreadAtOnce)
	for _, g := range h.roster.present() {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			ctx, cancel := context.WithTimeout(ctx, tellTimeout)
			defer cancel()
			if err := tell(ctx, g.id); err != nil {
				h.log.DebugContext(ctx, "a member was not told", "peer", g.id, "error", err)
			}
		})
	}
	wg.Wait()
}

// compareOne compares revocations with some member: what a lost push left
// different, this finds.
func (h *Host) compareOne(ctx context.Context) {
	present := h.roster.present()
	if len(present) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, tellTimeout)
	defer cancel()
	if err := h.rehello(ctx, present[rand.N(len(present))].id); err != nil {
		h.log.DebugContext(ctx, "revocations not compared", "error", err)
	}
}
