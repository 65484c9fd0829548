package session

// The path of a session: the IP addresses of its two ends.
// See docs/adr, ADR 89.

import (
	"net"
	"net/netip"

	"github.com/libp2p/go-libp2p/core/network"
	ma "github.com/multiformats/go-multiaddr"
	manet "github.com/multiformats/go-multiaddr/net"

	"github.com/musterhq/muster/internal/contract"
)

// pathOf returns the path of a connection that goes straight from host to host. A session stays on its connection: if a
// relay carries it and the hosts connect directly later, the path stays empty until the session ends. The next session
// has it.
func pathOf(c network.ConnMultiaddrs) contract.Path {
	remote, ok := addressOf(c.RemoteMultiaddr())
	if !ok || !reachable(remote) {
		return contract.Path{}
	}
	local, ok := addressOf(c.LocalMultiaddr())
	if ok && local.IsUnspecified() {
		local = sourceOf(remote)
	}
	if !ok || !reachable(local) {
		return contract.Path{}
	}
	return contract.Path{Local: local.String(), Remote: remote.String()}
}

// addressOf returns the IP address of a multiaddress. It returns false for one that leads through a relay.
func addressOf(at ma.Multiaddr) (netip.Addr, bool) {
	if at == nil {
		return netip.Addr{}, false
	}
	if _, err := at.ValueForProtocol(ma.P_CIRCUIT); err == nil {
		return netip.Addr{}, false
	}
	ip, err := manet.ToIP(at)
	if err != nil {
		return netip.Addr{}, false
	}
	a, ok := netip.AddrFromSlice(ip)
	return a.Unmap(), ok
}

// sourceOf returns the address from which this host sends to another. A QUIC connection that this host has dialled does
// not tell it, because all share one socket. The UDP socket here sends nothing.
func sourceOf(remote netip.Addr) netip.Addr {
	c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(remote, 9)))
	if err != nil {
		return netip.Addr{}
	}
	defer func() { _ = c.Close() }()
	at, _ := c.LocalAddr().(*net.UDPAddr)
	return at.AddrPort().Addr().Unmap()
}

// reachable reports whether another host could reach one at an address. An address of one link has a zone, which
// differs between hosts.
func reachable(a netip.Addr) bool {
	switch {
	case !a.IsValid() || a.Zone() != "" || a.Is4In6():
		return false
	case a.IsUnspecified() || a.IsMulticast():
		return false
	}
	return a.Is4() || !a.IsLinkLocalUnicast()
}
