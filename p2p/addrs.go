package p2p

// The addresses that this daemon announces. Addresses that only this host can reach are left out.

import (
	"net"
	"net/netip"
	"strings"

	ma "github.com/multiformats/go-multiaddr"
	manet "github.com/multiformats/go-multiaddr/net"
)

// bridges are prefixes of interface names of container and VM networks. Many hosts have the same address on such an
// interface, so it does not lead to this host.
var bridges = []string{"docker", "br-", "veth", "virbr", "cni", "flannel", "cali", "podman", "lxcbr", "lxdbr", "vnet", "kube-", "nerdctl"}

// bridgeAddrs returns the addresses of such interfaces on this host.
func bridgeAddrs() map[netip.Addr]bool {
	ifaces, err := net.Interfaces()
	if err != nil {
		return nil
	}
	found := map[netip.Addr]bool{}
	for _, i := range ifaces {
		if !isBridge(i.Name) {
			continue
		}
		addrs, err := i.Addrs()
		if err != nil {
			continue
		}
		for _, a := range addrs {
			if p, err := netip.ParsePrefix(a.String()); err == nil {
				found[p.Addr().Unmap()] = true
			}
		}
	}
	return found
}

func isBridge(name string) bool {
	for _, b := range bridges {
		if strings.HasPrefix(name, b) {
			return true
		}
	}
	return false
}

// advertised drops addresses of bridges and link-local addresses. It drops loopback addresses unless there are no
// others.
func advertised(addrs []ma.Multiaddr, bridged map[netip.Addr]bool) []ma.Multiaddr {
	var loopback, rest []ma.Multiaddr
	for _, a := range addrs {
		ip, err := manet.ToIP(a)
		if err != nil {
			rest = append(rest, a) // a DNS name or a relay
			continue
		}
		addr, _ := netip.AddrFromSlice(ip)
		switch addr = addr.Unmap(); {
		case addr.IsLoopback():
			loopback = append(loopback, a)
		case bridged[addr] || addr.IsLinkLocalUnicast():
		default:
			rest = append(rest, a)
		}
	}
	if len(rest) == 0 {
		return loopback
	}
	return rest
}
