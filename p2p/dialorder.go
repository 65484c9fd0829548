package p2p

// The order in which a peer's addresses are dialled.

import (
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/p2p/net/swarm"
	ma "github.com/multiformats/go-multiaddr"
	manet "github.com/multiformats/go-multiaddr/net"
)

// siteDelay is how long the other transports of a private address wait for TCP. It is far longer than a handshake
// within a site takes.
const siteDelay = 300 * time.Millisecond

// dialOrder prefers TCP within a site: the end of a process is noticed at once, and a small message costs a third
// less CPU. For public addresses it keeps the order of libp2p, which prefers QUIC for its shorter handshake.
func dialOrder(addrs []ma.Multiaddr) []network.AddrDelay {
	var public []ma.Multiaddr
	var ranked []network.AddrDelay
	for _, a := range addrs {
		switch _, err := a.ValueForProtocol(ma.P_TCP); {
		case manet.IsPublicAddr(a):
			public = append(public, a)
		case err == nil:
			ranked = append(ranked, network.AddrDelay{Addr: a})
		default:
			ranked = append(ranked, network.AddrDelay{Addr: a, Delay: siteDelay})
		}
	}
	if len(ranked) > 0 && allDelayed(ranked) { // there is nothing to wait for
		for i := range ranked {
			ranked[i].Delay = 0
		}
	}
	return append(ranked, swarm.DefaultDialRanker(public)...)
}

func allDelayed(ranked []network.AddrDelay) bool {
	for _, r := range ranked {
		if r.Delay == 0 {
			return false
		}
	}
	return true
}
