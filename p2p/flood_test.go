package p2p_test

// What strangers cost: floods of connections, streams and bytes, and an honest host that joins meanwhile.

import (
	"context"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/libp2p/go-libp2p"
	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/musterhq/muster/p2p"
	"github.com/musterhq/muster/p2p/p2ptest"
)

// pour connects to a daemon again and again until ctx ends. On each connection it opens as many streams as it gets and
// writes on each, without a hello. It returns how many bytes the daemon took on the one connection that sent most.
func pour(ctx context.Context, c host.Host, to peer.AddrInfo, streams, each int) (most int) {
	for ctx.Err() == nil {
		_ = c.Network().ClosePeer(to.ID)
		conn, err := dialOnce(ctx, c, to)
		if err != nil {
			continue
		}
		var mu sync.Mutex
		var wg sync.WaitGroup
		sent := 0
		for range streams {
			s, err := conn.NewStream(ctx)
			if err != nil {
				break
			}
			wg.Go(func() {
				_ = s.SetWriteDeadline(time.Now().Add(6 * time.Second))
				for range each / 4096 {
					n, err := s.Write(make([]byte, 4096))
					mu.Lock()
					sent += n
					mu.Unlock()
					if err != nil {
						return
					}
				}
			})
		}
		wg.Wait()
		most = max(most, sent)
	}
	return most
}

func dialOnce(ctx context.Context, c host.Host, to peer.AddrInfo) (network.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if err := c.Connect(ctx, to); err != nil {
		timer := time.NewTimer(50 * time.Millisecond)
		defer timer.Stop()
		<-timer.C
		return nil, err
	}
	return c.Network().DialPeer(ctx, to.ID)
}

// TestStrangersStreamsAreBounded opens streams without a hello over simulated QUIC. The seventeenth ends the
// connection, although nobody has read the others.
func TestStrangersStreamsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nw := p2ptest.New(t, 1, p2ptest.Options{})
		c := nw.Stranger(net.IPv4(2, 0, 0, 1).To4())
		to, err := peer.AddrInfoFromString(nw.Addr(0))
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Connect(t.Context(), *to); err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		conn := c.Network().ConnsToPeer(to.ID)[0]
		opened := 0
		for range 100 {
			s, err := conn.NewStream(t.Context())
			if err != nil {
				break
			}
			if _, err := s.Write([]byte{19}); err != nil {
				break
			}
			opened++
			pass(time.Millisecond)
		}
		until(t, time.Second, "the connection is ended", conn.IsClosed)
		if opened < 16 || opened > 60 || time.Since(begin) > time.Second {
			t.Errorf("cut off after %d streams and %s", opened, time.Since(begin))
		}
	})
}

// TestStrangersBytesAreBounded writes on one stream without a hello over simulated QUIC.
func TestStrangersBytesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nw := p2ptest.New(t, 1, p2ptest.Options{})
		c := nw.Stranger(net.IPv4(2, 0, 0, 1).To4())
		to, err := peer.AddrInfoFromString(nw.Addr(0))
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Connect(t.Context(), *to); err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		conn := c.Network().ConnsToPeer(to.ID)[0]
		for range 4 { // none of them has a whole first message, so nobody reads on
			s, err := conn.NewStream(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			go func() { _, _ = s.Write(make([]byte, 300<<10)) }()
		}
		until(t, time.Second, "the connection is ended", conn.IsClosed)
		if took := time.Since(begin); took > 200*time.Millisecond {
			t.Errorf("cut off after %s", took)
		}
	})
}

// TestHonestJoinDuringAFlood has strangers pour over simulated QUIC from the network of an honest host and from others.
// The honest host joins within three seconds.
func TestHonestJoinDuringAFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nw := p2ptest.New(t, 2, p2ptest.Options{Strangers: 2})
		to, err := peer.AddrInfoFromString(nw.Addr(0))
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for i := range 40 {
			at := net.IPv4(1, 0, 0, byte(100+i)).To4() // the /24 of the hosts
			if i%2 == 0 {
				at = net.IPv4(3, 0, byte(i), 1).To4()
			}
			c := nw.Stranger(at)
			wg.Go(func() { pour(ctx, c, *to, 256, 64<<10) })
		}
		pass(2 * time.Second)
		inv := invite(t, nw.Hosts[0], time.Hour, 1, p2p.AllRoles)
		begin := time.Now()
		if err := nw.Hosts[1].Join(t.Context(), inv.Bootstrap, inv.Token); err != nil {
			t.Error(err)
		}
		until(t, 3*time.Second, "connected", func() bool { return connected(nw.Hosts[0]) == 1 })
		if took := time.Since(begin); took > 3*time.Second {
			t.Errorf("joined after %s", took)
		}
		stop()
		wg.Wait()
	})
}

// TestHalfOpenConnections holds 4,000 TCP connections that say nothing. An honest host joins, and the daemon dials.
func TestHalfOpenConnections(t *testing.T) {
	a := start(t, config(kinds["tcp"]))
	inv, err := a.Invite(time.Hour, 1, p2p.AllRoles)
	if err != nil {
		t.Fatal(err)
	}
	info, err := peer.AddrInfoFromString(a.Addrs()[0])
	if err != nil {
		t.Fatal(err)
	}
	port, err := info.Addrs[0].ValueForProtocol(6) // TCP
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() { // each holds up to 500, and replaces those that the daemon closed
			held := make(chan net.Conn, 500)
			for ctx.Err() == nil {
				c, err := net.DialTimeout("tcp", net.JoinHostPort("127.0.0.1", port), time.Second)
				if err != nil {
					continue
				}
				select {
				case held <- c:
				default:
					(<-held).Close()
					held <- c
				}
			}
			close(held)
			for c := range held {
				c.Close()
			}
		})
	}
	defer wg.Wait()
	defer stop()
	<-time.NewTimer(time.Second).C
	begin := time.Now()
	cfg := config(kinds["tcp"])
	cfg.Bootstrap, cfg.Token = inv.Bootstrap, inv.Token
	b := start(t, cfg)
	sub := b.Subscribe()
	defer sub.Close()
	if e, err := sub.Next(t.Context()); err != nil || e.Kind != p2p.MemberUp || e.Peer != a.Peer() {
		t.Fatalf("event %+v, %v", e, err)
	}
	took := time.Since(begin)
	t.Logf("joined after %s", took)
	if took > 3*time.Second {
		t.Errorf("joined after %s, want at most 3 s", took)
	}
}

// TestHundredStrangersAtOnce checks that a hundred hosts at one address that come at the same moment are all admitted.
func TestHundredStrangersAtOnce(t *testing.T) {
	for kind, listen := range kinds {
		t.Run(kind, func(t *testing.T) {
			h := start(t, config(listen))
			to, err := peer.AddrInfoFromString(h.Addrs()[0])
			if err != nil {
				t.Fatal(err)
			}
			var wg sync.WaitGroup
			for range 100 {
				wg.Go(func() {
					c, err := libp2p.New(libp2p.NoListenAddrs, libp2p.DisableMetrics(), libp2p.DisableRelay())
					if err != nil {
						t.Error(err)
						return
					}
					defer c.Close()
					ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
					defer cancel()
					if err := c.Connect(ctx, *to); err != nil {
						t.Error(err)
						return
					}
					s, err := c.Network().NewStream(ctx, to.ID)
					if err != nil {
						t.Error(err)
						return
					}
					_ = s.Reset()
				})
			}
			wg.Wait()
		})
	}
}
