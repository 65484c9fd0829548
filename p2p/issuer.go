package p2p

// The issuer: it opens invitations, and signs credentials in exchange for tokens or older credentials.

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	ma "github.com/multiformats/go-multiaddr"

	"github.com/musterhq/muster/p2p/wirepb"
)

const (
	// guessEvery and guessBurst limit failed tokens of one address, so that guesses do not fill our log.
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
	cred, err := i.grant(p, &q, now)
	i.tell(p, from, &q, cred, err)
	if err == nil {
		i.log.Info("credential given", "peer", p, "name", q.GetName(), "roles", cred.Roles, "renewal", q.GetCredential() != nil, "not_after", cred.NotAfter)
		return writeMsg(s, &wirepb.JoinReply{Credential: cred.toWire()})
	}
	if i.guesses.allow(ipOf(from), now) {
		i.log.Warn("join refused", "peer", p, "addr", from, "name", q.GetName(), "error", err)
	} else {
		err = ErrTooFast
	}
	return writeMsg(s, &wirepb.JoinReply{Code: uint32(codeOf(err))})
}

// tell tells the audit log of a request. A token is told by its name, which only this daemon can find from the secret.
func (i *issuer) tell(p peer.ID, from ma.Multiaddr, q *wirepb.JoinRequest, cred *Credential, err error) {
	act, v := Joining, Visit{Name: q.GetName(), Err: err}
	if q.GetCredential() != nil {
		act = Renewing
	} else if len(q.GetSecret()) == secretSize {
		v.Object = secret(q.GetSecret()).name()
	}
	if cred != nil {
		v.Roles, v.Labels = cred.Roles, cred.Labels
	}
	i.admission.visits.tell(act, p, from, v)
}

// grant decides about a request and signs.
func (i *issuer) grant(p peer.ID, q *wirepb.JoinRequest, now time.Time) (*Credential, error) {
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
	if q.GetCredential() != nil {
		old, err := i.admission.check(p, q.GetCredential(), now)
		if err != nil {
			return nil, err
		}
		by, err := provenLineage(old, q.GetOrigin())
		if err != nil {
			return nil, err
		}
		return auth.renew(old, by, now.Add(i.own.lifeFor(old.Roles)))
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
	return auth.issueWith(p, roles, labels, now.Add(i.own.lifeFor(roles)))
}

// provenLineage returns who let the holder of a credential in, by signatures alone. What a renewal says of that is not
// believed: an inviter could sign one that hides that it let the holder in itself.
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

// invite opens an invitation for hosts, which will have the given roles and labels. addrs are the addresses of this
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
		_, err = auth.issueWith(i.own.identity.id, roles, labels, now) // an invitation that could not be honoured is refused
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

// otherBootstraps is the number of members that an invitation names besides the issuer, so that the new host can find
// the cluster later without the issuer.
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

// serveJoin serves a join request on an open connection: a renewal.
func (i *issuer) serveJoin(s network.Stream) {
	if err := i.answerJoin(s.Conn().RemotePeer(), s.Conn().RemoteMultiaddr(), s); err != nil {
		_ = s.Reset()
		return
	}
	s.Close()
}
