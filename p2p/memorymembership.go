package p2p

// A membership from memory instead of a data directory, for hosts that share a process.

import (
	"crypto/ed25519"
	"crypto/rand"
	"fmt"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"
)

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
