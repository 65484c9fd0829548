package p2p

// Credentials: the roles of a member, until when they last, and who signed them.

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
	// DefaultRoles are those of an invitation that names none. Who may let others in is said for each host.
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
	// maxCredential bounds the bytes of a credential; one with a full chain has about 800.
	maxCredential = 2 << 10
	// maxPeerID bounds the bytes of a peer ID; one with an Ed25519 key has 38.
	maxPeerID = 64
	// maxNotAfter is the last second of the year 9999, the latest time that JSON can hold.
	maxNotAfter = 253402300799
)

// Each kind of statement is signed with its own prefix, so that a signature on one cannot be used for the other.
const (
	signCredential = "muster credential 1\n"
	signRevocation = "muster revocation 2\n"
	// signFirst begins revocations of form 0.
	signFirst = "muster revocation 1\n"
)

// ErrBadCredential is a credential that does not parse or whose signatures are wrong. The peer is broken or lies.
var ErrBadCredential = errors.New("bad credential")

// Credential is a credential whose form and signatures are valid for its own cluster. The gate checks in addition
// that it belongs to our cluster, has not expired and is not revoked.
type Credential struct {
	Peer  job.Peer
	Roles Roles
	// NotAfter is the earliest end of a link: each must be current.
	NotAfter time.Time
	Cluster  string
	Labels   map[string]string // that its issuer vouches for; nobody may change it

	id      peer.ID
	cluster clusterID
	key     ed25519.PublicKey // public key of the cluster
	links   []link            // the holder's own link first
}

// link is one statement of the chain, encoded and decoded.
type link struct {
	peer     peer.ID
	key      ed25519.PublicKey // key of the peer
	roles    Roles
	notAfter int64
	labels   map[string]string
	// letInBy is who let the peer in, then who let that one in, if it does not follow from the links; see lineage.
	letInBy []peer.ID
	told    bool // letInBy applies; it may be empty: the cluster key let the peer in
	wire    *wirepb.Link
}

// sameRights reports whether both credentials give the same roles and labels.
func (c *Credential) sameRights(d *Credential) bool {
	return c.Roles == d.Roles && maps.Equal(c.Labels, d.Labels)
}

// InvitersEnd returns when the first credential of an inviter in the chain ends, the holder's own included; zero if there is
// none, because the cluster key signed that of a host that is no inviter.
func (c *Credential) InvitersEnd() (end time.Time) {
	for _, l := range c.links {
		if at := time.Unix(l.notAfter, 0); l.roles.Has(RoleInviter) && (end.IsZero() || at.Before(end)) {
			end = at
		}
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

// lineage returns who let the peer of a link in, then who let that one in, up to the cluster key, which is not listed.
// These may revoke it. Who renewed the link may not.
func (c *Credential) lineage(i int) []peer.ID {
	if c.links[i].told {
		return c.links[i].letInBy
	}
	return c.issuers()[i:]
}

// direct reports whether a credential was signed by who let its holder in. Then its signatures prove its lineage; in
// others the lineage is what the signer says.
func (c *Credential) direct() bool { return !c.links[0].told }

func (c *Credential) toWire() *wirepb.Credential {
	w := &wirepb.Credential{ClusterKey: c.key}
	for _, l := range c.links {
		w.Links = append(w.Links, l.wire)
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
	if len(b) == 0 || len(b) > maxCredential {
		return nil, fmt.Errorf("%w: %d bytes, want 1 to %d", ErrBadCredential, len(b), maxCredential)
	}
	var w wirepb.Credential
	if err := proto.Unmarshal(b, &w); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrBadCredential, err)
	}
	return credentialFromWire(&w)
}

// credentialFromWire checks form and signatures; the result is trusted.
func credentialFromWire(w *wirepb.Credential) (*Credential, error) {
	c, err := chainFromWire(w)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrBadCredential, err)
	}
	return c, nil
}

func chainFromWire(w *wirepb.Credential) (*Credential, error) {
	if n := len(w.GetLinks()); n < 1 || n > MaxChain {
		return nil, fmt.Errorf("%d links, want 1 to %d", n, MaxChain)
	}
	if len(w.GetClusterKey()) != ed25519.PublicKeySize || proto.Size(w) > maxCredential {
		return nil, errors.New("sizes out of range")
	}
	c := &Credential{key: w.GetClusterKey(), cluster: clusterOf(w.GetClusterKey())}
	for i, lw := range w.GetLinks() {
		l, err := linkFromWire(lw, c.cluster)
		if err != nil {
			return nil, fmt.Errorf("link %d: %w", i, err)
		}
		c.links = append(c.links, l)
	}
	for i, l := range c.links {
		signer, limit := c.key, AllRoles
		if i+1 < len(c.links) {
			up := c.links[i+1]
			signer, limit = up.key, up.roles
		}
		if !limit.Has(l.roles | RoleInviter) {
			return nil, fmt.Errorf("link %d: its issuer cannot give %s", i, l.roles)
		}
		if !ed25519.Verify(signer, append([]byte(signCredential), l.wire.GetBody()...), l.wire.GetSignature()) {
			return nil, fmt.Errorf("link %d: wrong signature", i)
		}
	}
	own := c.links[0]
	c.id, c.Peer, c.Roles = own.peer, job.Peer(own.peer.String()), own.roles
	first := own.notAfter
	for _, l := range c.links {
		first = min(first, l.notAfter)
	}
	c.NotAfter, c.Cluster, c.Labels = time.Unix(first, 0), c.cluster.String(), own.labels
	return c, nil
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
	return link{peer: id, key: key, roles: Roles(b.GetRoles()), notAfter: b.GetNotAfter(), labels: labels, letInBy: by, told: told, wire: wire}, nil
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

// authority is what signs in a cluster's name: the cluster key itself, or a daemon's key together with the credential
// that makes the daemon an inviter.
type authority struct {
	key     ed25519.PrivateKey
	cluster ed25519.PublicKey
	chain   *Credential // nil for the cluster key
}

// issue signs the credential of a peer that is let in now, without labels. It ends with the authority's own at the latest.
func (a authority) issue(to peer.ID, roles Roles, notAfter time.Time) (*Credential, error) {
	return a.issueWith(to, roles, nil, notAfter)
}

// issueWith signs the credential of a peer that is let in now. Any inviter may sign any label for the hosts that it lets in.
func (a authority) issueWith(to peer.ID, roles Roles, labels map[string]string, notAfter time.Time) (*Credential, error) {
	return a.sign(&wirepb.LinkBody{Peer: []byte(to), Roles: uint32(roles), Labels: labelsToWire(labels)}, notAfter)
}

// renew signs a newer credential for the holder of an older one, with the same labels. It still says who let the holder in.
func (a authority) renew(old *Credential, by []peer.ID, notAfter time.Time) (*Credential, error) {
	body := &wirepb.LinkBody{Peer: []byte(old.id), Roles: uint32(old.Roles), Labels: labelsToWire(old.Labels)}
	var mine []peer.ID
	if a.chain != nil {
		mine = append([]peer.ID{a.chain.id}, a.chain.issuers()...)
	}
	if !slices.Equal(by, mine) {
		body.LetInBy = letInByToWire(by)
	}
	return a.sign(body, notAfter)
}

func (a authority) sign(b *wirepb.LinkBody, notAfter time.Time) (*Credential, error) {
	w := &wirepb.Credential{ClusterKey: a.cluster}
	if a.chain != nil {
		if len(a.chain.links) >= MaxChain {
			return nil, ErrChainTooLong
		}
		if !a.chain.Roles.Has(RoleInviter) {
			return nil, ErrNotInviter
		}
		if !a.chain.Roles.Has(Roles(b.GetRoles())) { //nolint:gosec // checked where the link is parsed
			return nil, ErrRoles
		}
		if a.chain.NotAfter.Before(notAfter) {
			notAfter = a.chain.NotAfter
		}
		w.Links = a.chain.toWire().GetLinks()
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
