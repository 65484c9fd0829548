package p2p

import (
	"testing"
	"time"

	ma "github.com/multiformats/go-multiaddr"
)

func TestTCPIsDialledFirstWithinASite(t *testing.T) {
	delays := func(texts ...string) map[string]time.Duration {
		var addrs []ma.Multiaddr
		for _, text := range texts {
			addrs = append(addrs, ma.StringCast(text))
		}
		got := map[string]time.Duration{}
		for _, r := range dialOrder(addrs) {
			got[r.Addr.String()] = r.Delay
		}
		if len(got) != len(texts) {
			t.Errorf("got %d addresses to dial, want %d", len(got), len(texts))
		}
		return got
	}
	const siteTCP, siteQUIC = "/ip4/10.0.0.1/tcp/1", "/ip4/10.0.0.1/udp/1/quic-v1"
	const farTCP, farQUIC = "/ip4/1.2.3.4/tcp/1", "/ip4/1.2.3.4/udp/1/quic-v1"
	if d := delays(siteTCP, siteQUIC, "/ip4/127.0.0.1/tcp/1"); d[siteTCP] != 0 || d[siteQUIC] != siteDelay {
		t.Errorf("delays within a site: got %v, want TCP at once and QUIC later", d)
	}
	if d := delays(siteQUIC); d[siteQUIC] != 0 {
		t.Errorf("QUIC alone waits %s, want 0", d[siteQUIC])
	}
	if d := delays(farTCP, farQUIC); d[farQUIC] > d[farTCP] {
		t.Errorf("delays far away: got %v, want QUIC no later than TCP", d)
	}
}
