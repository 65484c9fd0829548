package p2p

// The list of revoked peers, for people.

import (
	"cmp"
	"slices"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/musterhq/muster/job"
)

// MaxRevoked bounds the list of revoked peers. If there are more, the list has the newest.
const MaxRevoked = 1024

// RevokedPeer is a peer that is out of the cluster.
type RevokedPeer struct {
	Peer        job.Peer
	Name        string // empty if this daemon never met it
	At          time.Time
	By          job.Peer // empty: the cluster key
	ByName      string   // empty if it is not known
	Reason      string
	WithInvited bool
	Mine        bool // this daemon can take the revocation back
}

// inForce returns the revocations that their signers have not taken back and that the cluster key has not overridden, at
// most one for each peer and signer.
func (r *revocations) inForce() (list []revocation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, rev := range r.stands.key {
		list = append(list, rev)
	}
	for _, said := range r.stands.by {
		for _, rev := range said {
			list = append(list, rev)
		}
	}
	for _, rev := range r.stands.legacy {
		list = append(list, rev)
	}
	return slices.DeleteFunc(list, func(rev revocation) bool {
		_, annulled := r.stands.key[rev.peer]
		return rev.back || annulled && rev.signer != ""
	})
}

// RevokedPeers lists the peers that are out of the cluster.
type RevokedPeers struct {
	own     *ownMembership
	revoked *revocations
	book    *book
}

// List returns the peers that are out of the cluster as far as this daemon knows, the newest first; at most MaxRevoked. A
// member's revocation counts only if the member let the peer in. That is not known for a peer that was never connected
// here; such a peer is in the list.
func (r *RevokedPeers) List() []RevokedPeer {
	m := r.own.load()
	if m == nil {
		return nil
	}
	var list []RevokedPeer
	seen := map[peer.ID]bool{}
	all := r.revoked.inForce()
	slices.SortFunc(all, func(a, b revocation) int {
		return cmp.Or(b.at.Compare(a.at), cmp.Compare(a.peer, b.peer), cmp.Compare(a.signer, b.signer))
	})
	for _, rev := range all {
		gone, met := r.book.revoked(rev.peer)
		doubtful := rev.signer != "" && !rev.legacy && rev.signer != rev.peer
		if seen[rev.peer] || doubtful && (rev.peer == r.own.identity.id || r.book.knows(rev.peer) || met && !mayRevoke(rev.signer, gone.by)) {
			continue
		}
		seen[rev.peer] = true
		p := RevokedPeer{
			Peer: job.Peer(rev.peer.String()), Name: gone.Name, At: rev.at, Reason: rev.reason, WithInvited: rev.withInvited,
			Mine: m.secret != nil || rev.signer == r.own.identity.id,
		}
		if rev.signer != "" {
			p.By, p.ByName = job.Peer(rev.signer.String()), r.nameOf(rev.signer)
		}
		if list = append(list, p); len(list) == MaxRevoked {
			break
		}
	}
	return list
}

func (r *RevokedPeers) nameOf(id peer.ID) string {
	if id == r.own.identity.id {
		return r.own.name
	}
	if c, ok := r.book.get(id); ok {
		return c.Name
	}
	c, _ := r.book.revoked(id)
	return c.Name
}
