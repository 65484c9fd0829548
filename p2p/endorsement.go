package p2p

// Grants and endorsements: how inviters keep each other current without the cluster key.
// See docs/adr, ADR 121.
//
// A grant is a link for an inviter that lasts for years. It is worth nothing by itself: an endorsement must say that the
// inviter is still one. Another inviter signs the endorsement for some weeks. The two must have no peer in common in their
// chains of grants. So whoever has one key, and can make any number of inviters with it, cannot endorse any of them.

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
	// grantLife is how long a grant lasts: longer than a cluster does without its founder.
	grantLife = 10 * 365 * 24 * time.Hour
	// maxGrants bounds the grants that an inviter keeps for itself.
	maxGrants = 3
	// maxEndorsement bounds the bytes of an endorsement. With the longest credential it has room in a hello. Only a chain
	// of three grants that are all full of labels is too long for it.
	maxEndorsement = 3 << 9
)

// errTogether means that two inviters have a peer in common in their chains. Another inviter can endorse.
var errTogether = errors.New("its chain has an inviter in common with that of the other")

// endorsement is an endorsement whose form and signatures are valid for the grant that it is about.
type endorsement struct {
	notAfter int64
	links    []link // the grant of the inviter that signed it, then those of its issuers
	wire     *wirepb.Endorsement
}

// end is when the endorsement or a grant of who signed it ends. Whether that inviter is still current does not count: its
// loss must cost nothing.
func (e *endorsement) end() time.Time { return earlier(time.Unix(e.notAfter, 0), linksEnd(e.links)) }

// granted returns the first grant among the links and those above it; nil if no link is a grant.
func (c *Credential) granted() []link {
	i := slices.IndexFunc(c.links, func(l link) bool { return l.grant })
	if i < 0 {
		return nil
	}
	return c.links[i:]
}

// isGrant reports whether the holder's own link is a grant. Then so are all that are above it.
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

// printOfGrant identifies a grant and those above it, signatures included: another inviter may have signed the same body.
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

// endorse makes a grant current until a time. Its own chain must be one of grants, apart from those of the grant.
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

// endorseOne endorses one of another inviter's grants by one of our own. It returns nil if none are apart.
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

// grantFor signs a grant for an inviter that this daemon lets in or renews, who was let in by by. It returns nil if
// this daemon has nothing to sign that with.
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

// withGrant returns the membership with one more grant, or with a later one of the same signer. The shortest come first.
// Of too many, those stay that make it firm.
func (m membership) withGrant(g *Credential) *membership {
	list := slices.DeleteFunc(slices.Clone(m.grants), func(o *Credential) bool { return slices.Equal(o.issuers(), g.issuers()) })
	list = append(list, g)
	slices.SortStableFunc(list, func(a, b *Credential) int { return len(a.links) - len(b.links) })
	if len(list) <= maxGrants {
		m.grants = list
		return &m
	}
	for i := maxGrants; i >= 0; i-- { // rather the longest goes
		if m.grants = slices.Delete(slices.Clone(list), i, i+1); firm(m.grants) {
			return &m
		}
	}
	return &m
}

// firm reports whether no other inviter is in the chains of all grants. Then others can endorse one of them, whichever
// inviter they have in their own chains.
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
