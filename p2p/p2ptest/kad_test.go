package p2ptest

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	dht "github.com/libp2p/go-libp2p-kad-dht"
	pubsub "github.com/libp2p/go-libp2p-pubsub"
	"github.com/libp2p/go-libp2p/core/protocol"
)

// TestProtocolsWorkBehindGate checks that the DHT and gossip work on hosts with a gate as on others.
func TestProtocolsWorkBehindGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 5
		nw := New(t, n, Options{})
		ctx, cancel := context.WithCancel(t.Context())
		var tables []*dht.IpfsDHT
		var subs []*pubsub.Subscription
		var topics []*pubsub.Topic
		for _, h := range nw.Hosts {
			d, err := dht.New(h.Libp2p(), dht.ProtocolPrefix(protocol.ID("/muster/"+h.Cluster())), dht.Mode(dht.ModeServer))
			if err != nil {
				t.Fatal(err)
			}
			tables = append(tables, d)
			ps, err := pubsub.NewGossipSub(ctx, h.Libp2p())
			if err != nil {
				t.Fatal(err)
			}
			topic, err := ps.Join("x")
			if err != nil {
				t.Fatal(err)
			}
			sub, err := topic.Subscribe()
			if err != nil {
				t.Fatal(err)
			}
			topics, subs = append(topics, topic), append(subs, sub)
		}
		for i := range n - 1 {
			nw.Connect(i, i+1)
		}
		timer := time.NewTimer(3 * time.Second)
		<-timer.C
		for i, d := range tables {
			if size := d.RoutingTable().Size(); size < 1 {
				t.Errorf("host %d has %d hosts in its table, want at least 1", i, size)
			}
		}
		if err := topics[0].Publish(ctx, []byte("hello")); err != nil {
			t.Fatal(err)
		}
		m, err := subs[n-1].Next(ctx)
		if err != nil || string(m.Data) != "hello" {
			t.Errorf("got %v, %v, want string(m.Data) = %q", m, err, "hello")
		}
		cancel()
		for i := range n {
			nw.Stop(i)
			if err := tables[i].Close(); err != nil {
				t.Error(err)
			}
		}
	})
}
