package p2p_test

// The gate on real TCP and QUIC sockets, and what a libp2p client without a credential can do there.

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p"
	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/protocol"
	"github.com/libp2p/go-libp2p/p2p/protocol/identify"
	"github.com/libp2p/go-libp2p/p2p/protocol/ping"
	"github.com/libp2p/go-msgio/pbio"
	msmux "github.com/multiformats/go-multistream"

	"github.com/musterhq/muster/p2p"
	"github.com/musterhq/muster/p2p/wirepb"
)

var kinds = map[string]string{"tcp": "/ip4/127.0.0.1/tcp/0", "quic": "/ip4/127.0.0.1/udp/0/quic-v1"}

// start runs a host on real sockets until the test ends.
func start(t *testing.T, cfg p2p.Config) *p2p.Host {
	t.Helper()
	h, err := p2p.New(cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Enter(t.Context()); err != nil {
		h.Close()
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- h.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return h
}

func config(listen string) p2p.Config {
	cfg := p2p.DefaultConfig()
	cfg.Name, cfg.Listen = "server", []string{listen}
	return cfg
}

// stranger returns a plain libp2p host that is connected to h.
func stranger(t *testing.T, h *p2p.Host) (host.Host, peer.ID) {
	t.Helper()
	info, err := peer.AddrInfoFromString(h.Addrs()[0])
	if err != nil {
		t.Fatal(err)
	}
	c, err := libp2p.New(libp2p.NoListenAddrs, libp2p.DisableMetrics())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.Connect(t.Context(), *info); err != nil {
		t.Fatal(err)
	}
	return c, info.ID
}

// open negotiates a protocol on a new stream.
func open(t *testing.T, c host.Host, p peer.ID, id protocol.ID) (network.Stream, error) {
	s, err := c.Network().NewStream(network.WithNoDial(t.Context(), "test"), p)
	if err != nil {
		return nil, err
	}
	if err := s.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		return nil, err
	}
	if err := msmux.SelectProtoOrFail(id, s); err != nil {
		_ = s.Reset()
		return nil, err
	}
	return s, nil
}

func TestStrangerGetsOnlyHelloAndJoin(t *testing.T) {
	for kind, listen := range kinds {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			h := start(t, config(listen))
			begin := time.Now()
			c, id := stranger(t, h)
			for _, forbidden := range []protocol.ID{
				identify.ID, identify.IDPush, ping.ID, p2p.SessionID, p2p.HTTPID, p2p.RevokedID, "/meshsub/1.1.0",
				protocol.ID(fmt.Sprintf("/muster/%s/kad/1.0.0", h.Cluster())),
			} {
				if _, err := open(t, c, id, forbidden); !errors.Is(err, msmux.ErrNotSupported[protocol.ID]{}) {
					t.Errorf("%s: got %v, want that it is not served", forbidden, err)
				}
			}
			s, err := open(t, c, id, p2p.HelloID)
			if err != nil {
				t.Fatalf("hello: %v", err)
			}
			if err := pbio.NewDelimitedWriter(s).WriteMsg(&wirepb.Hello{Name: "nobody", Revoked: make([]byte, 32)}); err != nil {
				t.Fatal(err)
			}
			var r wirepb.HelloReply
			if err := pbio.NewDelimitedReader(s, 4096).ReadMsg(&r); err != nil || r.GetCode() == 0 || r.GetCredential() != nil {
				t.Errorf("hello without a credential: got %v, %v, want a refusal", &r, err)
			}
			s, err = open(t, c, id, p2p.JoinID)
			if err != nil {
				t.Fatalf("join: %v", err)
			}
			if err := pbio.NewDelimitedWriter(s).WriteMsg(&wirepb.JoinRequest{Name: "nobody"}); err != nil {
				t.Fatal(err)
			}
			var j wirepb.JoinReply
			if err := pbio.NewDelimitedReader(s, 4096).ReadMsg(&j); err != nil || j.GetCode() == 0 || j.GetCredential() != nil {
				t.Errorf("join without a token: got %v, %v, want a refusal", &j, err)
			}
			if n := len(h.Libp2p().Network().Peers()); n != 0 {
				t.Errorf("libp2p sees %d peers, want none", n)
			}
			wantCut(t, c, id, begin)
		})
	}
}

func TestSilentStrangerIsCutOff(t *testing.T) {
	for kind, listen := range kinds {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			h := start(t, config(listen))
			begin := time.Now()
			c, id := stranger(t, h)
			s, err := c.Network().NewStream(t.Context(), id) // sends nothing on it
			if err != nil {
				t.Fatal(err)
			}
			if _, err := s.Write([]byte{19}); err != nil {
				t.Fatal(err)
			}
			wantCut(t, c, id, begin)
		})
	}
}

// wantCut waits until the connection that started at begin has ended. The upper bound of the time depends on the
// machine; TestSilentStrangerIsCutOffAfterFiveSeconds and TestStrangerThatWaitsIsClosed check it with a fake clock.
func wantCut(t *testing.T, c host.Host, id peer.ID, begin time.Time) {
	t.Helper()
	gone := make(chan struct{})
	c.Network().Notify(&network.NotifyBundle{DisconnectedF: func(n network.Network, _ network.Conn) {
		if n.Connectedness(id) != network.Connected {
			close(gone)
		}
	}})
	if c.Network().Connectedness(id) == network.Connected {
		select {
		case <-gone:
		case <-t.Context().Done():
		}
	}
	if took := time.Since(begin); took < 5*time.Second {
		t.Errorf("cut off after %s, want at least 5 s", took)
	}
}

func TestStrangerWithManyStreamsIsCutOff(t *testing.T) {
	h := start(t, config(kinds["tcp"]))
	c, id := stranger(t, h)
	tries := 0
	for ; c.Network().Connectedness(id) == network.Connected && tries < 100; tries++ {
		if s, err := open(t, c, id, "/nothing/1"); err == nil {
			_ = s.Reset()
		}
	}
	if tries > 20 {
		t.Errorf("%d streams were served, want at most 20", tries)
	}
}

// TestJoinedHostIsServedEveryProtocol founds a cluster, invites a daemon and lets it join, over real sockets. After
// that, every protocol is served.
func TestJoinedHostIsServedEveryProtocol(t *testing.T) {
	for kind, listen := range kinds {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			cfg := config(listen)
			cfg.DataDir = t.TempDir()
			a := start(t, cfg)
			inv, err := a.Invite(time.Hour, 1, p2p.AllRoles)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.HasPrefix(inv.Token, "muster1-") || inv.Cluster != a.Cluster() {
				t.Errorf("got invitation %+v, want a token muster1-… of the own cluster", inv)
			}
			cfg = config(listen)
			cfg.DataDir, cfg.Name, cfg.Bootstrap, cfg.Token = t.TempDir(), "joiner", inv.Bootstrap, inv.Token
			b := start(t, cfg)
			if b.Cluster() != a.Cluster() || !b.ClusterKey().Equal(a.ClusterKey()) {
				t.Errorf("b is in cluster %q, want that of a, %q, with the same key", b.Cluster(), a.Cluster())
			}
			sub := a.Subscribe()
			defer sub.Close()
			if e, err := sub.Next(t.Context()); err != nil || e.Kind != p2p.MemberUp || e.Peer != b.Peer() || e.Name != "joiner" {
				t.Fatalf("got event %+v, %v, want that b is up", e, err)
			}
			if err := a.Handle(p2p.SessionID, func(s network.Stream) { _, _ = io.Copy(s, s); s.Close() }); err != nil {
				t.Fatal(err)
			}
			id, err := peer.Decode(string(a.Peer()))
			if err != nil {
				t.Fatal(err)
			}
			s, err := b.Libp2p().NewStream(t.Context(), id, p2p.SessionID)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := s.Write([]byte("ping")); err != nil {
				t.Fatal(err)
			}
			if err := s.CloseWrite(); err != nil {
				t.Fatal(err)
			}
			if got, err := io.ReadAll(s); err != nil || string(got) != "ping" {
				t.Errorf("echo = %q, %v, want %q", got, err, "ping")
			}
			if r := <-ping.Ping(t.Context(), b.Libp2p(), id); r.Error != nil {
				t.Errorf("ping: %v", r.Error)
			}
		})
	}
}

// TestForgedCredentialsAreRefused says hello over a raw connection with credentials that must be refused.
func TestForgedCredentialsAreRefused(t *testing.T) {
	h := start(t, config(kinds["tcp"]))
	_, foreign, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	given, err := p2p.NewGiven(foreign, p2p.AllRoles, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	cfg := config(kinds["tcp"])
	cfg.Given = given
	other := start(t, cfg)
	if err := other.ConnectAddr(t.Context(), h.Addrs()[0]); !errors.Is(err, p2p.ErrWrongCluster) {
		t.Errorf("a member of another cluster: got %v, want %v", err, p2p.ErrWrongCluster)
	}
	if n := len(h.Members()) + len(other.Members()); n != 0 {
		t.Errorf("got %d members, want none", n)
	}
}
