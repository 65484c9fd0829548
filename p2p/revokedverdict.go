package p2p

// What all revocations together mean for a credential.

import (
	"slices"

	"github.com/libp2p/go-libp2p/core/peer"
)

// standing is what each signer says of each peer. It depends only on the set of revocations.
type standing struct {
	key    map[peer.ID]revocation             // by the cluster key
	by     map[peer.ID]map[peer.ID]revocation // by members: signer, then peer
	legacy map[peer.ID]revocation             // by members of the version before
}

func standingOf(list map[slot]revocation, legacy map[peer.ID]revocation) standing {
	s := standing{key: map[peer.ID]revocation{}, by: map[peer.ID]map[peer.ID]revocation{}, legacy: legacy}
	for _, r := range list {
		m := s.key
		if r.signer != "" {
			if m = s.by[r.signer]; m == nil {
				m = map[peer.ID]revocation{}
				s.by[r.signer] = m
			}
		}
		// A signer has several entries about a peer if it was itself signed by several.
		if old, ok := m[r.peer]; !ok || r.over(old) {
			m[r.peer] = r
		}
	}
	return s
}

// verdict is what a credential is worth.
type verdict int

const (
	valid   verdict = iota
	tainted         // a peer that signed it is revoked: it counts only for those that were admitted before
	out             // the holder is revoked, or was let in by a peer that was revoked with all it let in
)

// out reports whether a peer is revoked whatever it shows: by the cluster key or by itself.
func (s standing) out(p peer.ID) bool {
	if r, ok := s.key[p]; ok {
		return !r.back
	}
	if r, ok := s.by[p][p]; ok && !r.back {
		return true
	}
	_, ok := s.legacy[p]
	return ok
}

// about reports whether a peer is revoked that those in by let in, and whether those that it let in go with it. The word
// of the cluster key is the last one.
func (s standing) about(p peer.ID, by []peer.ID) (revoked, withInvited bool) {
	if r, ok := s.key[p]; ok {
		return !r.back, !r.back && r.withInvited
	}
	_, revoked = s.legacy[p]
	for _, signer := range append([]peer.ID{p}, by...) {
		if r, ok := s.by[signer][p]; ok && !r.back {
			revoked, withInvited = true, withInvited || r.withInvited
		}
	}
	return revoked, withInvited
}

// of returns what a credential is worth.
func (s standing) of(c *Credential) verdict {
	v := valid
	for i, l := range c.links {
		by := c.lineage(i)
		revoked, withInvited := s.about(l.peer, by)
		if revoked && (i == 0 || withInvited) {
			return out
		}
		if revoked {
			v = tainted
		}
		if s.byRevoked(by) {
			return out
		}
	}
	if c.endorsement != nil && v == valid {
		return s.ofEndorsement(c.endorsement)
	}
	return v
}

// ofEndorsement returns what is left of a valid credential: if somebody who signed its endorsement is revoked, it must be
// endorsed by another.
func (s standing) ofEndorsement(e *endorsement) verdict {
	for i, l := range e.links {
		by := lineageOf(e.links, i)
		if revoked, _ := s.about(l.peer, by); revoked || s.byRevoked(by) {
			return tainted
		}
	}
	return valid
}

// byRevoked reports whether one of those that let a peer in is revoked with all it let in.
func (s standing) byRevoked(by []peer.ID) bool {
	for j, p := range by {
		if _, withInvited := s.about(p, by[j+1:]); withInvited {
			return true
		}
	}
	return false
}

// mayRevoke reports whether a member let a peer in, directly or through others.
func mayRevoke(signer peer.ID, by []peer.ID) bool { return slices.Contains(by, signer) }
