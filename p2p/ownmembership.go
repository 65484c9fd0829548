package p2p

// The identity, name and present membership of this daemon; and a membership from memory instead of a data directory, for
// hosts that share a process.

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/musterhq/muster/p2p/wirepb"
)

// ownMembership holds this daemon's identity and its membership, which joins and renewals replace.
type ownMembership struct {
	identity identity
	name     string        // for people
	life     time.Duration // lifetime of the credentials that this daemon signs; see lifeFor
	disk     disk
	current  atomic.Pointer[membership] // nil until Enter has succeeded
	changing chan struct{}              // a lock: holds one token while current is changed
}

func newOwnMembership(me identity, name string, life time.Duration, d disk) *ownMembership {
	return &ownMembership{identity: me, name: name, life: life, disk: d, changing: make(chan struct{}, 1)}
}

// inviterLives is how many times longer a credential with the role inviter lasts. The credential of a guest ends when
// its inviter's does. An inviter's ends if the inviter cannot reach the founder, or an inviter that can endorse it, for
// that time.
const inviterLives = 4

// lifeFor returns how long a credential with these roles lasts.
func (o *ownMembership) lifeFor(r Roles) time.Duration {
	if r.Has(RoleInviter) {
		return inviterLives * o.life
	}
	return o.life
}

// load returns the present membership; nil before Enter.
func (o *ownMembership) load() *membership { return o.current.Load() }

// save writes a membership to the data directory.
func (o *ownMembership) save(m *membership) error { return saveMembership(o.disk, m) }

// enterChange takes the lock that protects changes of the membership.
func (o *ownMembership) enterChange(ctx context.Context) (leave func(), err error) {
	select {
	case o.changing <- struct{}{}:
		return func() { <-o.changing }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// renewed checks a renewal. Its signer must not claim to have let this daemon in, because it could then revoke it.
func (o *ownMembership) renewed(r *wirepb.JoinReply, m *membership) (*Credential, error) {
	c, err := o.credentialFor(r.GetCredential(), m.cluster)
	if err != nil {
		return nil, err
	}
	if by := c.lineage(0); len(by) > 0 && !slices.Equal(by, m.own.lineage(0)) {
		return nil, fmt.Errorf("%w: it says that others let this daemon in", ErrBadCredential)
	}
	if !c.Roles.Has(m.own.Roles) {
		return nil, fmt.Errorf("%w: it lacks a role", ErrBadCredential)
	}
	return c, nil
}

// grantFor checks the grant that came with a credential. It is nil if none came.
func (o *ownMembership) grantFor(w *wirepb.Credential, c *Credential) (*Credential, error) {
	if w == nil {
		return nil, nil //nolint:nilnil // no grant came
	}
	g, err := credentialFromWire(w)
	switch {
	case err != nil:
		return nil, err
	case !g.isGrant() || g.endorsement != nil || g.id != c.id || g.cluster != c.cluster || !g.sameRights(c) || !slices.Equal(g.lineage(0), c.lineage(0)):
		return nil, fmt.Errorf("%w: its grant says something else", ErrBadCredential)
	}
	return g, nil
}

// credentialFor checks a credential that an inviter gave us. It refuses a credential of another cluster than the one that
// we want to join.
func (o *ownMembership) credentialFor(w *wirepb.Credential, want clusterID) (*Credential, error) {
	c, err := credentialFromWire(w)
	switch {
	case err != nil:
		return nil, err
	case c.cluster != want:
		return nil, ErrWrongCluster
	case c.id != o.identity.id:
		return nil, fmt.Errorf("%w: it is of %s", ErrBadCredential, c.id)
	case !time.Now().Before(c.NotAfter):
		return nil, fmt.Errorf("%w: is the clock of this host right?", ErrExpired)
	}
	return c, nil
}

// Given is a key and a cluster's credential for that key.
type Given struct {
	Key        ed25519.PrivateKey
	Credential *Credential // nil: use what DataDir holds
	// Cluster is the cluster's private key; only its founder has it.
	Cluster ed25519.PrivateKey
}

func (g *Given) membership(me identity) (*membership, error) {
	if g.Credential.id != me.id {
		return nil, fmt.Errorf("p2p: the given credential is of %s, but the key is of %s", g.Credential.id, me.id)
	}
	m := &membership{cluster: g.Credential.cluster, key: g.Credential.key, secret: g.Cluster}
	return m.with(g.Credential), nil
}

// NewGiven makes a key and a credential for it, signed by the cluster key.
func NewGiven(cluster ed25519.PrivateKey, roles Roles, life time.Duration) (*Given, error) {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("p2p: make a key: %w", err)
	}
	me, err := newIdentity(key)
	if err != nil {
		return nil, err
	}
	pub, ok := cluster.Public().(ed25519.PublicKey)
	if !ok {
		return nil, fmt.Errorf("p2p: cluster key: %w", ErrIdentity)
	}
	c, err := authority{key: cluster, cluster: pub}.issue(me.id, roles, time.Now().Add(life))
	if err != nil {
		return nil, err
	}
	return &Given{Key: key, Credential: c}, nil
}

// ID returns the peer ID of the key.
func (g *Given) ID() (peer.ID, error) {
	me, err := newIdentity(g.Key)
	return me.id, err
}
