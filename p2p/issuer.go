package p2p

// The issuer: it opens invitations, and signs credentials in exchange for tokens or older credentials.

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	ma "github.com/multiformats/go-multiaddr"

	"github.com/musterhq/muster/p2p/wirepb"
)

const (
	// guessEvery and guessBurst limit failed tokens from one address, so that guesses do not fill our log.
	guessEvery = 10 * time.Second
	guessBurst = 5
)

// issuer signs credentials for other daemons if this daemon is an inviter.
type issuer struct {
	own       *ownMembership
	admission *admission
	invites   *invites
	guesses   *buckets // failed tokens by address
	log       *slog.Logger
}

func newIssuer(own *ownMembership, a *admission, v *invites, log *slog.Logger) *issuer {
	return &issuer{own: own, admission: a, invites: v, guesses: newBuckets(guessEvery, guessBurst), log: log}
}

// answerJoin answers a token or an older credential with a new credential. On an error the stream must be reset.
func (i *issuer) answerJoin(p peer.ID, from ma.Multiaddr, s io.ReadWriter) error {
	var q wirepb.JoinRequest
	if err := readMsg(s, &q, limitOf(JoinID)); err != nil {
		return err
	}
	if err := checkHello(q.GetName(), i.admission.revoked.digest()); err != nil {
		return err
	}
	now := time.Now()
	given, err := i.decide(p, &q, now)
	i.tell(p, from, &q, given, err)
	if err == nil {
		i.log.Info("credential given", "peer", p, "name", q.GetName(), "roles", given.own.Roles, "renewal", q.GetCredential() != nil, "not_after", given.own.NotAfter)
		r := &wirepb.JoinReply{Credential: given.own.toWire()}
		if given.grant != nil {
			r.Grant = given.grant.toWire()
		}
		return writeMsg(s, r)
	}
	if i.guesses.allow(ipOf(from), now) {
		i.log.Warn("join refused", "peer", p, "addr", from, "name", q.GetName(), "error", err)
	} else {
		err = ErrTooFast
	}
	return writeMsg(s, &wirepb.JoinReply{Code: uint32(codeOf(err))})
}

// tell writes a request to the audit log. It names the token by the name of its secret, which does not reveal the secret.
func (i *issuer) tell(p peer.ID, from ma.Multiaddr, q *wirepb.JoinRequest, given *signed, err error) {
	act, v := Joining, Visit{Name: q.GetName(), Err: err}
	if q.GetCredential() != nil {
		act = Renewing
	} else if len(q.GetSecret()) == secretSize {
		v.Object = secret(q.GetSecret()).name()
	}
	if err == nil {
		v.Roles, v.Labels = given.own.Roles, given.own.Labels
	}
	i.admission.visits.tell(act, p, from, v)
}

// decide checks a request, and signs a credential if the request is allowed.
func (i *issuer) decide(p peer.ID, q *wirepb.JoinRequest, now time.Time) (*signed, error) {
	m := i.own.load()
	if m == nil {
		return nil, ErrNotReady
	}
	if string(q.GetCluster()) != string(m.cluster[:]) {
		return nil, ErrWrongCluster
	}
	if i.admission.revoked.has(p) {
		return nil, ErrRevoked
	}
	auth, err := m.authority(i.own.identity)
	if err != nil {
		return nil, err
	}
	if !now.Before(m.own.NotAfter) {
		return nil, fmt.Errorf("own credential: %w", ErrNotInviter)
	}
	if auth.chain != nil && auth.chain.endorsement != nil && !q.GetEndorsed() {
		return nil, fmt.Errorf("%w for a daemon of the version before, which loses endorsements: update it, or ask the host with the cluster key", ErrNotInviter)
	}
	if q.GetCredential() != nil {
		return i.renew(p, q, m, auth, now)
	}
	// Check that we can sign before a use of the token is taken.
	if _, err := auth.issue(p, RoleWorker, now); errors.Is(err, ErrChainTooLong) {
		return nil, err
	}
	if len(q.GetSecret()) != secretSize {
		return nil, ErrTokenUnknown
	}
	roles, labels, err := i.invites.use(secret(q.GetSecret()), p.String(), now)
	if err != nil {
		return nil, err
	}
	c, err := auth.issueWith(p, roles, labels, now.Add(i.own.lifeFor(roles)))
	if err != nil {
		return nil, err
	}
	return &signed{own: c, grant: m.grantFor(i.own.identity, c, c.lineage(0), now)}, nil
}

// renew renews the credential of a member. If the member is an inviter and this daemon can endorse one of its grants, it
// gets an endorsement; its credential then does not end with this daemon's credential.
func (i *issuer) renew(p peer.ID, q *wirepb.JoinRequest, m *membership, auth authority, now time.Time) (*signed, error) {
	old, err := i.admission.check(p, q.GetCredential(), now)
	if err != nil {
		return nil, err
	}
	by, err := provenLineage(old, q.GetOrigin())
	if err != nil {
		return nil, err
	}
	end := now.Add(i.own.lifeFor(old.Roles))
	s := &signed{grant: m.grantFor(i.own.identity, old, by, now)}
	if m.secret == nil {
		grants, err := i.grantsOf(old, by, q.GetGrants())
		if err != nil {
			return nil, err
		}
		s.own = m.endorseOne(i.own.identity, grants, end)
	}
	if s.own == nil {
		s.own, err = auth.renew(old, by, end)
	}
	return s, err
}

// grantsOf returns the grants of an inviter that can be endorsed: those that give the same rights as its credential, have
// the proven lineage, and were signed by no revoked peer.
func (i *issuer) grantsOf(old *Credential, by []peer.ID, list []*wirepb.Credential) (grants []*Credential, err error) {
	if len(list) > maxGrants {
		return nil, fmt.Errorf("%w: %d grants", ErrBadCredential, len(list))
	}
	for _, w := range list {
		g, err := credentialFromWire(w)
		if err != nil {
			return nil, err
		}
		if g.isGrant() && g.id == old.id && g.cluster == old.cluster && g.sameRights(old) && slices.Equal(g.lineage(0), by) && i.admission.revoked.verdict(g) == valid {
			grants = append(grants, g)
		}
	}
	return grants, nil
}

// provenLineage returns the lineage of a credential's holder as signatures prove it. It does not believe a renewal, because
// an inviter could sign a renewal that hides that it let the holder in itself.
func provenLineage(old *Credential, w *wirepb.Credential) ([]peer.ID, error) {
	origin := old
	if w != nil {
		var err error
		if origin, err = credentialFromWire(w); err != nil {
			return nil, err
		}
	}
	if origin.id != old.id || origin.cluster != old.cluster || !origin.direct() {
		return nil, fmt.Errorf("%w: it does not prove who let the peer in", ErrBadCredential)
	}
	return origin.lineage(0), nil
}

// invite opens an invitation; the hosts that use it get the given roles and labels. addrs are the addresses of this
// daemon.
func (i *issuer) invite(ttl time.Duration, uses int, roles Roles, labels map[string]string, addrs []string) (Invitation, error) {
	m := i.own.load()
	if m == nil {
		return Invitation{}, fmt.Errorf("p2p: invite: %w", ErrNotReady)
	}
	if ttl <= 0 || ttl > MaxInviteTTL || uses < 1 || uses > MaxUses || roles == 0 || roles&^AllRoles != 0 {
		return Invitation{}, fmt.Errorf("p2p: invite: want a lifetime of at most %s, 1 to %d uses, and at least one role", MaxInviteTTL, MaxUses)
	}
	if err := CheckSigned(labels); err != nil {
		return Invitation{}, fmt.Errorf("p2p: invite: %w", err)
	}
	now := time.Now()
	auth, err := m.authority(i.own.identity)
	if err == nil {
		_, err = auth.issueWith(i.own.identity.id, roles, labels, now) // refuse an invitation that cannot be honoured later
	}
	if err != nil {
		return Invitation{}, fmt.Errorf("p2p: invite: %w", err)
	}
	s, err := newSecret()
	if err != nil {
		return Invitation{}, err
	}
	expires := now.Add(ttl)
	if err := i.invites.add(s, invite{Roles: roles, Labels: labels, Left: uses, Expires: expires}, now); err != nil {
		return Invitation{}, err
	}
	t := token{cluster: m.cluster, issuer: i.own.identity.id, roles: roles, secret: s}
	i.log.Info("invitation opened", "invitation", s.name(), "roles", roles, "uses", uses, "expires_at", expires)
	return Invitation{ID: s.name(), Bootstrap: i.bootstrapAddrs(addrs), Token: t.String(), Cluster: m.cluster.String(), ExpiresAt: expires.UTC()}, nil
}

// otherBootstraps is the number of members that an invitation names besides the issuer, so that the new host can later
// find the cluster without the issuer.
const otherBootstraps = 3

func (i *issuer) bootstrapAddrs(addrs []string) []string {
	others := 0
	for _, g := range i.admission.roster.present() {
		known, _ := i.admission.book.get(g.id)
		if len(known.Addrs) == 0 || others == otherBootstraps {
			continue
		}
		others++
		addrs = append(addrs, withPeer(known.Addrs[0], g.id))
	}
	return addrs[:min(len(addrs), MaxBootstrap)]
}

func withPeer(addr string, id peer.ID) string { return addr + "/p2p/" + id.String() }

// serveJoin serves a join request on a connection that is already open. Such a request is usually a renewal.
func (i *issuer) serveJoin(s network.Stream) {
	if err := i.answerJoin(s.Conn().RemotePeer(), s.Conn().RemoteMultiaddr(), s); err != nil {
		_ = s.Reset()
		return
	}
	s.Close()
}
