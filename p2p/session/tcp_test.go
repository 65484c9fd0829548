package session

// Sessions over real TCP on loopback, where yamux instead of QUIC carries the stream, with other errors, resets and
// windows.

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p"
	"github.com/libp2p/go-libp2p/core/peerstore"
	"github.com/libp2p/go-libp2p/p2p/transport/tcp"
)

func tcpNodes(t *testing.T, cfg Config) (*node, *node) {
	var nodes []*node
	for range 2 {
		h, err := libp2p.New(
			libp2p.ListenAddrStrings("/ip4/127.0.0.1/tcp/0"), libp2p.Transport(tcp.NewTCPTransport), libp2p.DisableRelay(), libp2p.DisableMetrics(),
		)
		if err != nil {
			t.Fatal(err)
		}
		n := &node{host: h}
		n.startWith(t, cfg)
		t.Cleanup(func() { n.stop(); h.Close() })
		nodes = append(nodes, n)
	}
	nodes[0].host.Peerstore().AddAddrs(nodes[1].host.ID(), nodes[1].host.Addrs(), peerstore.PermanentAddrTTL)
	return nodes[0], nodes[1]
}

// until polls a condition in real time.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	end := time.Now().Add(time.Minute)
	for range time.Tick(5 * time.Millisecond) {
		if ok() {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("after a minute still: %s", what)
		}
	}
}

func TestSessionOverTCPKeepsOrder(t *testing.T) {
	a, b := tcpNodes(t, DefaultConfig())
	a.Want(b.id())
	until(t, "no session", func() bool { return a.isUp(b.id()) && b.isUp(a.id()) })
	var want []uint64
	for i := range uint64(5000) {
		want = append(want, i)
		if err := a.Send(b.id(), testOffer(i)); err != nil {
			t.Fatal(err)
		}
	}
	until(t, "not all arrived", func() bool { return len(b.gotOffers()) == len(want) })
	if !slices.Equal(b.gotOffers(), want) {
		t.Error("the offers arrived out of order")
	}
	b.stop()
	until(t, "still up", func() bool { return !a.isUp(b.id()) })
	if err := a.lastErr(); !errors.Is(err, ErrGoodbye) {
		t.Errorf("down for %v, want ErrGoodbye", err)
	}
	a.checkGuarantees(t)
	b.checkGuarantees(t)
}

// TestStalledReaderOverTCPIsCut fills the window of the stream long before the queue is full. The write then blocks, and its
// deadline ends the session.
func TestStalledReaderOverTCPIsCut(t *testing.T) {
	cfg := DefaultConfig()
	cfg.PingEvery, cfg.Silence = 100*time.Millisecond, 500*time.Millisecond
	a, b := tcpNodes(t, cfg)
	b.stall = make(chan struct{})
	defer close(b.stall)
	a.Want(b.id())
	until(t, "no session", func() bool { return a.isUp(b.id()) && b.isUp(a.id()) })
	for i := range uint64(20_000) { // 2 MiB, a quarter of the queue
		err := a.Send(b.id(), testOffer(i))
		if errors.Is(err, ErrNoSession) {
			break // on a slow machine the session has already ended
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	until(t, "still up", func() bool { return a.lastErr() != nil })
	if err := a.lastErr(); !errors.Is(err, ErrBusy) {
		t.Errorf("down for %v, want ErrBusy", err)
	}
}

// TestGivenUpSessionIsNotABrokenConnection checks that a session that was given up differs from a broken connection,
// over TCP as well. A killed daemon has not given its session up.
func TestGivenUpSessionIsNotABrokenConnection(t *testing.T) {
	cfg := DefaultConfig()
	cfg.IdleAfter = time.Millisecond
	a, b := tcpNodes(t, cfg)
	a.Want(b.id())
	until(t, "no session", func() bool { return a.isUp(b.id()) && b.isUp(a.id()) })
	a.Unwant(b.id())
	until(t, "still up", func() bool { return !a.isUp(b.id()) && !b.isUp(a.id()) })
	for _, n := range []*node{a, b} {
		if err := n.lastErr(); !errors.Is(err, ErrUnused) {
			t.Errorf("down for %v, want ErrUnused", err)
		}
	}
	a.Want(b.id())
	until(t, "no session", func() bool { return a.isUp(b.id()) && b.isUp(a.id()) })
	if err := b.host.Network().ClosePeer(a.host.ID()); err != nil {
		t.Fatal(err)
	}
	until(t, "still up", func() bool { return a.downs() == 2 })
	if err := a.lastErr(); errors.Is(err, ErrUnused) {
		t.Errorf("a broken connection: got %v, want another error than ErrUnused", err)
	}
}
