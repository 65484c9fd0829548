package p2p

// A revocation: a signed statement that a peer is out of the cluster, or that it is let back in.
// See docs/adr, ADR 117.

import (
	"bytes"
	"crypto/ed25519"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/libp2p/go-libp2p/core/peer"
	"google.golang.org/protobuf/proto"

	"github.com/musterhq/muster/p2p/wirepb"
)

const (
	// maxReason bounds the reason for people, in bytes.
	maxReason = 256
	// maxNumber bounds how often one member may change what it says about one peer. The cluster key may change it without
	// bound.
	maxNumber = 64
	// The forms of a revocation on the wire.
	formFirst = 0
	formNow   = 1
)

// errBadRevocation is a revocation that does not parse or whose signer had no right to sign it.
var errBadRevocation = errors.New("bad revocation")

// word is what a signer says about a peer.
type word struct {
	peer        peer.ID
	reason      string
	number      uint32 // if a signer has said several things about a peer, the greatest number holds
	back        bool   // the peer is no longer revoked
	withInvited bool   // the peers that it let in are revoked too
}

// revocation is a revocation whose form and signature are valid. Its effect depends on the credential to which it is
// applied; see standing.
type revocation struct {
	word
	at     time.Time // by the signer's clock, for people
	signer peer.ID   // empty: the cluster key
	above  []peer.ID // issuers of the signer's credential: who signed it, then who signed that one's
	first  bool      // has form 0, which older daemons understand
	legacy bool      // by a member of the previous version, which could revoke anybody; it is in force only here
	wire   *wirepb.Revocation
	place  place
}

// revocationFromWire decodes and checks a revocation. No check depends on other revocations or on the time, so all daemons
// agree.
func revocationFromWire(w *wirepb.Revocation, cluster clusterID, key ed25519.PublicKey) (revocation, error) {
	r, err := revocationParsed(w, cluster)
	if err == nil {
		err = r.verify(w, cluster, key)
	}
	if err != nil {
		return revocation{}, fmt.Errorf("%w: %w", errBadRevocation, err)
	}
	return placed(r), nil
}

func revocationParsed(w *wirepb.Revocation, cluster clusterID) (revocation, error) {
	var b wirepb.RevocationBody
	if err := proto.Unmarshal(w.GetBody(), &b); err != nil {
		return revocation{}, err
	}
	if !bytes.Equal(b.GetCluster(), cluster[:]) {
		return revocation{}, ErrWrongCluster
	}
	if len(b.GetReason()) > maxReason || !utf8.ValidString(b.GetReason()) || b.GetAt() <= 0 || b.GetAt() > maxNotAfter {
		return revocation{}, errors.New("out of range")
	}
	id, err := idFromWire(b.GetPeer())
	if err != nil {
		return revocation{}, err
	}
	return revocation{
		word: word{peer: id, reason: b.GetReason(), number: b.GetNumber(), back: b.GetBack(), withInvited: b.GetWithInvited()},
		at:   time.Unix(b.GetAt(), 0), wire: w,
	}, nil
}

// verify checks who signed, and with what right.
func (r *revocation) verify(w *wirepb.Revocation, cluster clusterID, key ed25519.PublicKey) error {
	prefix := signRevocation
	switch w.GetForm() {
	case formFirst:
		prefix, r.first = signFirst, true
		if r.number != 0 || r.back || r.withInvited {
			return errors.New("of an old form, with new fields")
		}
	case formNow:
	default:
		return fmt.Errorf("form %d of a newer version", w.GetForm())
	}
	if w.GetIssuer() != nil {
		by, err := credentialFromWire(w.GetIssuer())
		if err != nil {
			return err
		}
		if by.cluster != cluster {
			return ErrWrongCluster
		}
		if !by.Roles.Has(RoleInviter) && by.id != r.peer {
			return fmt.Errorf("%s let nobody in", by.id)
		}
		if r.number > maxNumber {
			return fmt.Errorf("number %d", r.number)
		}
		r.signer, r.above, key = by.id, by.issuers(), by.links[0].key
		r.legacy, r.first = r.first, false
	}
	if len(w.GetSignature()) != ed25519.SignatureSize || !ed25519.Verify(key, append([]byte(prefix), w.GetBody()...), w.GetSignature()) {
		return errors.New("wrong signature")
	}
	return nil
}

// revoke signs a revocation.
func (a authority) revoke(say word, now time.Time) (revocation, error) {
	cluster := clusterOf(a.cluster)
	body, err := proto.Marshal(&wirepb.RevocationBody{
		Cluster: cluster[:], Peer: []byte(say.peer), Reason: say.reason, At: now.Unix(),
		Number: say.number, Back: say.back, WithInvited: say.withInvited,
	})
	if err != nil {
		return revocation{}, fmt.Errorf("%w: %w", errBadRevocation, err)
	}
	w, prefix := &wirepb.Revocation{Body: body, Form: formNow}, signRevocation
	if a.chain != nil {
		w.Issuer = a.chain.bare().toWire() // a revocation lasts for ever, so it has no endorsement, which would end
	} else if say.number == 0 && !say.back && !say.withInvited {
		w.Form, prefix = formFirst, signFirst // older daemons understand this form too
	}
	w.Signature = ed25519.Sign(a.key, append([]byte(prefix), body...))
	return revocationFromWire(w, cluster, a.cluster)
}

// over reports whether r overrides o, which is by the same signer about the same peer. It is a total order, so every
// daemon keeps the same one of two revocations.
func (r revocation) over(o revocation) bool {
	switch {
	case r.number != o.number:
		return r.number > o.number
	case r.back != o.back:
		return o.back // an honest signer does not use a number twice; to be safe, the peer is out
	}
	return bytes.Compare(r.wire.GetBody(), o.wire.GetBody()) > 0
}
