package p2p

// The cluster of this daemon: cluster ID, cluster key, and the membership on disk.

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"path/filepath"
	"time"
)

// clusterSize is the size of a cluster ID: 160 bits of the hash. Nobody can find a second key with the same bits, and
// they print as 32 characters.
const clusterSize = 20

// letters is Crockford's base 32 in lower case. It leaves out i, l, o and u, which are easily misread.
var letters = base32.NewEncoding("0123456789abcdefghjkmnpqrstvwxyz").WithPadding(base32.NoPadding)

// clusterID is the hash of a cluster's public key.
type clusterID [clusterSize]byte

func (c clusterID) String() string { return letters.EncodeToString(c[:]) }

func clusterOf(key ed25519.PublicKey) clusterID {
	sum := sha256.Sum256(append([]byte("muster cluster 1\n"), key...))
	return clusterID(sum[:clusterSize])
}

// membership makes this daemon a member of a cluster. It is immutable; a change replaces the whole value.
type membership struct {
	cluster clusterID
	key     ed25519.PublicKey
	// own is the credential that this daemon shows to others.
	own *Credential
	// issuing is the credential under which this daemon signs credentials of others. It is the inviter credential with the
	// shortest chain, unless that ends within defaultLife and a newer one lasts longer. It is nil if this daemon never was
	// an inviter.
	issuing *Credential
	// origin is the last credential that was signed by the peer that let this daemon in.
	origin *Credential
	// grants are the grants of this daemon if it is an inviter. Each can be endorsed, and can be used to endorse others.
	// Grants with shorter chains come first.
	grants []*Credential
	// secret is the cluster's private key. It is nil unless this daemon is the founder or has a copy of the founder's key.
	secret ed25519.PrivateKey
	// bootstrap holds the addresses of the invitation.
	bootstrap []string
}

// with returns the membership with a new credential.
func (m membership) with(c *Credential) *membership {
	m.own = c
	if c.direct() || m.origin == nil {
		m.origin = c
	}
	if !c.Roles.Has(RoleInviter) {
		return &m
	}
	ends := m.issuing != nil && time.Until(m.issuing.NotAfter) < defaultLife && c.NotAfter.After(m.issuing.NotAfter)
	if m.issuing == nil || ends || len(c.links) <= len(m.issuing.links) {
		m.issuing = c
	}
	return &m
}

// authority returns the key and the chain with which the member signs credentials.
func (m *membership) authority(me identity) (authority, error) {
	if m.secret != nil {
		return authority{key: m.secret, cluster: m.key}, nil
	}
	if m.issuing == nil || !m.own.Roles.Has(RoleInviter) {
		return authority{}, ErrNotInviter
	}
	if !time.Now().Before(m.issuing.NotAfter) {
		return authority{}, fmt.Errorf("%w any more: its own credential has expired", ErrNotInviter)
	}
	return authority{key: me.key, chain: m.issuing, cluster: m.key}, nil
}

// found founds a cluster with this daemon as its first member.
func found(me identity, life time.Duration) (*membership, error) {
	pub, secret, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("p2p: make a cluster key: %w", err)
	}
	c, err := authority{key: secret, cluster: pub}.issue(me.id, AllRoles, time.Now().Add(life))
	if err != nil {
		return nil, err
	}
	m := &membership{cluster: clusterOf(pub), key: pub, secret: secret}
	return m.with(c), nil
}

const (
	membershipFile = "membership.json"
	clusterKeyFile = "cluster.key"
	clusterPrefix  = "muster-cluster-1 "
)

// membershipJSON is the content of membership.json.
type membershipJSON struct {
	Schema     string   `json:"schema"`
	Cluster    string   `json:"cluster"` // for people; the credential is authoritative
	Credential []byte   `json:"credential"`
	Issuing    []byte   `json:"issuing,omitempty"`
	Origin     []byte   `json:"origin,omitempty"` // absent in files of the previous version, with direct credentials only
	Grants     [][]byte `json:"grants,omitempty"`
	Bootstrap  []string `json:"bootstrap,omitempty"`
}

const membershipSchema = "muster.membership/v1"

// saveMembership writes the membership. The founder's cluster key is written first, so that no crash leaves a cluster
// without its key.
func saveMembership(d disk, m *membership) error {
	if m.secret != nil {
		if err := d.write(clusterKeyFile, encodeKey(clusterPrefix, m.secret)); err != nil {
			return err
		}
	}
	j := membershipJSON{Schema: membershipSchema, Cluster: m.cluster.String(), Credential: m.own.encode(), Bootstrap: m.bootstrap}
	if m.issuing != nil {
		j.Issuing = m.issuing.encode()
	}
	if m.origin != m.own {
		j.Origin = m.origin.encode()
	}
	for _, g := range m.grants {
		j.Grants = append(j.Grants, g.encode())
	}
	return d.writeJSON(membershipFile, j)
}

// loadMembership reads the membership from disk. It returns nil if this daemon belongs to no cluster yet.
func loadMembership(d disk, me identity) (*membership, error) {
	var j membershipJSON
	ok, err := d.readJSON(membershipFile, &j)
	if err != nil || !ok {
		return nil, err
	}
	path := filepath.Join(d.dir, membershipFile)
	own, err := ParseCredential(j.Credential)
	if err != nil {
		return nil, fmt.Errorf("p2p: read %s: %w: restore it, or remove it and join again", path, err)
	}
	if own.id != me.id {
		return nil, fmt.Errorf("p2p: read %s: it is the credential of %s, but %s is the key of %s; restore the file that is wrong", path, own.id, identityFile, me.id)
	}
	m := &membership{cluster: own.cluster, key: own.key, own: own, origin: own, bootstrap: j.Bootstrap}
	for _, f := range []struct {
		name string
		text []byte
		to   **Credential
	}{{"issuing", j.Issuing, &m.issuing}, {"origin", j.Origin, &m.origin}} {
		if f.text == nil {
			continue
		}
		c, err := ParseCredential(f.text)
		if err != nil {
			return nil, fmt.Errorf("p2p: read %s: %w: restore it, or remove it and join again", path, err)
		}
		if c.id != me.id || c.cluster != m.cluster {
			return nil, fmt.Errorf("p2p: read %s: its %s credential does not belong to this daemon and cluster", path, f.name)
		}
		*f.to = c
	}
	for _, text := range j.Grants[:min(len(j.Grants), maxGrants)] {
		g, err := ParseCredential(text)
		if err != nil || !g.isGrant() || g.id != me.id || g.cluster != m.cluster {
			return nil, fmt.Errorf("p2p: read %s: a grant does not belong to this daemon and cluster: restore it, or remove it and join again", path)
		}
		m.grants = append(m.grants, g)
	}
	text, err := d.read(clusterKeyFile)
	if err != nil || text == nil {
		return m, err
	}
	secret, err := decodeKey(clusterPrefix, text)
	if err != nil {
		return nil, fmt.Errorf("p2p: read %s: %w: restore it, or remove it and leave signing to other inviters", filepath.Join(d.dir, clusterKeyFile), err)
	}
	if m.key.Equal(secret.Public()) { // otherwise it is the key of a cluster that this daemon left
		m.secret = secret
	}
	return m, nil
}
