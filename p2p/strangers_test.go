package p2p

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	ma "github.com/multiformats/go-multiaddr"
	manet "github.com/multiformats/go-multiaddr/net"
	"pgregory.net/rapid"
)

func ip(text string) netip.Addr { return netip.MustParseAddr(text) }

func TestStrangersAreBoundedByNetwork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newStrangers()
		f.limit, f.each = 3, 2
		var in []*stranger
		for i, c := range []struct {
			ip   string
			want bool
		}{
			{"10.0.0.1", true},
			{"::ffff:10.0.0.200", true}, // the same /24
			{"10.0.0.2", false},
			{"2001:db8::1", true},
			{"2001:db8::2", false}, // all places are taken
			{"10.0.1.1", false},
		} {
			one := f.enter(ip(c.ip), func() {})
			if (one != nil) != c.want {
				t.Errorf("step %d: got a place: %v, want %v", i, one != nil, c.want)
			}
			if one != nil {
				in = append(in, one)
			}
		}
		in[0].leave()
		in[0].leave() // the second call has no effect
		if f.enter(ip("2001:db8::3"), func() {}) == nil || f.enter(ip("10.0.7.1"), func() {}) != nil {
			t.Error("one place was given up: want that exactly one stranger gets a place")
		}
		in[1].admit()
		in[2].admit()
		if f.count() != 1 {
			t.Errorf("got %d places taken, want 1", f.count())
		}
	})
}

func TestSilentStrangersLoseTheirPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newStrangers()
		f.limit, f.each = 4, 2
		ended := ""
		enter := func(name, addr string) *stranger {
			return f.enter(ip(addr), func() { ended += name })
		}
		mute := enter("mute", "10.0.0.1")
		talks := enter("talks", "10.0.0.2")
		talks.hear(1)
		if enter("", "10.0.0.3") != nil || ended != "" {
			t.Errorf("a new stranger displaced %q at once, want none", ended)
		}
		pass(muteAfter)
		third := enter("third", "10.0.0.3")
		if third == nil || ended != "mute" {
			t.Errorf("displaced %q, want the one that never sent anything", ended)
		}
		mute.leave() // another stranger has its place by now
		third.hear(1)
		pass(stalledAfter - time.Millisecond)
		third.hear(1)
		pass(time.Millisecond)
		if enter("", "10.0.0.4") == nil || ended != "mutetalks" {
			t.Errorf("displaced %q, want also the one that has been silent for longer", ended)
		}
		// All places are taken, by several networks. A stranger of the most crowded network is displaced.
		enter("", "10.0.1.1")
		enter("", "10.0.2.1")
		pass(time.Second)
		ended = ""
		if enter("", "10.0.3.1") == nil || f.from[networkOf(ip("10.0.0.1"))] != 1 {
			t.Errorf("got %v, want 1 of the crowded network", f.from)
		}
		if f.count() != 4 {
			t.Errorf("got %d places taken, want 4", f.count())
		}
	})
}

// TestHonestHostGetsAPlace floods one network with connections that send nothing, and checks that each host of that
// network that does speak keeps its place.
func TestHonestHostGetsAPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newStrangers()
		refused := 0
		for i := range 10000 {
			if i%40 == 0 {
				lost := false
				honest := f.enter(ip("10.0.0.7"), func() { lost = true })
				if honest == nil {
					refused++
					continue
				}
				honest.hear(100)
				defer func() {
					if lost {
						t.Error("a host that spoke lost its place")
					}
				}()
				time.AfterFunc(300*time.Millisecond, honest.admit)
			}
			f.enter(ip(fmt.Sprintf("10.0.0.%d", i%256)), func() {})
			if f.count() > maxStrangersEach {
				t.Fatalf("got %d strangers of one network, want at most %v", f.count(), maxStrangersEach)
			}
			if i%4 == 0 {
				pass(time.Millisecond) // 4,000 a second
			}
		}
		if refused > 0 {
			t.Errorf("%d of 250 honest hosts were refused, want 0", refused)
		}
		pass(time.Second)
	})
}

// TestCountsOfStrangersAgreeWithTheList enters, speaks, leaves and waits in random order. The bounds hold, and the
// counts agree with the list.
func TestCountsOfStrangersAgreeWithTheList(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		f := newStrangers()
		f.limit, f.each = 6, 3
		var all []*stranger
		rt.Repeat(map[string]func(*rapid.T){
			"enter": func(rt *rapid.T) {
				n := rapid.IntRange(0, 3).Draw(rt, "network")
				if one := f.enter(ip(fmt.Sprintf("10.0.%d.1", n)), func() {}); one != nil {
					all = append(all, one)
				}
			},
			"silence": func(rt *rapid.T) {
				if len(all) > 0 {
					rapid.SampledFrom(all).Draw(rt, "who").since = time.Unix(1, 0)
				}
			},
			"speak": func(rt *rapid.T) {
				if len(all) > 0 {
					rapid.SampledFrom(all).Draw(rt, "who").hear(1)
				}
			},
			"leave": func(rt *rapid.T) {
				if len(all) > 0 {
					rapid.SampledFrom(all).Draw(rt, "who").leave()
				}
			},
			"admit": func(rt *rapid.T) {
				if len(all) > 0 {
					rapid.SampledFrom(all).Draw(rt, "who").admit()
				}
			},
			"": func(rt *rapid.T) {
				count := map[netip.Prefix]int{}
				for one := range f.list {
					count[one.from]++
				}
				if len(f.list) > f.limit || len(count) != len(f.from) {
					rt.Fatalf("got %d places taken, %v, %v, want counts that agree and are in bounds", len(f.list), count, f.from)
				}
				for p, n := range count {
					if n > f.each || f.from[p] != n {
						rt.Fatalf("%s has %d places, counted as %d, want counts that agree and are in bounds", p, n, f.from[p])
					}
				}
			},
		})
	})
}

func pass(d time.Duration) { <-time.NewTimer(d).C }

// pipeConn is a connection in memory that uses the fake clock of a bubble.
type pipeConn struct{ net.Conn }

func (pipeConn) LocalMultiaddr() ma.Multiaddr  { return ma.StringCast("/ip4/2.0.0.1/tcp/1") }
func (pipeConn) RemoteMultiaddr() ma.Multiaddr { return ma.StringCast("/ip4/2.0.0.2/tcp/2") }

// pipeListener accepts one connection.
type pipeListener struct {
	manet.Listener

	conn net.Conn
}

func (l pipeListener) Accept() (manet.Conn, error) { return pipeConn{l.conn}, nil }

// pair returns both ends of a connection; the accepted one is a stranger.
func pair(t *testing.T, room *strangers) (*strangerConn, net.Conn) {
	t.Helper()
	here, c := net.Pipe()
	t.Cleanup(func() { c.Close() })
	in, err := (&strangerListener{Listener: pipeListener{conn: here}, room: room}).Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close() })
	return in.(*strangerConn), c
}

func TestExcessBytesOfAStrangerAreNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		room := newStrangers()
		in, out := pair(t, room)
		go func() { _, _ = out.Write(make([]byte, 4*strangerBytes)) }()
		var total atomic.Int64
		go func() {
			b := make([]byte, 40000)
			for total.Load() < 2*strangerBytes {
				n, err := in.Read(b)
				total.Add(int64(n))
				if err != nil {
					return
				}
			}
		}()
		synctest.Wait() // nothing more can be read
		if n := total.Load(); n != strangerBytes || room.count() != 1 {
			t.Errorf("got %d bytes read, want %d; got %d strangers, want 1", n, strangerBytes, room.count())
		}
		in.who.admit()
		synctest.Wait()
		if n := total.Load(); n < 2*strangerBytes || room.count() != 0 {
			t.Errorf("after admission: got %d bytes read, want at least %d; got %d strangers, want 0", n, 2*strangerBytes, room.count())
		}
	})
}

func TestStrangerThatWaitsIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		room := newStrangers()
		in, out := pair(t, room)
		begin := time.Now()
		if _, err := io.ReadAll(out); err != nil {
			t.Error(err)
		}
		if took := time.Since(begin); took != helloTimeout || room.count() != 0 {
			t.Errorf("ended after %s, want %s; got %d strangers, want 0", took, helloTimeout, room.count())
		}
		if _, err := in.Read(make([]byte, 1)); err == nil {
			t.Error("a closed connection is read")
		}
	})
}

func TestStrangersGetLittleMemoryAndFewStreams(t *testing.T) {
	who := newStranger(time.Now())
	s := &strangerScope{ConnManagementScope: &network.NullScope{}, who: who}
	if err := s.ReserveMemory(1, 255); !errors.Is(err, errStranger) {
		t.Errorf("a window of a stranger grew: got %v, want errStranger", err)
	}
	for i := range maxStrangerStreams + 1 {
		span, err := s.PeerScope().BeginSpan()
		if (err == nil) != (i < maxStrangerStreams) {
			t.Fatalf("stream %d: got %v, want an error from the bound on", i, err)
		}
		if err == nil && (span.ReserveMemory(256<<10, 255) != nil || span.ReserveMemory(1, 128) == nil) {
			t.Errorf("stream %d: its first window was refused, or a larger one was not", i)
		}
	}
	who.admit()
	if _, err := s.PeerScope().BeginSpan(); err != nil || s.ReserveMemory(1, 255) != nil {
		t.Errorf("after admission: got %v, want no bound", err)
	}
}
