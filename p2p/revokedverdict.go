package p2p

// What all revocations together mean for a credential.

import (
	"slices"

	"github.com/libp2p/go-libp2p/core/peer"
)

// verdicts holds the latest word of each signer about each peer. It depends only on the set of revocations, not on the
// order in which they came.
type verdicts struct {
	key    map[peer.ID]revocation             // by the cluster key
	by     map[peer.ID]map[peer.ID]revocation // by members: signer, then peer
	legacy map[peer.ID]revocation             // by members of the previous version
}

func verdictsOf(list map[slot]revocation, legacy map[peer.ID]revocation) verdicts {
	s := verdicts{key: map[peer.ID]revocation{}, by: map[peer.ID]map[peer.ID]revocation{}, legacy: legacy}
	for _, r := range list {
		m := s.key
		if r.signer != "" {
			if m = s.by[r.signer]; m == nil {
				m = map[peer.ID]revocation{}
				s.by[r.signer] = m
			}
		}
		// A signer has several entries about a peer if its own credentials had several chains.
		if old, ok := m[r.peer]; !ok || r.over(old) {
			m[r.peer] = r
		}
	}
	return s
}

// verdict says whether a credential is still valid, given all revocations.
type verdict int

const (
	valid   verdict = iota
	tainted         // a peer that signed it is revoked: the credential is valid only for peers that were admitted before
	out             // the holder is revoked, or was let in by a peer that was revoked together with the peers it let in
)

// out reports whether a peer is revoked whatever credential it shows: by the cluster key, by itself, or by a member of the
// previous version.
func (s verdicts) out(p peer.ID) bool {
	if r, ok := s.key[p]; ok {
		return !r.back
	}
	if r, ok := s.by[p][p]; ok && !r.back {
		return true
	}
	_, ok := s.legacy[p]
	return ok
}

// about reports whether a peer with the lineage by is revoked, and whether the peers that it let in are revoked too. What
// the cluster key says overrides what members say.
func (s verdicts) about(p peer.ID, by []peer.ID) (revoked, withInvited bool) {
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

// of returns the verdict on a credential.
func (s verdicts) of(c *Credential) verdict {
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

// ofEndorsement returns the verdict on a credential that is valid apart from its endorsement: it is tainted if a peer that
// signed the endorsement is revoked. Another inviter must then endorse it.
func (s verdicts) ofEndorsement(e *endorsement) verdict {
	for i, l := range e.links {
		by := lineageOf(e.links, i)
		if revoked, _ := s.about(l.peer, by); revoked || s.byRevoked(by) {
			return tainted
		}
	}
	return valid
}

// byRevoked reports whether a peer of the lineage by is revoked together with the peers that it let in.
func (s verdicts) byRevoked(by []peer.ID) bool {
	for j, p := range by {
		if _, withInvited := s.about(p, by[j+1:]); withInvited {
			return true
		}
	}
	return false
}

// mayRevoke reports whether signer let in the peer with the lineage by, directly or through others.
func mayRevoke(signer peer.ID, by []peer.ID) bool { return slices.Contains(by, signer) }
