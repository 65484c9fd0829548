package p2p

// Renewal: our own credential is renewed long before it expires, and members whose credential has expired are
// disconnected.

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/musterhq/muster/p2p/wirepb"
)

const (
	// checkEvery bounds how long a connection outlives the credential of its member.
	checkEvery = 10 * time.Second
	// compareEvery is how often revocations are compared with one member.
	compareEvery = 10 * time.Minute
	// renewRetry is the longest pause between attempts to renew; renewRetryFar if the end is weeks away.
	renewRetry    = 5 * time.Minute
	renewRetryFar = time.Hour
)

// renewer renews our credential, and ends the connections of members whose credential has expired.
type renewer struct {
	own       *ownMembership
	admission *admission
	members   connected
	now       chan struct{} // holds a token while an immediate renewal is requested
	log       *slog.Logger
}

// soon requests an immediate renewal.
func (r *renewer) soon() {
	select {
	case r.now <- struct{}{}:
	default:
	}
}

// run does the work of the renewer until ctx ends.
func (r *renewer) run(ctx context.Context) {
	due := r.own.load().own // whose renewal next is
	next := r.renewalDue(time.Now())
	compare := time.Now().Add(compareEvery)
	var pause time.Duration
	for {
		timer := time.NewTimer(min(checkEvery, max(time.Until(next), retryFirst)))
		asked := false
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-r.now:
			asked = true
		case <-timer.C:
		}
		timer.Stop()
		now := time.Now()
		if own := r.own.load().own; own != due { // this daemon has joined another cluster
			due, next, pause = own, r.renewalDue(now), 0
		}
		if asked {
			next, pause = now, 0
		}
		for _, id := range r.members.roster.sweep(now) {
			r.log.WarnContext(ctx, "member disconnected: its credential has expired", "peer", id)
			r.members.disconnect(id)
		}
		if !now.Before(next) {
			if err := r.renew(ctx); err != nil {
				most := max(renewRetry, min(renewRetryFar, time.Until(r.own.load().own.NotAfter)/64))
				pause = min(max(2*pause, time.Second), most)
				next = now.Add(pause/2 + rand.N(pause/2))
				r.log.WarnContext(ctx, "credential not renewed", "not_after", r.own.load().own.NotAfter, "error", err)
			} else {
				due, next, pause = r.own.load().own, r.renewalDue(now), 0
			}
		}
		if !now.Before(compare) {
			compare = now.Add(compareEvery)
			r.compareOne(ctx)
		}
	}
}

// renewalDue returns the time half-way to the end of our credential, with jitter, so that hosts that joined together
// do not renew together.
func (r *renewer) renewalDue(now time.Time) time.Time {
	left := r.own.load().own.NotAfter.Sub(now)
	spare := r.own.lifeFor(r.own.load().own.Roles) / 2
	if left <= 0 {
		return now
	}
	due := max(min(left-spare, left/2), 0)
	if left > spare {
		due = max(left-spare, left/4)
	}
	return now.Add(due - rand.N(due/10+1))
}

// renew gets a newer credential: from the cluster key if this daemon has it; else from a connected inviter.
func (r *renewer) renew(ctx context.Context) error {
	leave, err := r.own.enterChange(ctx)
	if err != nil {
		return err
	}
	defer leave()
	m := r.own.load()
	fresh, err := r.newerCredential(ctx, m)
	if err != nil {
		return err
	}
	base := *m
	if base.issuing != nil && r.admission.revoked.tainted(base.issuing) {
		base.issuing = nil // nobody would accept what we signed under it
	}
	next := base.with(fresh)
	if err := r.own.save(next); err != nil {
		return err
	}
	r.own.current.Store(next)
	r.log.InfoContext(ctx, "credential renewed", "not_after", fresh.NotAfter)
	r.members.tellAll(ctx, r.rehello)
	return nil
}

func (r *renewer) newerCredential(ctx context.Context, m *membership) (*Credential, error) {
	if m.secret != nil {
		return authority{key: m.secret, cluster: m.key}.issueWith(r.own.identity.id, m.own.Roles, m.own.Labels, time.Now().Add(r.own.lifeFor(m.own.Roles)))
	}
	if !time.Now().Before(m.own.NotAfter) {
		return nil, fmt.Errorf("%w; join again with a new token", ErrExpired)
	}
	last := errors.New("no inviter is connected")
	for _, g := range inviters(r.members.roster.present(), m.own) {
		c, err := r.renewAt(ctx, g.id, m)
		switch {
		case err != nil:
			last = fmt.Errorf("%s: %w", g.id, err)
		case c.NotAfter.After(m.own.NotAfter) || r.admission.revoked.tainted(m.own):
			return c, nil
		default:
			last = fmt.Errorf("%s: its own credential ends sooner", g.id)
		}
	}
	return nil, last
}

// inviters returns the members that can renew a credential, first those that signed it.
func inviters(present []peerInfo, own *Credential) []peerInfo {
	list := slices.DeleteFunc(present, func(g peerInfo) bool { return !g.cred.Roles.Has(RoleInviter) })
	rank := func(g peerInfo) int {
		if i := slices.Index(own.issuers(), g.id); i >= 0 {
			return i
		}
		return MaxChain
	}
	slices.SortStableFunc(list, func(a, b peerInfo) int { return rank(a) - rank(b) })
	return list
}

func (r *renewer) renewAt(ctx context.Context, p peer.ID, m *membership) (*Credential, error) {
	ctx, cancel := context.WithTimeout(ctx, tellTimeout)
	defer cancel()
	s, err := r.members.open(ctx, p)
	if err != nil {
		return nil, err
	}
	var reply wirepb.JoinReply
	if err := ask(ctx, s, JoinID, &wirepb.JoinRequest{Cluster: m.cluster[:], Credential: m.own.toWire(), Origin: m.origin.toWire(), Name: r.own.name}, &reply); err != nil {
		return nil, err
	}
	if err := code(reply.GetCode()).toError(); err != nil {
		return nil, err
	}
	c, err := r.own.renewed(&reply, m)
	if err != nil {
		return nil, err
	}
	if !maps.Equal(c.Labels, m.own.Labels) {
		return nil, fmt.Errorf("%w: it has other labels; is that inviter of an earlier version?", ErrBadCredential)
	}
	if r.admission.revoked.tainted(c) {
		return nil, fmt.Errorf("a peer that signed its credential: %w", ErrRevoked)
	}
	return c, nil
}

// compareOne compares revocations with one member. It finds differences that a lost message left.
func (r *renewer) compareOne(ctx context.Context) {
	present := r.members.roster.present()
	if len(present) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, tellTimeout)
	defer cancel()
	if err := r.rehello(ctx, present[rand.N(len(present))].id); err != nil {
		r.log.DebugContext(ctx, "revocations not compared", "error", err)
	}
}

// rehello shows our newer credential to a connected member.
func (r *renewer) rehello(ctx context.Context, p peer.ID) error {
	s, err := r.members.open(ctx, p)
	if err != nil {
		return fmt.Errorf("p2p: hello to %s: %w", p, err)
	}
	if err = s.SetProtocol(HelloID); err == nil {
		err = r.admission.sayHello(ctx, s, p)
	}
	if err != nil {
		_ = s.Reset()
		return fmt.Errorf("p2p: hello to %s: %w", p, err)
	}
	return nil
}
