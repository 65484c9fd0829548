package p2p

// Visits: what the audit log is told of those who come to this daemon, and of members that do what they may not.
// See docs/adr, ADR 120.

import (
	"net/netip"

	"github.com/libp2p/go-libp2p/core/peer"
	ma "github.com/multiformats/go-multiaddr"

	"github.com/musterhq/muster/job"
)

// Auditor is told of visits.
type Auditor interface {
	// Visited does not block. It is called for every refusal, and so as often as strangers care to come.
	Visited(v Visit)
}

// Act is what a visitor wanted.
type Act string

// The acts.
const (
	Entering Act = "hello"  // to be admitted with a credential; only refusals are told
	Joining  Act = "join"   // a credential for a token
	Renewing Act = "renew"  // a newer credential
	Opening  Act = "stream" // a stream of a protocol; only refusals are told
)

// Visit is what one visitor wanted, and whether it was given.
type Visit struct {
	Act    Act
	Peer   job.Peer // it has proven that it has the key
	Addr   string
	IP     netip.Addr // of Addr; invalid if there is none
	Name   string     // what it calls itself
	Roles  Roles      // that it was given
	Labels map[string]string
	Object string // name of the invitation, or protocol
	Err    error  // nil: it was given
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
