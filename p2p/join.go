package p2p

// Join: a token becomes a credential, and a credential a newer one.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	ma "github.com/multiformats/go-multiaddr"
	madns "github.com/multiformats/go-multiaddr-dns"

	"github.com/musterhq/muster/p2p/wirepb"
)

const (
	// guessEvery and guessBurst limit failed tokens of one address, so that
	// guessing costs the guesser and not our log.
	guessEvery = 10 * time.Second
	guessBurst = 5
	// MaxBootstrap bounds the addresses of an invitation.
	MaxBootstrap = 64
	// maxResolved bounds what a DNS name may stand for.
	maxResolved = 16
	// joinDial bounds one try at one address.
	joinDial = 20 * time.Second
	// retryFirst and retryMost bound the pauses between tries.
	retryFirst = 200 * time.Millisecond
	retryMost  = 10 * time.Second
)

// ErrMember is a daemon that is in a cluster with others already. Leave it
// first: stop the daemon and remove membership.json from its data directory.
var ErrMember = errors.New("this daemon is a member of another cluster already")

// answerJoin gives a credential for a token or an older credential. An error
// is a stream to reset.
func (h *Host) answerJoin(p peer.ID, from ma.Multiaddr, s io.ReadWriter) error {
	var q wirepb.JoinRequest
	if err := readMsg(s, &q, limitOf(JoinID)); err != nil {
		return err
	}
	if err := checkHello(q.GetName(), h.revoked.digest()); err != nil {
		return err
	}
	now := time.Now()
	cred, err := h.grant(p, &q, now)
	if err == nil {
		h.log.Info("credential given", "peer", p, "name", q.GetName(), "roles", cred.Roles, "renewal", q.GetCredential() != nil, "not_after", cred.NotAfter)
		return writeMsg(s, &wirepb.JoinReply{Credential: cred.toWire()})
	}
	if h.guesses.allow(ipOf(from), now) {
		h.log.Warn("join refused", "peer", p, "addr", from, "name", q.GetName(), "error", err)
	} else {
		err = ErrTooFast
	}
	return writeMsg(s, &wirepb.JoinReply{Code: uint32(codeOf(err))})
}

// grant decides about a request and signs.
func (h *Host) grant(p peer.ID, q *wirepb.JoinRequest, now time.Time) (*Credential, error) {
	m := h.member.Load()
	if m == nil {
		return nil, ErrNotReady
	}
	if string(q.GetCluster()) != string(m.cluster[:]) {
		return nil, ErrWrongCluster
	}
	if h.revoked.has(p) {
		return nil, ErrRevoked
	}
	auth, err := m.authority(h.me)
	if err != nil {
		return nil, err
	}
	if !now.Before(m.own.NotAfter) {
		return nil, fmt.Errorf("own credential: %w", ErrNotInviter)
	}
	var roles Roles
	if q.GetCredential() != nil {
		old, err := h.check(p, q.GetCredential(), now)
		if err != nil {
			return nil, err
		}
		roles = old.Roles
	} else {
		// Whether we can sign at all comes before a use of the token is gone.
		if _, err := auth.issue(p, RoleWorker, now); errors.Is(err, ErrChainTooLong) {
			return nil, err
		}
		if len(q.GetSecret()) != secretSize {
			return nil, ErrTokenUnknown
		}
		if roles, err = h.invites.use(secret(q.GetSecret()), p.String(), now); err != nil {
			return nil, err
		}
	}
	return auth.issue(p, roles, now.Add(h.cfg.CredentialLife))
}

// Invite opens an invitation for hosts that will have the given roles.
func (h *Host) Invite(ttl time.Duration, uses int, roles Roles) (Invitation, error) {
	m := h.member.Load()
	if m == nil {
		return Invitation{}, fmt.Errorf("p2p: invite: %w", ErrNotReady)
	}
	if ttl <= 0 || ttl > MaxInviteTTL || uses < 1 || uses > MaxUses || roles == 0 || roles&^AllRoles != 0 {
		return Invitation{}, fmt.Errorf("p2p: invite: want a time up to %s, 1 to %d uses, and some roles", MaxInviteTTL, MaxUses)
	}
	now := time.Now()
	auth, err := m.authority(h.me)
	if err == nil {
		_, err = auth.issue(h.me.id, roles, now) // what could not be given is not promised
	}
	if err != nil {
		return Invitation{}, fmt.Errorf("p2p: invite: %w", err)
	}
	s, err := newSecret()
	if err != nil {
		return Invitation{}, err
	}
	expires := now.Add(ttl)
	if err := h.invites.add(s, roles, uses, expires, now); err != nil {
		return Invitation{}, err
	}
	t := token{cluster: m.cluster, issuer: h.me.id, roles: roles, secret: s}
	h.log.Info("invitation opened", "roles", roles, "uses", uses, "expires_at", expires)
	return Invitation{Bootstrap: h.bootstrapAddrs(), Token: t.String(), Cluster: m.cluster.String(), ExpiresAt: expires.UTC()}, nil
}

// otherBootstraps members are named in an invitation besides the issuer, so
// that the new host finds the cluster without it later.
const otherBootstraps = 3

func (h *Host) bootstrapAddrs() []string {
	addrs := h.Addrs()
	others := 0
	for _, g := range h.roster.present() {
		known, _ := h.book.get(g.id)
		if len(known.Addrs) == 0 || others == otherBootstraps {
			continue
		}
		others++
		addrs = append(addrs, withPeer(known.Addrs[0], g.id))
	}
	return addrs[:min(len(addrs), MaxBootstrap)]
}

func withPeer(addr string, id peer.ID) string { return addr + "/p2p/" + id.String() }

// Join makes this daemon a member of the cluster that the token is for. It
// tries each address once. A daemon that is alone in its cluster leaves it for
// the new one; a daemon with other members does not.
func (h *Host) Join(ctx context.Context, bootstrap []string, text string) error {
	t, err := parseToken(text)
	if err != nil {
		return fmt.Errorf("p2p: join: %w", err)
	}
	leave, err := h.enterChange(ctx)
	if err != nil {
		return fmt.Errorf("p2p: join %s: %w", t.cluster, err)
	}
	defer leave()
	if m := h.member.Load(); m != nil {
		if m.cluster == t.cluster {
			h.log.InfoContext(ctx, "already a member of this cluster; the token is not needed", "cluster", m.cluster.String())
			return nil
		}
		if n := h.book.size(); n > 0 {
			return fmt.Errorf("p2p: join %s: %w: %s, with %d more", t.cluster, ErrMember, m.cluster, n)
		}
	}
	m, err := h.askToJoin(ctx, bootstrap, t)
	if err != nil {
		return fmt.Errorf("p2p: join %s: %w", t.cluster, err)
	}
	return h.become(m)
}

// enterChange waits until nobody else changes the membership.
func (h *Host) enterChange(ctx context.Context) (leave func(), err error) {
	select {
	case h.joining <- struct{}{}:
		return func() { <-h.joining }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// become makes this daemon a member: first on disk, then in fact.
func (h *Host) become(m *membership) error {
	if err := saveMembership(h.disk, m); err != nil {
		return err
	}
	if err := h.settle(m); err != nil {
		return err
	}
	for _, p := range h.host.Network().Peers() {
		_ = h.host.Network().ClosePeer(p)
	}
	h.roster.clear()
	h.wake()
	h.log.Info("joined a cluster", "cluster", m.cluster.String(), "roles", m.own.Roles, "not_after", m.own.NotAfter)
	return nil
}

// askToJoin shows the token to each of the addresses until one answers.
func (h *Host) askToJoin(ctx context.Context, bootstrap []string, t token) (*membership, error) {
	addrs, err := parseAddrs(bootstrap)
	if err != nil {
		return nil, err
	}
	if len(addrs) == 0 {
		return nil, errors.New("no bootstrap address")
	}
	// The issuer alone can honour the token; the others can say what is wrong with it.
	slices.SortStableFunc(addrs, func(a, b peer.AddrInfo) int { return rank(b, t.issuer) - rank(a, t.issuer) })
	var last error
	for _, info := range addrs {
		c, err := h.joinAt(ctx, info, t)
		if err == nil {
			m := &membership{cluster: c.cluster, key: c.key, bootstrap: bootstrap}
			return m.with(c), nil
		}
		err = fmt.Errorf("%s: %w", withPeer(info.Addrs[0].String(), info.ID), err)
		if ctx.Err() != nil {
			return nil, err
		}
		if last == nil || isRefusal(err) || !isRefusal(last) {
			last = err
		}
		if isRefusal(err) && info.ID == t.issuer {
			return nil, err
		}
	}
	return nil, last
}

func rank(a peer.AddrInfo, issuer peer.ID) int {
	if a.ID == issuer {
		return 1
	}
	return 0
}

// joinAt asks one daemon at one address, on a connection of its own that the
// swarm never sees.
func (h *Host) joinAt(ctx context.Context, info peer.AddrInfo, t token) (*Credential, error) {
	ctx, cancel := context.WithTimeout(ctx, joinDial)
	defer cancel()
	addrs, err := resolve(ctx, info.Addrs[0])
	if err != nil {
		return nil, err
	}
	err = errors.New("no transport for this address")
	for _, a := range addrs {
		for _, g := range h.gates {
			if !g.CanDial(a) {
				continue
			}
			var c *Credential
			if c, err = h.joinOver(ctx, g, a, info.ID, t); err == nil || isRefusal(err) {
				return c, err
			}
		}
	}
	return nil, err
}

func (h *Host) joinOver(ctx context.Context, g *gate, a ma.Multiaddr, p peer.ID, t token) (*Credential, error) {
	conn, err := g.Transport.Dial(ctx, a, p)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	s, err := conn.OpenStream(ctx)
	if err != nil {
		return nil, fmt.Errorf("open a stream: %w", err)
	}
	q := &wirepb.JoinRequest{Cluster: t.cluster[:], Name: h.cfg.Name}
	if p == t.issuer { // nobody else is shown the secret
		q.Secret = t.secret[:]
	}
	var r wirepb.JoinReply
	if err := ask(ctx, s, JoinID, q, &r); err != nil {
		return nil, err
	}
	if err := code(r.GetCode()).toError(); err != nil {
		return nil, err
	}
	return h.credentialFor(&r, t.cluster)
}

// credentialFor checks what an inviter gave us: nobody can give us into
// another cluster than the one we asked for.
func (h *Host) credentialFor(r *wirepb.JoinReply, want clusterID) (*Credential, error) {
	c, err := credentialFromWire(r.GetCredential())
	switch {
	case err != nil:
		return nil, err
	case c.cluster != want:
		return nil, ErrWrongCluster
	case c.id != h.me.id:
		return nil, fmt.Errorf("%w: it is of %s", ErrBadCredential, c.id)
	case !time.Now().Before(c.NotAfter):
		return nil, fmt.Errorf("%w: is the clock of this host right?", ErrExpired)
	}
	return c, nil
}

// enterBy joins at the start of the daemon: until it is let in or refused.
func (h *Host) enterBy(ctx context.Context, bootstrap []string, text string) error {
	said, pause := "", retryFirst
	for {
		err := h.Join(ctx, bootstrap, text)
		if err == nil || isRefusal(err) || errors.Is(err, ErrBadToken) || errors.Is(err, ErrMember) || errors.Is(err, errBadAddr) {
			return err
		}
		if ctx.Err() != nil {
			return fmt.Errorf("p2p: join: %w, last: %w", ctx.Err(), err)
		}
		if err.Error() != said {
			said = err.Error()
			h.log.WarnContext(ctx, "cannot reach the cluster yet, trying on", "error", err)
		}
		if !sleep(ctx, pause/2+rand.N(pause/2)) {
			return fmt.Errorf("p2p: join: %w, last: %w", ctx.Err(), err)
		}
		pause = min(2*pause, retryMost)
	}
}

// sleep pauses, and says false if ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// serveJoin is join on an open connection: a renewal.
func (h *Host) serveJoin(s network.Stream) {
	if err := h.answerJoin(s.Conn().RemotePeer(), s.Conn().RemoteMultiaddr(), s); err != nil {
		_ = s.Reset()
		return
	}
	s.Close()
}

// errBadAddr is an address that no try will make better.
var errBadAddr = errors.New("not a multiaddr with /p2p/ID at its end")

// parseAddrs reads addresses that end in /p2p/ID; each result has one address.
func parseAddrs(texts []string) ([]peer.AddrInfo, error) {
	if len(texts) > MaxBootstrap {
		return nil, fmt.Errorf("%d addresses, want at most %d: %w", len(texts), MaxBootstrap, errBadAddr)
	}
	infos := make([]peer.AddrInfo, 0, len(texts))
	for _, text := range texts {
		info, err := peer.AddrInfoFromString(text)
		if err != nil {
			return nil, fmt.Errorf("%.200q: %w: %w", text, errBadAddr, err)
		}
		if len(info.Addrs) != 1 {
			return nil, fmt.Errorf("%.200q: %w", text, errBadAddr)
		}
		infos = append(infos, *info)
	}
	return infos, nil
}

// resolve looks up the names in an address.
func resolve(ctx context.Context, a ma.Multiaddr) ([]ma.Multiaddr, error) {
	if !madns.Matches(a) {
		return []ma.Multiaddr{a}, nil
	}
	found, err := madns.DefaultResolver.Resolve(ctx, a)
	if err != nil {
		return nil, fmt.Errorf("look up: %w", err)
	}
	return found[:min(len(found), maxResolved)], nil
}
