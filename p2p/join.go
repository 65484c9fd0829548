package p2p

// Joining: this daemon exchanges a token for a credential.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"syscall"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"
	ma "github.com/multiformats/go-multiaddr"
	madns "github.com/multiformats/go-multiaddr-dns"

	"github.com/musterhq/muster/p2p/wirepb"
)

const (
	// MaxBootstrap bounds the addresses of an invitation.
	MaxBootstrap = 64
	// maxResolved bounds the addresses of one DNS name.
	maxResolved = 16
	// joinDial bounds one try at one address.
	joinDial = 20 * time.Second
	// retryFirst and retryMost bound the pauses between tries.
	retryFirst = 200 * time.Millisecond
	retryMost  = 10 * time.Second
	// A daemon that ends connections at once is asked again for crowdedFor, with pauses of up to crowdedPause.
	crowdedFor   = 5 * time.Second
	crowdedPause = 50 * time.Millisecond
)

// ErrMember means that this daemon is in a cluster with others already. To leave it, stop the daemon and remove
// membership.json from its data directory.
var ErrMember = errors.New("this daemon is a member of another cluster already")

// joiner makes this daemon a member of another cluster.
type joiner struct {
	own     *ownMembership
	book    *book
	gates   *gates
	settle  func(*membership) error // loads the state of the cluster
	changed func()                  // ends the connections to members of the cluster that we left
	log     *slog.Logger
}

// join makes this daemon a member; see Host.Join. With again, a daemon that is already a member of the token's cluster
// takes the roles and labels of the token. At a start again is false, so that a token that is still in the settings
// changes nothing.
func (j *joiner) join(ctx context.Context, bootstrap []string, text string, again bool) error {
	t, err := parseToken(text)
	if err != nil {
		return fmt.Errorf("p2p: join: %w", err)
	}
	leave, err := j.own.enterChange(ctx)
	if err != nil {
		return fmt.Errorf("p2p: join %s: %w", t.cluster, err)
	}
	defer leave()
	if m := j.own.load(); m != nil {
		if m.cluster == t.cluster && again && m.secret == nil {
			return j.takeAnother(ctx, bootstrap, t, m)
		}
		if m.cluster == t.cluster {
			j.log.InfoContext(ctx, "already a member of this cluster; the token is not needed", "cluster", m.cluster.String())
			return nil
		}
		if n := j.book.size(); n > 0 {
			return fmt.Errorf("p2p: join %s: %w: %s, with %d more", t.cluster, ErrMember, m.cluster, n)
		}
	}
	m, err := j.askToJoin(ctx, bootstrap, t)
	if err != nil {
		return fmt.Errorf("p2p: join %s: %w", t.cluster, err)
	}
	return j.become(m)
}

// takeAnother exchanges the token for a credential with other roles or labels. If the exchange fails but the token has
// the roles that this member already has, that is no error: nothing had to change.
func (j *joiner) takeAnother(ctx context.Context, bootstrap []string, t token, old *membership) error {
	m, err := j.askToJoin(ctx, bootstrap, t)
	switch {
	case err != nil && t.roles != old.own.Roles:
		return fmt.Errorf("p2p: join %s: %w", t.cluster, err)
	case err != nil || m.own.Roles == old.own.Roles && maps.Equal(m.own.Labels, old.own.Labels):
		j.log.InfoContext(ctx, "already a member of this cluster; the token changes nothing", "cluster", old.cluster.String(), "error", err)
		return nil
	}
	return j.become(m)
}

// become makes this daemon a member, first on disk.
func (j *joiner) become(m *membership) error {
	if err := j.own.save(m); err != nil {
		return err
	}
	if err := j.settle(m); err != nil {
		return err
	}
	j.changed()
	j.log.Info("joined a cluster", "cluster", m.cluster.String(), "roles", m.own.Roles, "not_after", m.own.NotAfter)
	return nil
}

// askToJoin shows the token to one address after the other until one gives a final answer.
func (j *joiner) askToJoin(ctx context.Context, bootstrap []string, t token) (*membership, error) {
	addrs, err := parseAddrs(bootstrap)
	if err != nil {
		return nil, err
	}
	if len(addrs) == 0 {
		return nil, errors.New("no bootstrap address")
	}
	// Only the issuer can accept the token. Other members can only say why they refuse, for example for a wrong cluster.
	slices.SortStableFunc(addrs, func(a, b peer.AddrInfo) int { return rank(b, t.issuer) - rank(a, t.issuer) })
	var last error
	for _, info := range addrs {
		c, err := j.joinAt(ctx, info, t)
		if err == nil {
			m := (&membership{cluster: c.own.cluster, key: c.own.key, bootstrap: bootstrap}).with(c.own)
			if c.grant != nil {
				m = m.withGrant(c.grant)
			}
			return m, nil
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

// signed holds what an inviter has signed for a member.
type signed struct {
	own   *Credential
	grant *Credential // nil: the inviter gave none
}

// joinAt asks one daemon at one address. The swarm never sees this connection.
func (j *joiner) joinAt(ctx context.Context, info peer.AddrInfo, t token) (*signed, error) {
	ctx, cancel := context.WithTimeout(ctx, joinDial)
	defer cancel()
	addrs, err := resolve(ctx, info.Addrs[0])
	if err != nil {
		return nil, err
	}
	err = errors.New("no transport for this address")
	for _, a := range addrs {
		for _, g := range j.gates.list {
			if !g.CanDial(a) {
				continue
			}
			var c *signed
			if c, err = j.joinCrowded(ctx, g, a, info.ID, t); err == nil || isRefusal(err) {
				return c, err
			}
		}
	}
	return nil, err
}

// joinCrowded repeats joinOver for crowdedFor while the other side ends the connection: strangers may have taken all of
// its places.
func (j *joiner) joinCrowded(ctx context.Context, g *gate, a ma.Multiaddr, p peer.ID, t token) (*signed, error) {
	for begin := time.Now(); ; {
		c, err := j.joinOver(ctx, g, a, p, t)
		if err == nil || !cutOff(err) || time.Since(begin) > crowdedFor || !sleep(ctx, crowdedPause/2+rand.N(crowdedPause/2)) {
			return c, err
		}
	}
}

// cutOff reports whether the other side has ended a connection without an answer.
func cutOff(err error) bool {
	return errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

func (j *joiner) joinOver(ctx context.Context, g *gate, a ma.Multiaddr, p peer.ID, t token) (*signed, error) {
	conn, err := g.Transport.Dial(ctx, a, p)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	s, err := conn.OpenStream(ctx)
	if err != nil {
		return nil, fmt.Errorf("open a stream: %w", err)
	}
	q := &wirepb.JoinRequest{Cluster: t.cluster[:], Name: j.own.name, Endorsed: true}
	if p == t.issuer { // only the issuer is shown the secret
		q.Secret = t.secret[:]
	}
	var r wirepb.JoinReply
	if err := ask(ctx, s, JoinID, q, &r); err != nil {
		return nil, err
	}
	if err := code(r.GetCode()).toError(); err != nil {
		return nil, err
	}
	c, err := j.own.credentialFor(r.GetCredential(), t.cluster)
	if err != nil {
		return nil, err
	}
	grant, err := j.own.grantFor(r.GetGrant(), c)
	return &signed{own: c, grant: grant}, err
}

// enterBy joins when the daemon starts. It retries until it is admitted or refused.
func (j *joiner) enterBy(ctx context.Context, bootstrap []string, text string) error {
	said, pause := "", retryFirst
	for {
		err := j.join(ctx, bootstrap, text, false)
		if err == nil || isRefusal(err) || errors.Is(err, ErrBadToken) || errors.Is(err, ErrMember) || errors.Is(err, errBadAddr) {
			return err
		}
		if ctx.Err() != nil {
			return fmt.Errorf("p2p: join: %w, last: %w", ctx.Err(), err)
		}
		if err.Error() != said {
			said = err.Error()
			j.log.WarnContext(ctx, "cannot reach the cluster yet, will retry", "error", err)
		}
		if !sleep(ctx, pause/2+rand.N(pause/2)) {
			return fmt.Errorf("p2p: join: %w, last: %w", ctx.Err(), err)
		}
		pause = min(2*pause, retryMost)
	}
}

// sleep pauses; it returns false if ctx ended first.
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

// errBadAddr is an address that is not valid, so that retries are pointless.
var errBadAddr = errors.New("not a multiaddr with /p2p/ID at its end")

// parseAddrs parses addresses that end in /p2p/ID. Each result has one address.
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

// resolve looks up the DNS names in an address.
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
