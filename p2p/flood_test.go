package p2p_test

// What strangers cost: floods of connections, streams and bytes, with an honest host that joins at the same time.

import (
	"context"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/transport"
	manet "github.com/multiformats/go-multiaddr/net"

	"github.com/musterhq/muster/p2p"
	"github.com/musterhq/muster/p2p/p2ptest"
)

// TestStrangersStreamsAreBounded opens streams without a hello over simulated QUIC. The seventeenth ends the
// connection, although nobody has read the others.
func TestStrangersStreamsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nw := p2ptest.New(t, 1, p2ptest.Options{})
		conn, err := nw.Stranger(net.IPv4(2, 0, 0, 1).To4()).Dial(t.Context(), nw.Addr(0))
		if err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		opened := 0
		for range 100 {
			s, err := conn.OpenStream(t.Context())
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
			t.Errorf("cut off after %d streams and %s, want 16 to 60 streams and at most 1 s", opened, time.Since(begin))
		}
	})
}

// TestStrangersBytesAreBounded writes without a hello over simulated QUIC.
func TestStrangersBytesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nw := p2ptest.New(t, 1, p2ptest.Options{})
		conn, err := nw.Stranger(net.IPv4(2, 0, 0, 1).To4()).Dial(t.Context(), nw.Addr(0))
		if err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		for i := range 4 {
			s, err := conn.OpenStream(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			greeting := []byte("\x13/multistream/1.0.0\n")
			if i == 0 { // the gate waits for the bytes that the first stream announces, and reads the others later
				if _, err := s.Write(greeting); err != nil {
					t.Fatal(err)
				}
				continue
			}
			go func() { _, _ = s.Write(append(greeting, make([]byte, 300<<10)...)) }()
		}
		until(t, time.Second, "the connection is ended", conn.IsClosed)
		if took := time.Since(begin); took > 200*time.Millisecond {
			t.Errorf("cut off after %s, want at most 200 ms", took)
		}
	})
}

// TestHonestHostJoinsDuringAFlood has strangers hold as many connections as they get over simulated QUIC, in the network of
// an honest host. The honest host joins within three seconds. It did so before there was a limited number of places for
// strangers, too: the test guards that this limit does no harm. The flood that kept honest hosts out is in
// TestHalfOpenConnectionsKeepNobodyOut in e2e.
func TestHonestHostJoinsDuringAFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nw := p2ptest.New(t, 2, p2ptest.Options{Strangers: 2})
		ctx, stop := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for i := range 5 {
			c := nw.Stranger(net.IPv4(1, 0, 0, byte(100+i)).To4()) // the /24 of the hosts
			wg.Go(func() { holdMany(ctx, c, nw.Addr(0)) })
		}
		pass(1500 * time.Millisecond)
		inv := invite(t, nw.Hosts[0], time.Hour, 1, p2p.AllRoles)
		begin := time.Now()
		for nw.Hosts[1].Join(t.Context(), inv.Bootstrap, inv.Token) != nil && time.Since(begin) < 10*time.Second {
			pass(200 * time.Millisecond) // as a daemon does
		}
		until(t, 10*time.Second, "connected", func() bool { return connected(nw.Hosts[0]) == 1 })
		took := time.Since(begin)
		t.Logf("joined after %s", took)
		if took > 3*time.Second {
			t.Errorf("joined after %s, want at most 3 s", took)
		}
		stop()
		wg.Wait()
	})
}

// holdMany opens connections until ctx ends. On each it begins one stream and sends nothing more.
func holdMany(ctx context.Context, c *p2ptest.Stranger, to string) {
	var held []transport.CapableConn
	defer func() {
		for _, conn := range held {
			conn.Close()
		}
	}()
	for ctx.Err() == nil {
		conn, err := c.Dial(ctx, to)
		if err != nil {
			pass(100 * time.Millisecond)
			continue
		}
		held = append(held, conn)
		if s, err := conn.OpenStream(ctx); err == nil {
			_, _ = s.Write([]byte{19})
		}
	}
}

// A stranger that opens a stream and sends nothing more is cut off after five seconds, handshakes included.
func TestSilentStrangerIsCutOffAfterFiveSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nw := p2ptest.New(t, 1, p2ptest.Options{})
		begin := time.Now()
		conn, err := nw.Stranger(net.IPv4(2, 0, 0, 1).To4()).Dial(t.Context(), nw.Addr(0))
		if err != nil {
			t.Fatal(err)
		}
		s, err := conn.OpenStream(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Write([]byte{19}); err != nil {
			t.Fatal(err)
		}
		until(t, 10*time.Second, "the connection is ended", conn.IsClosed)
		if took := time.Since(begin); took < 5*time.Second || took > 5200*time.Millisecond {
			t.Errorf("cut off after %s, want 5 s", took)
		}
	})
}

// A hundred hosts of one network that connect at the same moment all get places, over simulated QUIC.
func TestHundredStrangersAtOnceGetPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nw := p2ptest.New(t, 1, p2ptest.Options{})
		conns := make([]transport.CapableConn, 100)
		var wg sync.WaitGroup
		for i := range conns {
			c := nw.Stranger(net.IPv4(2, 0, 0, byte(1+i)).To4())
			wg.Go(func() {
				conn, err := c.Dial(t.Context(), nw.Addr(0))
				if err != nil {
					t.Error(err)
					return
				}
				s, err := conn.OpenStream(t.Context())
				if err == nil {
					_, err = s.Write([]byte{19})
				}
				if err != nil {
					t.Error(err)
				}
				conns[i] = conn
			})
		}
		wg.Wait()
		pass(2 * time.Second) // connections without a place are closed at once
		for i, c := range conns {
			if c == nil || c.IsClosed() {
				t.Errorf("stranger %d was refused, want that it gets a place", i)
			}
		}
	})
}

// The same over TCP, at one address. This daemon greets a host only after it has a place; one without a place is reset
// before.
func TestHundredStrangersAtOnceGetPlacesOverTCP(t *testing.T) {
	h := start(t, config(kinds["tcp"]))
	info, err := peer.AddrInfoFromString(h.Addrs()[0])
	if err != nil {
		t.Fatal(err)
	}
	_, to, err := manet.DialArgs(info.Addrs[0])
	if err != nil {
		t.Fatal(err)
	}
	var come, greeted sync.WaitGroup
	come.Add(100)
	for range 100 {
		greeted.Go(func() {
			c, err := new(net.Dialer).DialContext(t.Context(), "tcp", to)
			come.Done()
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			if _, err := c.Read(make([]byte, 1)); err != nil {
				t.Error(err)
			}
			come.Wait() // nobody leaves before all have connected
		})
	}
	greeted.Wait()
}
