package p2p

// The addresses that this daemon tells others: none that only this host can reach.

import (
	"net"
	"net/netip"
	"strings"

	ma "github.com/multiformats/go-multiaddr"
	manet "github.com/multiformats/go-multiaddr/net"
)

// bridges are the names that container and VM networks give their interfaces.
// Their addresses mean another machine on each host.
var bridges = []string{"docker", "br-", "veth", "virbr", "cni", "flannel", "cali", "podman", "lxcbr", "lxdbr", "vnet", "kube-", "nerdctl"}

// bridgeAddrs lists the addresses of such interfaces on this host.
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

// advertised drops the addresses of bridges, link-local ones, and, unless
// there is nothing else, loopback.
func advertised(addrs []ma.Multiaddr, bridged map[netip.Addr]bool) []ma.Multiaddr {
	var loopback, rest []ma.Multiaddr
	for _, a := range addrs {
		ip, err := manet.ToIP(a)
		if err != nil {
			rest = append(rest, a) // a name or a relay
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
