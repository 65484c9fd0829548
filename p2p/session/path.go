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

// pathOf returns the path of a direct connection, and an empty path if a relay carries it. A session stays on its
// connection: if the hosts later connect directly, the path stays empty until the session ends. The next session has a
// path.
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
// not say it, because all these connections share one socket. The UDP socket that is opened here sends nothing.
func sourceOf(remote netip.Addr) netip.Addr {
	c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(remote, 9)))
	if err != nil {
		return netip.Addr{}
	}
	defer func() { _ = c.Close() }()
	at, _ := c.LocalAddr().(*net.UDPAddr)
	return at.AddrPort().Addr().Unmap()
}

// reachable reports whether other hosts could reach a host at this address. An IPv6 link-local address is not reachable:
// it needs a zone, which differs between hosts.
func reachable(a netip.Addr) bool {
	switch {
	case !a.IsValid() || a.Zone() != "" || a.Is4In6():
		return false
	case a.IsUnspecified() || a.IsMulticast():
		return false
	}
	return a.Is4() || !a.IsLinkLocalUnicast()
}
