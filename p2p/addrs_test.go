package p2p

import (
	"net/netip"
	"slices"
	"testing"

	ma "github.com/multiformats/go-multiaddr"
)

func TestOnlyReachableAddressesAreAdvertised(t *testing.T) {
	bridged := map[netip.Addr]bool{netip.MustParseAddr("172.17.0.1"): true, netip.MustParseAddr("fd00::1"): true}
	for _, c := range []struct {
		name     string
		in, want []string
	}{
		{"a host on a LAN", []string{"/ip4/127.0.0.1/tcp/1", "/ip4/10.0.0.5/tcp/1", "/ip4/172.17.0.1/tcp/1", "/ip6/::1/tcp/1", "/ip6/fd00::1/tcp/1", "/ip6/fe80::1/tcp/1"}, []string{"/ip4/10.0.0.5/tcp/1"}},
		{"loopback only", []string{"/ip4/127.0.0.1/tcp/1", "/ip6/::1/udp/1/quic-v1"}, []string{"/ip4/127.0.0.1/tcp/1", "/ip6/::1/udp/1/quic-v1"}},
		{"loopback and a bridge", []string{"/ip4/127.0.0.1/tcp/1", "/ip4/172.17.0.1/tcp/1"}, []string{"/ip4/127.0.0.1/tcp/1"}},
		{"a name", []string{"/ip4/127.0.0.1/tcp/1", "/dns4/gpu1/tcp/1"}, []string{"/dns4/gpu1/tcp/1"}},
		{"none", nil, nil},
	} {
		var in []ma.Multiaddr
		for _, a := range c.in {
			in = append(in, ma.StringCast(a))
		}
		var got []string
		for _, a := range advertised(in, bridged) {
			got = append(got, a.String())
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: got %v, want %v", c.name, got, c.want)
		}
	}
	for name, want := range map[string]bool{"docker0": true, "br-12ab": true, "veth0": true, "virbr0": true, "cni0": true, "eth0": false, "enp3s0": false, "bond0": false, "ib0": false, "br0": false} {
		if isBridge(name) != want {
			t.Errorf("isBridge(%s) = %t, want isBridge(name) = %v", name, !want, want)
		}
	}
}
