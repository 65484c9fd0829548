package p2p

// Visits: what the audit log records about peers that want to be admitted, and about members that are refused a protocol.
// See docs/adr, ADR 120.

import (
	"net/netip"

	"github.com/libp2p/go-libp2p/core/peer"
	ma "github.com/multiformats/go-multiaddr"

	"github.com/musterhq/muster/job"
)

// Auditor records visits.
type Auditor interface {
	// Visited does not block. It is called for every refusal, so strangers decide how often it is called.
	Visited(v Visit)
}

// Act is what a visitor wanted.
type Act string

// The acts.
const (
	Entering Act = "hello"  // to be admitted with a credential; only refusals are recorded
	Joining  Act = "join"   // a credential for a token
	Renewing Act = "renew"  // a newer credential
	Opening  Act = "stream" // a stream of a protocol; only refusals are recorded
)

// Visit is one request of a visitor, and whether it was granted.
type Visit struct {
	Act    Act
	Peer   job.Peer // has proven that it has the key
	Addr   string
	IP     netip.Addr // of Addr; invalid if Addr has none
	Name   string     // as the visitor calls itself
	Roles  Roles      // roles that it was given, or that a member has which was refused a protocol
	Labels map[string]string
	Object string // name of the invitation, or the protocol
	Err    error  // why the request was refused; nil: it was granted
}

// visits tells an Auditor, if there is one.
type visits struct{ to Auditor }

func (a visits) tell(act Act, p peer.ID, from ma.Multiaddr, v Visit) {
	if a.to == nil {
		return
	}
	v.Act, v.Peer = act, job.Peer(p.String())
	if from != nil {
		v.Addr, v.IP = from.String(), addrOf(from)
	}
	a.to.Visited(v)
}
