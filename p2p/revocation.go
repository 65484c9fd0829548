package p2p

// Revocations: signed statements that a peer is out of the cluster for good.

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/libp2p/go-libp2p/core/peer"
	"google.golang.org/protobuf/proto"

	"github.com/musterhq/muster/p2p/wirepb"
)

const (
	revokedFile = "revoked.list"
	// maxRevoked bounds the list: all hosts that were ever revoked.
	maxRevoked = 4096
	// maxReason bounds the reason for people, in bytes.
	maxReason = 256
	// revokedBatch is the number of entries in one message.
	revokedBatch = 64
)

// errBadRevocation is a revocation that does not parse or whose signer had no right to sign it.
var errBadRevocation = errors.New("bad revocation")

// revocation is a revocation whose form and signature are valid.
type revocation struct {
	peer   peer.ID
	reason string
	at     time.Time
	signer *Credential // nil: signed by the cluster key
	wire   *wirepb.Revocation
}

// revocationFromWire makes every check that does not depend on other revocations.
func revocationFromWire(w *wirepb.Revocation, cluster clusterID, key ed25519.PublicKey) (revocation, error) {
	var b wirepb.RevocationBody
	if err := proto.Unmarshal(w.GetBody(), &b); err != nil {
		return revocation{}, fmt.Errorf("%w: %w", errBadRevocation, err)
	}
	if !bytes.Equal(b.GetCluster(), cluster[:]) {
		return revocation{}, fmt.Errorf("%w: %w", errBadRevocation, ErrWrongCluster)
	}
	if len(b.GetPeer()) > maxPeerID || len(b.GetReason()) > maxReason || !utf8.ValidString(b.GetReason()) || b.GetAt() <= 0 || b.GetAt() > maxNotAfter {
		return revocation{}, fmt.Errorf("%w: out of range", errBadRevocation)
	}
	id, err := peer.IDFromBytes(b.GetPeer())
	if err != nil {
		return revocation{}, fmt.Errorf("%w: %w", errBadRevocation, err)
	}
	r := revocation{peer: id, reason: b.GetReason(), at: time.Unix(b.GetAt(), 0), wire: w}
	if w.GetIssuer() != nil {
		if r.signer, err = credentialFromWire(w.GetIssuer()); err != nil {
			return revocation{}, fmt.Errorf("%w: %w", errBadRevocation, err)
		}
		if r.signer.cluster != cluster || !r.signer.Roles.Has(RoleInviter) || slices.Contains(r.signer.issuers(), id) {
			return revocation{}, fmt.Errorf("%w: %s may not revoke %s", errBadRevocation, r.signer.id, id)
		}
		key = r.signer.links[0].key
	}
	if len(w.GetSignature()) != ed25519.SignatureSize || !ed25519.Verify(key, append([]byte(signRevocation), w.GetBody()...), w.GetSignature()) {
		return revocation{}, fmt.Errorf("%w: wrong signature", errBadRevocation)
	}
	return r, nil
}

// revoke signs a revocation.
func (a authority) revoke(id peer.ID, reason string, now time.Time) (revocation, error) {
	cluster := clusterOf(a.cluster)
	body, err := proto.Marshal(&wirepb.RevocationBody{Cluster: cluster[:], Peer: []byte(id), Reason: reason, At: now.Unix()})
	if err != nil {
		return revocation{}, fmt.Errorf("%w: %w", errBadRevocation, err)
	}
	w := &wirepb.Revocation{Body: body, Signature: ed25519.Sign(a.key, append([]byte(signRevocation), body...))}
	if a.chain != nil {
		w.Issuer = a.chain.toWire()
	}
	return revocationFromWire(w, cluster, a.cluster)
}

// revocations is the list of revocations that this daemon knows: for each peer the one that came first.
type revocations struct {
	disk disk

	mu      sync.Mutex
	cluster clusterID              // guarded by mu
	key     ed25519.PublicKey      // guarded by mu
	list    map[peer.ID]revocation // guarded by mu
	order   []peer.ID              // guarded by mu; in order of arrival
	sum     []byte                 // guarded by mu; the digest, nil: not computed
}

// open loads the list of a cluster.
func (r *revocations) open(cluster clusterID, key ed25519.PublicKey) error {
	b, err := r.disk.read(revokedFile)
	if err != nil {
		return err
	}
	var w wirepb.RevocationList
	if err := proto.Unmarshal(b, &w); err != nil {
		return fmt.Errorf("p2p: read %s/%s: damaged: %w", r.disk.dir, revokedFile, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cluster, r.key, r.list, r.order, r.sum = cluster, key, map[peer.ID]revocation{}, nil, nil
	for _, e := range w.GetEntries() {
		// Entries of a former cluster are skipped, because they do not verify.
		if rev, err := revocationFromWire(e, cluster, key); err == nil {
			r.addLocked(rev)
		}
	}
	return nil
}

func (r *revocations) addLocked(rev revocation) bool {
	if _, known := r.list[rev.peer]; known || len(r.list) >= maxRevoked {
		return false
	}
	r.sum = nil
	r.list[rev.peer] = rev
	r.order = append(r.order, rev.peer)
	return true
}

// merge verifies entries from another daemon, stores the new ones and returns them. One bad entry refuses the whole
// message.
func (r *revocations) merge(entries []*wirepb.Revocation) ([]revocation, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var fresh []revocation
	for _, e := range entries {
		rev, err := revocationFromWire(e, r.cluster, r.key)
		if err != nil {
			return nil, err
		}
		if rev.signer != nil && r.taintedLocked(rev.signer) {
			continue // its signer was revoked first
		}
		fresh = append(fresh, rev)
	}
	return r.keepLocked(fresh)
}

// add stores an entry of our own.
func (r *revocations) add(rev revocation) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, err := r.keepLocked([]revocation{rev})
	return err
}

func (r *revocations) keepLocked(fresh []revocation) ([]revocation, error) {
	list, order := maps.Clone(r.list), slices.Clone(r.order)
	fresh = slices.DeleteFunc(fresh, func(rev revocation) bool { return !r.addLocked(rev) })
	if len(fresh) == 0 {
		return nil, nil
	}
	b, err := proto.Marshal(&wirepb.RevocationList{Entries: r.entriesLocked()})
	if err == nil {
		err = r.disk.write(revokedFile, b)
	}
	if err != nil {
		r.list, r.order, r.sum = list, order, nil
		return nil, fmt.Errorf("p2p: keep revocations: %w", err)
	}
	return fresh, nil
}

func (r *revocations) entriesLocked() []*wirepb.Revocation {
	entries := make([]*wirepb.Revocation, 0, len(r.order))
	for _, id := range r.order {
		entries = append(entries, r.list[id].wire)
	}
	return entries
}

// entries returns the entries from the n-th on, and the number of all entries.
func (r *revocations) entries(n int) ([]*wirepb.Revocation, int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := r.entriesLocked()
	return all[min(n, len(all)):], len(all)
}

// has reports whether a peer is revoked.
func (r *revocations) has(id peer.ID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, out := r.list[id]
	return out
}

// tainted reports whether the holder of a credential or one of its issuers is revoked.
func (r *revocations) tainted(c *Credential) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.taintedLocked(c)
}

func (r *revocations) taintedLocked(c *Credential) bool {
	for _, l := range c.links {
		if _, out := r.list[l.peer]; out {
			return true
		}
	}
	return false
}

// digest is equal on two daemons if they know the same revoked peers.
func (r *revocations) digest() []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.sum == nil {
		h := sha256.New()
		for _, id := range slices.Sorted(maps.Keys(r.list)) {
			fmt.Fprintf(h, "%d:%s", len(id), string(id))
		}
		r.sum = h.Sum(nil)
	}
	return r.sum
}
