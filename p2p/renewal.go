package p2p

// Renewal: this daemon renews its own credential long before it expires, and disconnects members whose credential has
// expired.

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
	// compareEvery is how often this daemon compares revocations with one member.
	compareEvery = 10 * time.Minute
	// renewRetry is the longest pause between attempts to renew; renewRetryFar, if the credential lasts for weeks.
	renewRetry    = 5 * time.Minute
	renewRetryFar = time.Hour
	// askAgain is how long this daemon waits before it asks the same inviter for a grant again.
	askAgain = time.Hour
)

// renewer renews our credential, and ends the connections of members whose credential has expired.
type renewer struct {
	own       *ownMembership
	admission *admission
	members   connected
	now       chan struct{} // holds a token while an immediate renewal is requested
	// Only run accesses these.
	asked map[peer.ID]time.Time // inviters that were asked for a grant within askAgain
	root  peer.ID               // the member that last renewed our credential with the cluster key

	log *slog.Logger
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
	due := r.own.load().own // the credential that is renewed at next
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
		if err := r.gather(ctx, now); err != nil {
			r.log.DebugContext(ctx, "no grant", "error", err)
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

// renew gets a newer credential. If this daemon has the cluster key, it signs the credential itself; otherwise it asks
// connected inviters.
func (r *renewer) renew(ctx context.Context) error {
	leave, err := r.own.enterChange(ctx)
	if err != nil {
		return err
	}
	defer leave()
	base := r.own.load().without(r.admission.revoked, time.Now().Add(r.own.life))
	next, err := r.newerCredential(ctx, base)
	if keep := r.keep(ctx, next); keep != nil || err != nil {
		return errors.Join(err, keep)
	}
	r.log.InfoContext(ctx, "credential renewed", "not_after", next.own.NotAfter)
	return nil
}

// without returns the membership without its issuing credential and its grants if a revoked peer signed them, because
// nobody would accept those. It also drops grants that end before a time.
func (m membership) without(revoked *revocations, end time.Time) *membership {
	if m.issuing != nil && revoked.tainted(m.issuing) {
		m.issuing = nil
	}
	m.grants = slices.DeleteFunc(slices.Clone(m.grants), func(g *Credential) bool {
		return revoked.tainted(g) || linksEnd(g.links).Before(end)
	})
	return &m
}

// keep makes a changed membership of the same cluster current, first on disk. If the credential is new, keep shows it to
// all connected members.
func (r *renewer) keep(ctx context.Context, next *membership) error {
	before := r.own.load()
	if next.own == before.own && slices.Equal(next.grants, before.grants) {
		return nil
	}
	if err := r.own.save(next); err != nil {
		return err
	}
	r.own.current.Store(next)
	if next.own != before.own {
		r.members.tellAll(ctx, r.rehello)
	}
	return nil
}

// newerCredential returns the membership with a newer credential and with the grants that inviters sent. On an error it
// returns the membership with these grants only.
func (r *renewer) newerCredential(ctx context.Context, m *membership) (*membership, error) {
	if m.secret != nil {
		c, err := authority{key: m.secret, cluster: m.key}.issueWith(r.own.identity.id, m.own.Roles, m.own.Labels, time.Now().Add(r.own.lifeFor(m.own.Roles)))
		if err != nil {
			return m, err
		}
		return m.with(c), nil
	}
	if !time.Now().Before(m.own.NotAfter) {
		return m, fmt.Errorf("%w; join again with a new token", ErrExpired)
	}
	last := errors.New("no inviter is connected")
	for _, g := range r.inviters(m.own) {
		s, err := r.renewAt(ctx, g.id, m)
		if err != nil {
			last = fmt.Errorf("%s: %w", g.id, err)
			continue
		}
		if s.grant != nil {
			m = m.withGrant(s.grant)
		}
		if s.own.NotAfter.After(m.own.NotAfter) || r.admission.revoked.tainted(m.own) {
			return m.with(s.own), nil
		}
		last = fmt.Errorf("%s: its own credential ends sooner", g.id)
	}
	return m, last
}

// gather asks one more connected inviter for a grant, if this daemon is an inviter whose grants are not firm. With firm
// grants it can still be endorsed after the inviter that let it in is lost.
func (r *renewer) gather(ctx context.Context, now time.Time) error {
	m := r.own.load().without(r.admission.revoked, now.Add(r.own.life))
	if m.secret != nil || !m.own.Roles.Has(RoleInviter) || !now.Before(m.own.NotAfter) || firm(m.grants) {
		return nil
	}
	maps.DeleteFunc(r.asked, func(_ peer.ID, at time.Time) bool { return now.Sub(at) > askAgain })
	list := r.inviters(m.own)
	i := slices.IndexFunc(list, func(g peerInfo) bool { return r.asked[g.id].IsZero() })
	if i < 0 {
		return nil
	}
	r.asked[list[i].id] = now
	leave, err := r.own.enterChange(ctx)
	if err != nil {
		return err
	}
	defer leave()
	m = r.own.load().without(r.admission.revoked, now.Add(r.own.life))
	s, err := r.renewAt(ctx, list[i].id, m)
	if err != nil || s.grant == nil {
		return err
	}
	return r.keep(ctx, m.withGrant(s.grant))
}

// inviters returns the connected members that can renew a credential: first the one that last signed with the cluster
// key, then the issuers of the credential, then the others.
func (r *renewer) inviters(own *Credential) []peerInfo {
	list := slices.DeleteFunc(r.members.roster.present(), func(g peerInfo) bool { return !g.cred.Roles.Has(RoleInviter) })
	rank := func(g peerInfo) int {
		if g.id == r.root {
			return -1
		}
		if i := slices.Index(own.issuers(), g.id); i >= 0 {
			return i
		}
		return MaxChain
	}
	slices.SortStableFunc(list, func(a, b peerInfo) int { return rank(a) - rank(b) })
	return list
}

// renewAt asks one inviter for a newer credential.
func (r *renewer) renewAt(ctx context.Context, p peer.ID, m *membership) (*signed, error) {
	ctx, cancel := context.WithTimeout(ctx, tellTimeout)
	defer cancel()
	s, err := r.members.open(ctx, p)
	if err != nil {
		return nil, err
	}
	q := &wirepb.JoinRequest{Cluster: m.cluster[:], Credential: m.own.toWire(), Origin: m.origin.bare().toWire(), Name: r.own.name, Endorsed: true}
	for _, g := range m.grants {
		q.Grants = append(q.Grants, g.toWire())
	}
	var reply wirepb.JoinReply
	if err := ask(ctx, s, JoinID, q, &reply); err != nil {
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
	if len(c.links) == 1 && c.endorsement == nil {
		r.root = p
	}
	grant, err := r.own.grantFor(reply.GetGrant(), c)
	if err != nil {
		return nil, err
	}
	if r.admission.revoked.tainted(c) || grant != nil && r.admission.revoked.tainted(grant) {
		return nil, fmt.Errorf("a peer that signed its credential: %w", ErrRevoked)
	}
	return &signed{own: c, grant: grant}, nil
}

// compareOne compares revocations with one member. This corrects differences that remain after a message was lost.
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
