package p2p_test

// The guard enforces each row of the table of protocols.

import (
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/protocol"

	"github.com/musterhq/muster/p2p"
	"github.com/musterhq/muster/p2p/p2ptest"
)

func call(t *testing.T, from *p2p.Host, to peer.ID, id protocol.ID) error {
	t.Helper()
	s, err := from.Libp2p().NewStream(t.Context(), to, id)
	if err != nil {
		return err
	}
	if err := s.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		return err
	}
	if _, err := s.Write([]byte("x")); err != nil {
		return err
	}
	if err := s.CloseWrite(); err != nil {
		return err
	}
	_, err = io.ReadAll(s)
	return err
}

func TestGuardEnforcesTheTableOfProtocols(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen, log := logger()
		nw := p2ptest.New(t, 2, p2ptest.Options{Log: log})
		a, b := nw.Hosts[0], nw.Hosts[1]
		if err := a.Handle("/muster/other/1", func(network.Stream) {}); !errors.Is(err, p2p.ErrNoProtocol) {
			t.Errorf("a protocol without a row: got %v, want p2p.ErrNoProtocol", err)
		}
		served := 0
		if err := a.Handle(p2p.SessionID, func(s network.Stream) {
			served++
			s.Close()
		}); err != nil {
			t.Fatal(err)
		}
		if err := a.Handle(p2p.HTTPID, func(network.Stream) { panic("a bug") }); err != nil {
			t.Fatal(err)
		}
		nw.Connect(1, 0)
		synctest.Wait()
		id := a.Libp2p().ID()
		if err := call(t, b, id, p2p.SessionID); err != nil {
			t.Errorf("session: got %v, want no error", err)
		}
		if err := call(t, b, id, p2p.HTTPID); err == nil {
			t.Error("a handler that panicked answered")
		}
		if len(seen.Lines("level=ERROR", "panicked", "a bug")) != 1 {
			t.Error("the panic is not in the log")
		}
		refused := 0
		for range 100 {
			if err := call(t, b, id, p2p.SessionID); err != nil {
				refused++
			}
		}
		var row p2p.Protocol
		for _, p := range p2p.Protocols() {
			if p.ID == p2p.SessionID {
				row = p
			}
		}
		if refused < 100-row.Burst-10 || served < row.Burst {
			t.Errorf("of 100 calls at a burst of %d: got %d served and %d refused, want at least %d and %d", row.Burst, served, refused, row.Burst, 100-row.Burst-10)
		}
		pass(time.Minute)
		if err := call(t, b, id, p2p.SessionID); err != nil {
			t.Errorf("session a minute later: %v", err)
		}
		// A stream of a protocol with a deadline ends by itself if it is never used.
		s, err := b.Libp2p().NewStream(t.Context(), id, p2p.RevokedID)
		if err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		if _, err := s.Write([]byte{5}); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadAll(s); err == nil || time.Since(begin) < 20*time.Second || time.Since(begin) > 40*time.Second {
			t.Errorf("a stalled stream ended after %s with %v, want 20 to 40 s and an error", time.Since(begin), err)
		}
	})
}

func TestProtocolTableIsComplete(t *testing.T) {
	ids := map[protocol.ID]bool{}
	for _, p := range p2p.Protocols() {
		if ids[p.ID] || p.What == "" || p.MaxMessage == 0 || (p.Access != p2p.Anyone && p.Access != p2p.Members) {
			t.Errorf("row %+v, want a unique protocol with a description, a bound and an access", p)
		}
		ids[p.ID] = true
		if p.Access == p2p.Anyone && p.ID != p2p.HelloID && p.ID != p2p.JoinID {
			t.Errorf("%s is open to anyone, want members only", p.ID)
		}
		if !p.Library && (p.PerSecond == 0 || p.Burst == 0) {
			t.Errorf("%s has no rate, want one", p.ID)
		}
	}
}

func TestSubscriptionKeepsTheLastState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nw := p2ptest.New(t, 2, p2ptest.Options{Strangers: 2})
		sub := nw.Hosts[1].Subscribe()
		defer sub.Close()
		inv := invite(t, nw.Hosts[0], time.Hour, 1, p2p.AllRoles)
		if err := nw.Hosts[1].Join(t.Context(), inv.Bootstrap, inv.Token); err != nil {
			t.Fatal(err)
		}
		if e, err := sub.Next(t.Context()); err != nil || e.Kind != p2p.ClusterChanged {
			t.Fatalf("event %+v, %v, want ClusterChanged", e, err)
		}
		until(t, 5*time.Second, "up", func() bool { return connected(nw.Hosts[1]) == 1 })
		nw.Stop(0) // up and down again before anybody has read the events
		until(t, time.Minute, "down", func() bool { return connected(nw.Hosts[1]) == 0 })
		if e, err := sub.Next(t.Context()); err != nil || e.Kind != p2p.MemberDown || e.Peer != nw.Peer(0) {
			t.Errorf("event %+v, %v, want that host 0 is down, as the last state", e, err)
		}
	})
}
