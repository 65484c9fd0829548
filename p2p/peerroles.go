package p2p

// The roles of other daemons, for the parts that serve them and for the parts that choose a daemon to ask.

import (
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/musterhq/muster/job"
)

// Grants says what the credentials of other daemons allow.
type Grants struct {
	own    *ownMembership
	roster *roster
	book   *book
}

// Of returns the roles that an admitted peer has by its present credential. It returns none if the peer is not admitted, or
// if its credential has expired. Use it to decide what a peer may do.
func (g *Grants) Of(id peer.ID) Roles { return g.roster.rolesOf(id, time.Now()) }

// Labels returns the labels that an inviter has signed for an admitted peer, by its present credential. The map is
// read-only.
func (g *Grants) Labels(p job.Peer) map[string]string {
	id, err := peer.Decode(string(p))
	if err != nil {
		return nil
	}
	if m := g.own.load(); m != nil && id == g.own.identity.id {
		return m.own.Labels
	}
	shown, ok := g.roster.get(id)
	if !ok || !time.Now().Before(shown.cred.NotAfter) {
		return nil
	}
	return shown.cred.Labels
}

// Endorsable reports whether this daemon can keep its credential if the inviter that let it in is lost. It is true if the
// daemon has the cluster key, or has grants that other inviters can endorse, and also if it is not an inviter.
func (g *Grants) Endorsable() bool {
	m := g.own.load()
	return m == nil || m.secret != nil || !m.own.Roles.Has(RoleInviter) || firm(m.grants)
}

// MayHave reports whether another daemon could have a role: by its present credential, or else by the credential that it
// showed last time. It returns true for a daemon that was never connected, about which nothing is known. Use it only to
// choose a daemon to ask.
func (g *Grants) MayHave(p job.Peer, role Roles) bool {
	id, err := peer.Decode(string(p))
	if err != nil {
		return false
	}
	if m := g.own.load(); m != nil && id == g.own.identity.id {
		return m.own.Roles.Has(role)
	}
	if _, out := g.book.revoked(id); out {
		return false // until it is let back in and connects
	}
	if shown, ok := g.roster.get(id); ok {
		return shown.cred.Roles.Has(role)
	}
	known, ok := g.book.get(id)
	return !ok || known.Roles == 0 || known.Roles.Has(role)
}
