package p2p

// Authority: the keys that sign links in a cluster's name.

import (
	"crypto/ed25519"
	"fmt"
	"slices"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"
	"google.golang.org/protobuf/proto"

	"github.com/musterhq/muster/p2p/wirepb"
)

// authority signs in a cluster's name. It is the cluster key itself, or a daemon's key together with the credential that
// makes the daemon an inviter.
type authority struct {
	key     ed25519.PrivateKey
	cluster ed25519.PublicKey
	chain   *Credential // nil for the cluster key
}

// issue signs the credential of a peer that is let in now, without labels. The credential ends no later than the
// authority's own.
func (a authority) issue(to peer.ID, roles Roles, notAfter time.Time) (*Credential, error) {
	return a.issueWith(to, roles, nil, notAfter)
}

// issueWith signs the credential of a peer that is let in now. Any inviter may sign any label for the hosts that it lets in.
func (a authority) issueWith(to peer.ID, roles Roles, labels map[string]string, notAfter time.Time) (*Credential, error) {
	return a.sign(&wirepb.LinkBody{Peer: []byte(to), Roles: uint32(roles), Labels: labelsToWire(labels)}, notAfter)
}

// renew signs a newer credential for the holder of an older one, with the same roles and labels. It keeps the lineage by.
func (a authority) renew(old *Credential, by []peer.ID, notAfter time.Time) (*Credential, error) {
	return a.sign(a.again(old, by), notAfter)
}

// grant signs a grant with the rights of an inviter's credential. The authority's own chain must consist of grants.
func (a authority) grant(to *Credential, by []peer.ID, notAfter time.Time) (*Credential, error) {
	body := a.again(to, by)
	body.Grant = true
	return a.sign(body, notAfter)
}

// again returns a new link with the rights of a credential. The link names the lineage by, unless the authority itself let
// the holder in.
func (a authority) again(c *Credential, by []peer.ID) *wirepb.LinkBody {
	body := &wirepb.LinkBody{Peer: []byte(c.id), Roles: uint32(c.Roles), Labels: labelsToWire(c.Labels)}
	if !slices.Equal(by, a.line()) {
		body.LetInBy = letInByToWire(by)
	}
	return body
}

// line returns the lineage of peers that the authority lets in: the authority itself, then who let it in, and so on. It is
// empty for the cluster key.
func (a authority) line() []peer.ID {
	if a.chain == nil {
		return nil
	}
	return append([]peer.ID{a.chain.id}, a.chain.lineage(0)...)
}

func (a authority) sign(b *wirepb.LinkBody, notAfter time.Time) (*Credential, error) {
	w := &wirepb.Credential{ClusterKey: a.cluster}
	if a.chain != nil {
		if len(a.chain.links) >= MaxChain || b.GetLetInBy() == nil && len(a.line()) >= MaxChain {
			return nil, ErrChainTooLong
		}
		if !a.chain.Roles.Has(RoleInviter) {
			return nil, ErrNotInviter
		}
		if !a.chain.Roles.Has(Roles(b.GetRoles())) { //nolint:gosec // checked where the link is parsed
			return nil, ErrRoles
		}
		if b.GetGrant() {
			notAfter = earlier(notAfter, linksEnd(a.chain.links))
			w.Links = a.chain.bare().toWire().GetLinks()
		} else {
			notAfter = earlier(notAfter, a.chain.NotAfter)
			chain := a.chain.toWire()
			w.Links, w.Endorsement = chain.GetLinks(), chain.GetEndorsement()
		}
	}
	cluster := clusterOf(a.cluster)
	b.NotAfter, b.Cluster = notAfter.Unix(), cluster[:]
	body, err := proto.Marshal(b)
	if err != nil {
		return nil, fmt.Errorf("p2p: sign a credential: %w", err)
	}
	own := &wirepb.Link{Body: body, Signature: ed25519.Sign(a.key, append([]byte(signCredential), body...))}
	w.Links = append([]*wirepb.Link{own}, w.Links...)
	return credentialFromWire(w)
}
