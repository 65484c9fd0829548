package p2p

// The roles of other daemons, for the parts that serve them and for those that choose whom to ask.

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

// Of returns the roles that an admitted peer has by its present credential; none if it is not admitted, or if its
// credential has expired. What a peer may do is decided by this.
func (g *Grants) Of(id peer.ID) Roles { return g.roster.rolesOf(id, time.Now()) }

// Labels returns the labels that an inviter has signed for an admitted peer, by its present credential. Nobody may change
// the map.
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

// Endorsable reports whether the credential of this daemon can go on without the one that let it in: it has the cluster key,
// or is no inviter, or has grants that let other inviters endorse it.
func (g *Grants) Endorsable() bool {
	m := g.own.load()
	return m == nil || m.secret != nil || !m.own.Roles.Has(RoleInviter) || firm(m.grants)
}

// MayHave reports whether a daemon may have a role, as far as this one knows: by the credential that it has shown, else
// by the one that it showed when it was last here. Of a daemon that was never here nothing is known, so it may. It is for
// choosing whom to ask.
func (g *Grants) MayHave(p job.Peer, role Roles) bool {
	id, err := peer.Decode(string(p))
	if err != nil {
		return false
	}
	if m := g.own.load(); m != nil && id == g.own.identity.id {
		return m.own.Roles.Has(role)
	}
	if _, out := g.book.revoked(id); out {
		return false // until it is let back in and comes
	}
	if shown, ok := g.roster.get(id); ok {
		return shown.cred.Roles.Has(role)
	}
	known, ok := g.book.get(id)
	return !ok || known.Roles == 0 || known.Roles.Has(role)
}
