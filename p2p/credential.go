package p2p

// Credentials: the roles of a member, how long they last, and who signed them.

import (
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"
	"google.golang.org/protobuf/proto"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/p2p/wirepb"
)

// Roles is a set of roles of a member.
type Roles uint8

// The roles.
const (
	RoleWorker Roles = 1 << iota
	RoleScheduler
	RoleInviter
	AllRoles = RoleWorker | RoleScheduler | RoleInviter
	// DefaultRoles are the roles of an invitation that names none. RoleInviter is not among them: it must be named.
	DefaultRoles = RoleWorker | RoleScheduler
)

type roleName struct {
	role Roles
	name string
}

var roleNames = []roleName{{RoleWorker, "worker"}, {RoleScheduler, "scheduler"}, {RoleInviter, "inviter"}}

// Has reports whether r contains all of want.
func (r Roles) Has(want Roles) bool { return r&want == want }

// Names returns the names of the roles.
func (r Roles) Names() []string {
	var names []string
	for _, n := range roleNames {
		if r.Has(n.role) {
			names = append(names, n.name)
		}
	}
	return names
}

// MarshalJSON encodes the roles as a list of names.
func (r Roles) MarshalJSON() ([]byte, error) { return json.Marshal(append([]string{}, r.Names()...)) }

// UnmarshalJSON parses a list of names.
func (r *Roles) UnmarshalJSON(b []byte) error {
	var names []string
	if err := json.Unmarshal(b, &names); err != nil {
		return err
	}
	*r = 0
	if len(names) == 0 {
		return nil
	}
	parsed, err := ParseRoles(names)
	*r = parsed
	return err
}

// String returns the names separated by commas: "worker,scheduler".
func (r Roles) String() string { return strings.Join(r.Names(), ",") }

// ParseRoles parses names of roles; an empty list means DefaultRoles.
func ParseRoles(names []string) (Roles, error) {
	if len(names) == 0 {
		return DefaultRoles, nil
	}
	var r Roles
	for _, name := range names {
		i := slices.IndexFunc(roleNames, func(n roleName) bool { return n.name == name })
		if i < 0 {
			return 0, fmt.Errorf("role %.20q: want one of worker, scheduler, inviter", name)
		}
		r |= roleNames[i].role
	}
	return r, nil
}

// Bounds of a credential. They limit the work of verifying a stranger's credential.
const (
	// MaxChain bounds the links of a credential: its own and its issuers'.
	MaxChain = 4
	// maxCredential bounds the bytes of a credential without its endorsement. A credential with a full chain and no labels
	// has about 800.
	maxCredential = 2 << 10
	// maxPeerID bounds the bytes of a peer ID. A peer ID with an Ed25519 key has 38.
	maxPeerID = 64
	// maxNotAfter is the last second of the year 9999, the latest time that JSON can hold.
	maxNotAfter = 253402300799
)

// Each kind of statement is signed with its own prefix, so that a signature on one kind cannot be used for another.
const (
	signCredential = "muster credential 1\n"
	signRevocation = "muster revocation 2\n"
	// signEndorsement begins endorsements.
	signEndorsement = "muster endorsement 1\n"
	// signFirst begins revocations of form 0.
	signFirst = "muster revocation 1\n"
)

// ErrBadCredential is a credential that does not parse or whose signatures are wrong. The peer is broken or lies.
var ErrBadCredential = errors.New("bad credential")

// Credential is a credential whose form and signatures are valid for its own cluster. The gate also checks that it
// belongs to this daemon's cluster, has not expired and is not revoked.
type Credential struct {
	Peer  job.Peer
	Roles Roles
	// NotAfter is the earliest end of all links and of the endorsement: each must be current. For a grant without an
	// endorsement it is 1970.
	NotAfter time.Time
	Cluster  string
	Labels   map[string]string // labels that the issuer has signed; read-only

	id      peer.ID
	cluster clusterID
	key     ed25519.PublicKey // public key of the cluster
	links   []link            // the holder's own link first
	// endorsement keeps the first grant among the links current. It is nil if no link is a grant, or if the grant is not
	// endorsed.
	endorsement *endorsement
}

// link is one statement of the chain, encoded and decoded.
type link struct {
	peer     peer.ID
	key      ed25519.PublicKey // key of the peer
	roles    Roles
	notAfter int64
	labels   map[string]string
	// letInBy is the peer's lineage if it does not follow from the links above: who let the peer in, then who let that one
	// in, and so on; see lineage.
	letInBy []peer.ID
	told    bool // letInBy applies; if it is empty, the cluster key let the peer in
	grant   bool // the link lasts for years, and needs an endorsement
	wire    *wirepb.Link
}

// sameRights reports whether both credentials give the same roles and labels.
func (c *Credential) sameRights(d *Credential) bool {
	return c.Roles == d.Roles && maps.Equal(c.Labels, d.Labels)
}

// InvitersEnd returns when the first inviter's credential in the chain ends; the holder's own counts if the holder is an
// inviter. It returns zero if there is none: the holder is no inviter, and the cluster key signed its credential.
func (c *Credential) InvitersEnd() (end time.Time) {
	for _, l := range c.links {
		if at := time.Unix(l.notAfter, 0); l.roles.Has(RoleInviter) && (end.IsZero() || at.Before(end)) {
			end = at
		}
	}
	if c.endorsement != nil {
		end = earlier(end, c.endorsement.end())
	}
	return end
}

// issuers returns the peers that vouch for the holder.
func (c *Credential) issuers() []peer.ID {
	ids := make([]peer.ID, 0, len(c.links)-1)
	for _, l := range c.links[1:] {
		ids = append(ids, l.peer)
	}
	return ids
}

// lineage returns who let in the peer of link i, then who let that one in, and so on up to the cluster key, which is not
// listed. These peers may revoke the peer. A peer that only renewed the link may not.
func (c *Credential) lineage(i int) []peer.ID { return lineageOf(c.links, i) }

// lineageOf is lineage for the links of a chain. If a link does not say who let its peer in, its signer did, which is the
// peer of the next link.
func lineageOf(links []link, i int) (by []peer.ID) {
	for ; !links[i].told; i++ {
		if i+1 == len(links) {
			return by
		}
		by = append(by, links[i+1].peer)
	}
	return append(by, links[i].letInBy...)
}

// direct reports whether the peer that let the holder in has signed the credential. Then the signatures prove the
// lineage. In other credentials the lineage is only what the signer claims.
func (c *Credential) direct() bool { return !c.links[0].told }

func (c *Credential) toWire() *wirepb.Credential {
	w := &wirepb.Credential{ClusterKey: c.key}
	for _, l := range c.links {
		w.Links = append(w.Links, l.wire)
	}
	if c.endorsement != nil {
		w.Endorsement = c.endorsement.wire
	}
	return w
}

func (c *Credential) encode() []byte {
	b, err := proto.Marshal(c.toWire())
	if err != nil {
		panic(err) // bytes and numbers only: it cannot fail
	}
	return b
}

// ParseCredential decodes and verifies a credential.
func ParseCredential(b []byte) (*Credential, error) {
	if len(b) == 0 || len(b) > maxCredential+maxEndorsement {
		return nil, fmt.Errorf("%w: %d bytes, want 1 to %d", ErrBadCredential, len(b), maxCredential+maxEndorsement)
	}
	var w wirepb.Credential
	if err := proto.Unmarshal(b, &w); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrBadCredential, err)
	}
	return credentialFromWire(&w)
}

// credentialFromWire decodes a credential and checks its form and signatures; the result is trusted.
func credentialFromWire(w *wirepb.Credential) (*Credential, error) {
	c, err := chainFromWire(w)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrBadCredential, err)
	}
	return c, nil
}

func chainFromWire(w *wirepb.Credential) (*Credential, error) {
	size := proto.Size(w.GetEndorsement())
	if len(w.GetClusterKey()) != ed25519.PublicKeySize || size > maxEndorsement || proto.Size(w)-size > maxCredential {
		return nil, errors.New("sizes out of range")
	}
	c := &Credential{key: w.GetClusterKey(), cluster: clusterOf(w.GetClusterKey())}
	var err error
	if c.links, err = linksFromWire(w.GetLinks(), c.cluster, c.key); err != nil {
		return nil, err
	}
	if w.GetEndorsement() != nil {
		if c.endorsement, err = endorsementFromWire(w.GetEndorsement(), c); err != nil {
			return nil, fmt.Errorf("endorsement: %w", err)
		}
	}
	own := c.links[0]
	c.id, c.Peer, c.Roles = own.peer, job.Peer(own.peer.String()), own.roles
	c.NotAfter, c.Cluster, c.Labels = c.ends(), c.cluster.String(), own.labels
	return c, nil
}

// linksFromWire decodes a chain and checks its form and signatures. The cluster key must have signed the last link.
func linksFromWire(list []*wirepb.Link, cluster clusterID, key ed25519.PublicKey) ([]link, error) {
	if n := len(list); n < 1 || n > MaxChain {
		return nil, fmt.Errorf("%d links, want 1 to %d", n, MaxChain)
	}
	links := make([]link, 0, len(list))
	for i, w := range list {
		l, err := linkFromWire(w, cluster)
		if err != nil {
			return nil, fmt.Errorf("link %d: %w", i, err)
		}
		links = append(links, l)
	}
	for i, l := range links {
		signer, limit := key, AllRoles
		if i+1 < len(links) {
			up := links[i+1]
			signer, limit = up.key, up.roles
			if l.grant && !up.grant {
				return nil, fmt.Errorf("link %d: a grant, and its issuer shows none", i)
			}
		}
		if !limit.Has(l.roles | RoleInviter) {
			return nil, fmt.Errorf("link %d: its issuer cannot give %s", i, l.roles)
		}
		if len(lineageOf(links, i)) >= MaxChain {
			return nil, fmt.Errorf("link %d: let in through too many", i)
		}
		if !ed25519.Verify(signer, append([]byte(signCredential), l.wire.GetBody()...), l.wire.GetSignature()) {
			return nil, fmt.Errorf("link %d: wrong signature", i)
		}
	}
	return links, nil
}

func linkFromWire(w *wirepb.Link, cluster clusterID) (link, error) {
	if len(w.GetSignature()) != ed25519.SignatureSize {
		return link{}, errors.New("signature has the wrong size")
	}
	var b wirepb.LinkBody
	if err := proto.Unmarshal(w.GetBody(), &b); err != nil {
		return link{}, err
	}
	id, err := idFromWire(b.GetPeer())
	if err != nil {
		return link{}, err
	}
	by, told, err := letInByFromWire(b.GetLetInBy())
	if err != nil {
		return link{}, err
	}
	key, err := edKey(id)
	if err != nil {
		return link{}, err
	}
	if b.GetRoles() == 0 || b.GetRoles()&^uint32(AllRoles) != 0 {
		return link{}, fmt.Errorf("roles %#x", b.GetRoles())
	}
	if b.GetGrant() && !Roles(b.GetRoles()).Has(RoleInviter) { //nolint:gosec // checked above
		return link{}, errors.New("a grant for one that is no inviter")
	}
	if b.GetNotAfter() <= 0 || b.GetNotAfter() > maxNotAfter {
		return link{}, fmt.Errorf("time %d", b.GetNotAfter())
	}
	if string(b.GetCluster()) != string(cluster[:]) {
		return link{}, errors.New("links belong to two clusters")
	}
	labels, err := labelsFromWire(b.GetLabels())
	if err != nil {
		return link{}, err
	}
	wire := &wirepb.Link{Body: w.GetBody(), Signature: w.GetSignature()}
	return link{
		peer: id, key: key, roles: Roles(b.GetRoles()), notAfter: b.GetNotAfter(), labels: labels, letInBy: by, told: told,
		grant: b.GetGrant(), wire: wire,
	}, nil
}

func idFromWire(b []byte) (peer.ID, error) {
	if len(b) > maxPeerID {
		return "", errors.New("peer id too long")
	}
	return peer.IDFromBytes(b)
}

func letInByFromWire(list [][]byte) (by []peer.ID, told bool, err error) {
	if len(list) >= MaxChain {
		return nil, false, fmt.Errorf("let in by %d peers", len(list))
	}
	if len(list) == 1 && len(list[0]) == 0 {
		return nil, true, nil
	}
	for _, b := range list {
		id, err := idFromWire(b)
		if err != nil {
			return nil, false, err
		}
		by = append(by, id)
	}
	return by, len(list) > 0, nil
}

func letInByToWire(by []peer.ID) [][]byte {
	if len(by) == 0 {
		return [][]byte{{}}
	}
	list := make([][]byte, 0, len(by))
	for _, id := range by {
		list = append(list, []byte(id))
	}
	return list
}
