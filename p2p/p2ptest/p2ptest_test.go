package p2ptest

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/p2p/protocol/ping"
)

func TestPingTakesTheSimulatedLatency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nw := New(t, 3, Options{Latency: 20 * time.Millisecond})
		start := time.Now()
		nw.Mesh()
		t.Logf("a mesh of 3 took %s", time.Since(start))
		synctest.Wait()
		for i, h := range nw.Hosts {
			up := 0
			for _, m := range h.Members() {
				if m.Connected {
					up++
				}
			}
			if up != 2 {
				t.Errorf("host %d has %d members connected, want 2", i, up)
			}
		}
		id, err := peer.Decode(string(nw.Peer(1)))
		if err != nil {
			t.Fatal(err)
		}
		r := <-ping.Ping(t.Context(), nw.Hosts[0].Libp2p(), id)
		if r.Error != nil || r.RTT < 40*time.Millisecond || r.RTT > 45*time.Millisecond {
			t.Errorf("ping = %v, %v, want 40 ms", r.RTT, r.Error)
		}
	})
}
