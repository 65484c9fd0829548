package p2p

// Grants and endorsements: how inviters keep each other current without the cluster key.
// See docs/adr, ADR 121.
//
// A grant is a link for an inviter that lasts for years. It is not valid by itself: an endorsement must say that its peer
// is still an inviter. Another inviter signs the endorsement, for a few weeks. The chains of grants of the two inviters
// must have no peer in common. So an attacker with one inviter's key, who can make any number of inviters with it, cannot
// endorse any of them.

import (
	"crypto/ed25519"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"
	"google.golang.org/protobuf/proto"

	"github.com/musterhq/muster/p2p/wirepb"
)

const (
	// grantLife is how long a grant lasts: longer than a cluster is expected to live without its founder.
	grantLife = 10 * 365 * 24 * time.Hour
	// maxGrants bounds the grants that an inviter keeps for itself.
	maxGrants = 3
	// maxEndorsement bounds the bytes of an endorsement, so that it fits into a hello with the longest credential. Only an
	// endorsement with a chain of three grants that all have the most labels is too long.
	maxEndorsement = 3 << 9
)

// errTogether means that two inviters have a peer in common in their chains. Another inviter can endorse.
var errTogether = errors.New("its chain has an inviter in common with that of the other")

// endorsement is an endorsement whose form and signatures are valid for its grant.
type endorsement struct {
	notAfter int64
	links    []link // the grant of the inviter that signed it, then the grants of that inviter's issuers
	wire     *wirepb.Endorsement
}

// end returns when the endorsement ends, or a grant of the inviter that signed it if that ends sooner. It does not matter
// whether that inviter is itself still endorsed: its loss must not end the credentials that it has endorsed.
func (e *endorsement) end() time.Time { return earlier(time.Unix(e.notAfter, 0), linksEnd(e.links)) }

// granted returns the first grant among the links and the links above it; nil if no link is a grant.
func (c *Credential) granted() []link {
	i := slices.IndexFunc(c.links, func(l link) bool { return l.grant })
	if i < 0 {
		return nil
	}
	return c.links[i:]
}

// isGrant reports whether the holder's own link is a grant. Then all links above it are grants too.
func (c *Credential) isGrant() bool { return c.links[0].grant }

// bare returns the credential without its endorsement.
func (c *Credential) bare() *Credential {
	b := *c
	b.endorsement = nil
	b.NotAfter = b.ends()
	return &b
}

// ends returns the end of a credential.
func (c *Credential) ends() time.Time {
	end := linksEnd(c.links)
	switch {
	case c.granted() == nil:
		return end
	case c.endorsement == nil:
		return time.Unix(0, 0)
	}
	return earlier(end, c.endorsement.end())
}

func linksEnd(links []link) time.Time {
	end := links[0].notAfter
	for _, l := range links {
		end = min(end, l.notAfter)
	}
	return time.Unix(end, 0)
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// apart reports whether two chains have no peer in common.
func apart(a, b []link) bool {
	for _, l := range a {
		if hasPeer(b, l.peer) {
			return false
		}
	}
	return true
}

func hasPeer(links []link, p peer.ID) bool {
	return slices.ContainsFunc(links, func(l link) bool { return l.peer == p })
}

// printOfGrant returns a hash that identifies a grant and the links above it. It includes the signatures, because another
// inviter may have signed the same body.
func printOfGrant(links []link) []byte {
	h := sha256.New()
	for _, l := range links {
		for _, b := range [][]byte{l.wire.GetBody(), l.wire.GetSignature()} {
			sum := sha256.Sum256(b)
			h.Write(sum[:])
		}
	}
	return h.Sum(nil)
}

// endorsementFromWire checks form and signatures of an endorsement for the grant in a credential.
func endorsementFromWire(w *wirepb.Endorsement, c *Credential) (*endorsement, error) {
	granted := c.granted()
	if granted == nil {
		return nil, errors.New("there is no grant")
	}
	var b wirepb.EndorsementBody
	if err := proto.Unmarshal(w.GetBody(), &b); err != nil {
		return nil, err
	}
	switch {
	case string(b.GetCluster()) != string(c.cluster[:]):
		return nil, errors.New("it is of another cluster")
	case string(b.GetGrant()) != string(printOfGrant(granted)):
		return nil, errors.New("it is about another grant")
	case b.GetNotAfter() <= 0 || b.GetNotAfter() > maxNotAfter:
		return nil, fmt.Errorf("time %d", b.GetNotAfter())
	case len(w.GetSignature()) != ed25519.SignatureSize:
		return nil, errors.New("signature has the wrong size")
	}
	links, err := linksFromWire(w.GetLinks(), c.cluster, c.key)
	switch {
	case err != nil:
		return nil, err
	case !links[0].grant:
		return nil, errors.New("who signed it shows no grant")
	case !apart(links, granted):
		return nil, errTogether
	case !ed25519.Verify(links[0].key, append([]byte(signEndorsement), w.GetBody()...), w.GetSignature()):
		return nil, errors.New("wrong signature")
	}
	wire := &wirepb.Endorsement{Body: w.GetBody(), Signature: w.GetSignature(), Links: w.GetLinks()}
	return &endorsement{notAfter: b.GetNotAfter(), links: links, wire: wire}, nil
}

// endorse makes a grant current until a time. The authority's own chain must consist of grants, and must have no peer in
// common with the chain of the grant.
func (a authority) endorse(g *Credential, notAfter time.Time) (*Credential, error) {
	if !apart(a.chain.links, g.links) {
		return nil, errTogether
	}
	body, err := proto.Marshal(&wirepb.EndorsementBody{Cluster: g.cluster[:], Grant: printOfGrant(g.links), NotAfter: notAfter.Unix()})
	if err != nil {
		return nil, fmt.Errorf("p2p: endorse: %w", err)
	}
	w := g.bare().toWire()
	w.Endorsement = &wirepb.Endorsement{
		Body: body, Signature: ed25519.Sign(a.key, append([]byte(signEndorsement), body...)), Links: a.chain.bare().toWire().GetLinks(),
	}
	return credentialFromWire(w)
}

// endorseOne endorses one of another inviter's grants with one of our own. It returns nil if each pair of grants has a peer
// in common.
func (m *membership) endorseOne(me identity, theirs []*Credential, notAfter time.Time) *Credential {
	for _, g := range theirs {
		for _, mine := range m.grants {
			c, err := authority{key: me.key, cluster: m.key, chain: mine}.endorse(g, notAfter)
			if err == nil && c.NotAfter.After(time.Now()) {
				return c
			}
		}
	}
	return nil
}

// grantFor signs a grant for an inviter that this daemon lets in or renews. by is the lineage of that inviter. grantFor
// returns nil if this daemon has no key or grant to sign with.
func (m *membership) grantFor(me identity, c *Credential, by []peer.ID, now time.Time) *Credential {
	if !c.Roles.Has(RoleInviter) {
		return nil
	}
	if m.secret != nil {
		g, err := authority{key: m.secret, cluster: m.key}.grant(c, by, now.Add(grantLife))
		if err != nil {
			return nil
		}
		return g
	}
	for _, mine := range m.grants {
		if hasPeer(mine.links, c.id) {
			continue
		}
		g, err := authority{key: me.key, cluster: m.key, chain: mine}.grant(c, by, now.Add(grantLife))
		if err == nil {
			return g
		}
	}
	return nil
}

// withGrant returns the membership with one more grant. The new grant replaces an older one with the same issuers. Grants
// with shorter chains come first. If there are too many, withGrant drops one such that the rest are firm, if possible.
func (m membership) withGrant(g *Credential) *membership {
	list := slices.DeleteFunc(slices.Clone(m.grants), func(o *Credential) bool { return slices.Equal(o.issuers(), g.issuers()) })
	list = append(list, g)
	slices.SortStableFunc(list, func(a, b *Credential) int { return len(a.links) - len(b.links) })
	if len(list) <= maxGrants {
		m.grants = list
		return &m
	}
	for i := maxGrants; i >= 0; i-- { // try to drop the longest first
		if m.grants = slices.Delete(slices.Clone(list), i, i+1); firm(m.grants) {
			return &m
		}
	}
	return &m
}

// firm reports whether no other inviter is in the chains of all grants. Then, whichever inviter is lost, one grant does not
// depend on it; and whichever inviter an endorser has in its own chain, one grant does not have it.
func firm(grants []*Credential) bool {
	if len(grants) == 0 {
		return false
	}
	for _, p := range grants[0].issuers() {
		if !slices.ContainsFunc(grants, func(g *Credential) bool { return !hasPeer(g.links, p) }) {
			return false
		}
	}
	return true
}
