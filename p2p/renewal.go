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
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/musterhq/muster/p2p/wirepb"
)

const (
	// checkEvery bounds how long a connection outlives the credential of its member.
	checkEvery = 10 * time.Second
	// compareEvery is how often revocations are compared with one member.
	compareEvery = 10 * time.Minute
	// renewRetry is the longest pause between attempts to renew.
	renewRetry = 5 * time.Minute
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
	next := r.renewalDue(time.Now())
	compare := time.Now().Add(compareEvery)
	var pause time.Duration
	for {
		timer := time.NewTimer(min(checkEvery, max(time.Until(next), retryFirst)))
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-r.now:
			next, pause = time.Now(), 0
		case <-timer.C:
		}
		timer.Stop()
		now := time.Now()
		for _, id := range r.members.roster.sweep(now) {
			r.log.WarnContext(ctx, "member disconnected: its credential has expired", "peer", id)
			r.members.disconnect(id)
		}
		if !now.Before(next) {
			if err := r.renew(ctx); err != nil {
				pause = min(max(2*pause, time.Second), renewRetry)
				next = now.Add(pause/2 + rand.N(pause/2))
				r.log.WarnContext(ctx, "credential not renewed", "not_after", r.own.load().own.NotAfter, "error", err)
			} else {
				next, pause = r.renewalDue(now), 0
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
	spare := r.own.life / 2
	if left <= 0 {
		return now
	}
	due := max(min(left-spare, left/2), 0)
	if left > spare {
		due = max(left-spare, left/4)
	}
	return now.Add(due - rand.N(due/10+1))
}

// renew gets a newer credential: from the cluster key if this daemon has it; else from any connected inviter; else,
// if this daemon is an inviter, by its own signature.
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
	notAfter := time.Now().Add(r.own.life)
	if m.secret != nil {
		return authority{key: m.secret, cluster: m.key}.issueWith(r.own.identity.id, m.own.Roles, m.own.Labels, notAfter)
	}
	if !time.Now().Before(m.own.NotAfter) {
		return nil, fmt.Errorf("%w; join again with a new token", ErrExpired)
	}
	last := errors.New("no inviter is connected")
	for _, g := range r.members.roster.present() {
		if !g.cred.Roles.Has(RoleInviter) {
			continue
		}
		c, err := r.renewAt(ctx, g.id, m)
		if err == nil {
			return c, nil
		}
		last = fmt.Errorf("%s: %w", g.id, err)
	}
	if auth, err := m.authority(r.own.identity); err == nil && !r.admission.revoked.tainted(m.issuing) {
		if c, err := auth.issueWith(r.own.identity.id, m.own.Roles, m.own.Labels, notAfter); err == nil {
			return c, nil
		}
	}
	return nil, last
}

func (r *renewer) renewAt(ctx context.Context, p peer.ID, m *membership) (*Credential, error) {
	ctx, cancel := context.WithTimeout(ctx, tellTimeout)
	defer cancel()
	s, err := r.members.open(ctx, p)
	if err != nil {
		return nil, err
	}
	var reply wirepb.JoinReply
	if err := ask(ctx, s, JoinID, &wirepb.JoinRequest{Cluster: m.cluster[:], Credential: m.own.toWire(), Name: r.own.name}, &reply); err != nil {
		return nil, err
	}
	if err := code(reply.GetCode()).toError(); err != nil {
		return nil, err
	}
	c, err := r.own.credentialFor(&reply, m.cluster)
	if err != nil {
		return nil, err
	}
	if !maps.Equal(c.Labels, m.own.Labels) {
		return nil, fmt.Errorf("%w: it has other labels; is that inviter of an earlier version?", ErrBadCredential)
	}
	if !c.Roles.Has(m.own.Roles) || r.admission.revoked.tainted(c) {
		return nil, fmt.Errorf("%w: not newer than our own", ErrBadCredential)
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
