package session

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/libp2p/go-libp2p/core/network"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
)

// pass advances the virtual time and waits until all goroutines are idle. It takes no real time.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func TestSessionComesUpAndKeepsOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 2)
		a, b := c.nodes[0], c.nodes[1]
		if err := a.Send(b.id(), testOffer(1)); !errors.Is(err, ErrNoSession) {
			t.Errorf("Send without a session: got %v, want ErrNoSession", err)
		}
		a.Want(b.id())
		pass(time.Second)
		if !a.isUp(b.id()) || !b.isUp(a.id()) {
			t.Fatalf("after a second: got %v, %v, want that both are up", a.seen, b.seen)
		}
		var want []uint64
		for i := range uint64(1000) {
			want = append(want, i)
			if err := a.Send(b.id(), testOffer(i)); err != nil {
				t.Fatal(err)
			}
		}
		pass(time.Second)
		if got := b.gotOffers(); !slices.Equal(got, want) {
			t.Fatalf("got %d offers, want all in order", len(got))
		}
		if rtt, ok := a.RTT(b.id()); !ok || rtt < 2*oneWay || rtt > 3*oneWay {
			t.Errorf("round trip: got %s, %v, want two to three times the latency", rtt, ok)
		}
		if infos := a.Peers(); len(infos) != 1 || infos[0].Peer != b.id() || !infos[0].Opened {
			t.Errorf("peers: got %+v, want one session opened by a", infos)
		}
		if err := a.Send(b.id(), contract.Ack{Attempt: job.Attempt{Job: "nonsense"}}); !errors.Is(err, ErrInvalid) {
			t.Errorf("Send of a message that is out of bounds: got %v, want ErrInvalid", err)
		}
		pass(time.Hour)
		if !a.isUp(b.id()) || a.ups != 1 || b.ups != 1 {
			t.Errorf("after an idle hour: got %v, %v, want that the first session is up", a.seen, b.seen)
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		if m := a.measured; len(m) != 1 || m[0] < 2*oneWay || m[0] > 3*oneWay || len(a.broken) > 0 {
			t.Errorf("round trips that were reported in an hour on a steady link: got %v, %v, want one", m, a.broken)
		}
	})
}

func TestOpeningAtOnceGivesOneSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 2)
		a, b := c.nodes[0], c.nodes[1]
		if a.id() > b.id() {
			a, b = b, a
		}
		// On an open connection both streams take the same time to reach the other side.
		if err := a.host.Connect(t.Context(), b.host.Peerstore().PeerInfo(b.host.ID())); err != nil {
			t.Fatal(err)
		}
		pass(time.Second)
		b.Want(a.id())
		a.Want(b.id())
		pass(time.Minute)
		if a.ups != 1 || b.ups != 1 || !a.isUp(b.id()) || !b.isUp(a.id()) {
			t.Fatalf("got %v, %v, want that one session came up on each side", a.seen, b.seen)
		}
		if infos := a.Peers(); !infos[0].Opened {
			t.Error("the stream of the higher peer id won")
		}
		a.checkGuarantees(t)
		b.checkGuarantees(t)
	})
}

func TestSessionReturnsAfterSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 2)
		a, b := c.nodes[0], c.nodes[1]
		a.Want(b.id())
		b.Want(a.id())
		pass(30 * time.Second)
		cut := func(int, int) time.Duration { return never }
		c.slow.Store(&cut)
		pass(3900 * time.Millisecond) // something was read at most 2 s before
		if !a.isUp(b.id()) || !b.isUp(a.id()) {
			t.Fatal("down after less than 6 s of silence")
		}
		pass(2200 * time.Millisecond)
		for _, n := range c.nodes {
			if err := n.lastErr(); !errors.Is(err, ErrSilent) {
				t.Errorf("after 6 s of silence: got %v, want ErrSilent", err)
			}
		}
		if a.host.Network().Connectedness(b.host.ID()) == network.Connected {
			t.Error("the connection was not closed")
		}
		pass(10 * time.Minute)
		c.slow.Store(nil)
		pass(DefaultConfig().BackoffMax + DefaultConfig().DialTimeout)
		if !a.isUp(b.id()) || !b.isUp(a.id()) {
			t.Errorf("got %v, %v, want that the session is up again", a.seen, b.seen)
		}
		a.checkGuarantees(t)
		b.checkGuarantees(t)
	})
}

// A session that nobody uses costs few pings, and silence of its peer is noticed late. Its first use changes that: from
// then on the peer must answer as fast as on any session.
func TestUnusedSessionCostsFewPings(t *testing.T) {
	cfg := DefaultConfig()
	silent := func(int, int) time.Duration { return never }
	rested := func(t *testing.T) (c *cluster, a, b *node) {
		c = newCluster(t, 2)
		a, b = c.nodes[0], c.nodes[1]
		a.Want(b.id())
		b.Want(a.id())
		pass(10 * time.Minute)
		return c, a, b
	}
	t.Run("few pings", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			_, a, b := rested(t)
			before := a.pingsTo(b.id()) + b.pingsTo(a.id())
			for range 10 { // messages of a worker without tasks are no use
				if err := a.Send(b.id(), testRenew()); err != nil {
					t.Fatal(err)
				}
				pass(cfg.RestEvery)
			}
			if n := a.pingsTo(b.id()) + b.pingsTo(a.id()) - before; n < 10 || n > 15 {
				t.Errorf("got %d pings in %s, where one side pings and the other measures the round trip at times, want 10 to 15", n, 10*cfg.RestEvery)
			}
		})
	})
	t.Run("silence", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c, a, b := rested(t)
			c.slow.Store(&silent)
			pass(cfg.RestSilence - cfg.RestEvery - 3*time.Second)
			if !a.isUp(b.id()) || !b.isUp(a.id()) {
				t.Error("down too soon")
			}
			pass(cfg.RestEvery + 4*time.Second)
			for _, n := range c.nodes {
				if err := n.lastErr(); !errors.Is(err, ErrSilent) {
					t.Errorf("after %s of silence: got %v, want ErrSilent", cfg.RestSilence, err)
				}
			}
		})
	})
	t.Run("used", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			_, a, b := rested(t)
			if err := a.Send(b.id(), testOffer(1)); err != nil {
				t.Fatal(err)
			}
			pass(time.Hour)
			a.checkGuarantees(t)
			b.checkGuarantees(t)
		})
	})
	t.Run("used in silence", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c, a, b := rested(t)
			c.slow.Store(&silent)
			pass(time.Second)
			if err := a.Send(b.id(), testOffer(1)); err != nil {
				t.Fatal(err)
			}
			pass(cfg.Silence + 100*time.Millisecond)
			if err := a.lastErr(); !errors.Is(err, ErrSilent) {
				t.Errorf("%s after an offer without an answer: got %v, want ErrSilent", cfg.Silence, err)
			}
		})
	})
}

func TestPeerThatDoesNotReadIsCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 2)
		a, b := c.nodes[0], c.nodes[1]
		b.stall = make(chan struct{})
		a.Want(b.id())
		pass(time.Second)
		start := time.Now()
		var err error
		for n := uint64(0); err == nil && time.Since(start) < time.Minute; n++ {
			for range 100 {
				if err = a.Send(b.id(), testOffer(n)); err != nil {
					break
				}
			}
			pass(time.Millisecond)
		}
		if !errors.Is(err, ErrBusy) {
			t.Fatalf("a full queue: got %v, want ErrBusy", err)
		}
		pass(100 * time.Millisecond)
		if err := a.lastErr(); !errors.Is(err, ErrBusy) {
			t.Errorf("down for %v, want ErrBusy", err)
		}
		close(b.stall)
		pass(time.Minute)
		if !a.isUp(b.id()) || !b.isUp(a.id()) {
			t.Errorf("got %v, %v, want that the session is up again", a.seen, b.seen)
		}
		a.checkGuarantees(t)
		b.checkGuarantees(t)
	})
}

// TestUnansweredPingEndsTheSession has a peer that reads nothing but keeps sending. The little traffic to it never
// fills its queue, so that only the unanswered Ping shows that it does not read.
func TestUnansweredPingEndsTheSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 2)
		a, b := c.nodes[0], c.nodes[1]
		b.stall = make(chan struct{})
		a.Want(b.id())
		pass(time.Second)
		if err := a.Send(b.id(), testOffer(1)); err != nil {
			t.Fatal(err)
		}
		pass(time.Minute)
		if err := a.lastErr(); !errors.Is(err, ErrBusy) {
			t.Errorf("down for %v, want ErrBusy", err)
		}
		close(b.stall)
	})
}

func TestRestartedPeerReplacesItsSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 2)
		a, b := c.nodes[0], c.nodes[1]
		a.Want(b.id())
		pass(time.Second)
		// b restarts on the same connection, and a still believes in the first session.
		old := b.recorder
		stopOld := b.stop
		b.start(t)
		b.Want(a.id())
		pass(time.Second)
		if err := a.lastErr(); !errors.Is(err, ErrReplaced) {
			t.Errorf("down for %v, want ErrReplaced", err)
		}
		if !a.isUp(b.id()) || a.ups != 2 {
			t.Errorf("got %v, want a second session", a.seen)
		}
		stopOld()
		old.checkGuarantees(t)
		a.checkGuarantees(t)
	})
}

func TestGoodbyeFollowsAllMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 2)
		a, b := c.nodes[0], c.nodes[1]
		a.Want(b.id())
		pass(time.Second)
		for i := range uint64(100) {
			if err := b.Send(a.id(), testOffer(i)); err != nil {
				t.Fatal(err)
			}
		}
		b.stop()
		if err := b.lastErr(); !errors.Is(err, ErrStopped) {
			t.Errorf("stopped: got %v, want ErrStopped", err)
		}
		pass(100 * time.Millisecond)
		if err := a.lastErr(); !errors.Is(err, ErrGoodbye) {
			t.Errorf("the other side: got %v, want ErrGoodbye", err)
		}
		if got := a.gotOffers(); len(got) != 100 {
			t.Errorf("got %d of 100 offers before the goodbye, want 100", len(got))
		}
		b.start(t)
		pass(DefaultConfig().BackoffMax)
		if !a.isUp(b.id()) {
			t.Error("the restarted daemon was not dialled again")
		}
	})
}

// TestMalformedFrameCuts checks that a malformed frame ends the session. Its sender is refused for a while, then
// accepted again.
func TestMalformedFrameCuts(t *testing.T) {
	for name, bytes := range map[string][]byte{
		"too long":        {0xff, 0xff, 0xff, 0x7f},
		"empty":           {0},
		"no protobuf":     {3, 0xff, 0xff, 0xff},
		"unknown message": {3, 0xfa, 0x3f, 0},
		"bad attempt":     {4, 0x32, 2, 0x10, 1}, // Ack without anything
		"another's name":  frameOf(t, contract.Hello{Profile: contract.Profile{Peer: "somebody"}}),
		"endless length":  {0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, 2)
				a, b := c.nodes[0], c.nodes[1]
				b.stop() // the test itself acts as b
				s, err := b.host.NewStream(t.Context(), a.host.ID(), ID)
				if err != nil {
					t.Fatal(err)
				}
				o, err := say(t.Context(), s, count{incarnation: 1, n: 1})
				if err != nil {
					t.Fatal(err)
				}
				pass(time.Second)
				if !a.isUp(b.id()) {
					t.Fatal("not up")
				}
				if _, err := o.stream.Write(bytes); err != nil {
					t.Fatal(err)
				}
				pass(time.Second)
				if err := a.lastErr(); !errors.Is(err, ErrInvalid) {
					t.Errorf("down for %v, want ErrInvalid", err)
				}
				if s, err = b.host.NewStream(t.Context(), a.host.ID(), ID); err == nil {
					_, err = say(t.Context(), s, count{incarnation: 1, n: 2})
				}
				if err == nil {
					t.Error("accepted again at once")
				}
				b.start(t)
				b.Want(a.id())
				pass(30 * time.Second)
				if !a.isUp(b.id()) {
					t.Error("not accepted again after a while")
				}
				a.checkGuarantees(t)
			})
		})
	}
}

func TestGreetingTimesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 2)
		a, b := c.nodes[0], c.nodes[1]
		b.stop()
		var streams []network.Stream
		for range 5 {
			s, err := b.host.NewStream(t.Context(), a.host.ID(), ID)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := s.Write([]byte{20}); err != nil { // a length without the bytes
				t.Fatal(err)
			}
			streams = append(streams, s)
		}
		pass(greetTimeout + time.Second)
		for _, s := range streams {
			if _, err := s.Read(make([]byte, 1)); err == nil {
				t.Error("a stream without an Open was answered")
			}
		}
		b.start(t)
		b.Want(a.id())
		pass(time.Second)
		if !a.isUp(b.id()) {
			t.Error("streams without an Open keep a valid stream out")
		}
	})
}

// TestTwentyHostsKeepSessionsDespiteLossAndPartition has twenty hosts that all want sessions with each other, with
// packet loss, then with a partition, then with a healthy network.
func TestTwentyHostsKeepSessionsDespiteLossAndPartition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const hosts = 20
		c := newCluster(t, hosts)
		var packets int
		mu := make(chan struct{}, 1)
		lossy := func(from, to int, apart bool) time.Duration {
			mu <- struct{}{}
			packets++
			n := packets
			<-mu
			if apart && from%2 != to%2 || n%50 == 0 { // one in fifty
				return never
			}
			return oneWay
		}
		whole := func(from, to int) time.Duration { return lossy(from, to, false) }
		parted := func(from, to int) time.Duration { return lossy(from, to, true) }
		all := func(want func(i, k int) bool) (wrong int) {
			for i, a := range c.nodes {
				for k, b := range c.nodes {
					if i != k && a.isUp(b.id()) != want(i, k) {
						wrong++
					}
				}
			}
			return wrong
		}
		c.slow.Store(&whole)
		for _, a := range c.nodes {
			for _, b := range c.nodes {
				a.Want(b.id())
			}
		}
		pass(30 * time.Second)
		if n := all(func(int, int) bool { return true }); n > 0 {
			t.Errorf("got %d missing sessions at 2%% loss, want 0", n)
		}
		c.slow.Store(&parted)
		pass(30 * time.Second)
		if n := all(func(i, k int) bool { return i%2 == k%2 }); n > 0 {
			t.Errorf("got %d wrong sessions in a partition, want 0", n)
		}
		c.slow.Store(&whole)
		pass(time.Minute)
		if n := all(func(int, int) bool { return true }); n > 0 {
			t.Errorf("got %d missing sessions after the partition, want 0", n)
		}
		for i, a := range c.nodes {
			for k, b := range c.nodes {
				if i != k {
					if err := a.Send(b.id(), testOffer(uint64(i))); err != nil {
						t.Errorf("%d to %d: %v", i, k, err)
					}
				}
			}
		}
		pass(10 * time.Second)
		for _, a := range c.nodes {
			if n := len(a.gotOffers()); n != hosts-1 {
				t.Errorf("got %d offers, want %d", n, hosts-1)
			}
			a.checkGuarantees(t)
		}
	})
}

func frameOf(t *testing.T, msg any) []byte {
	f, err := toWire(msg)
	if err != nil {
		t.Fatal(err)
	}
	b, err := appendFrame(nil, f)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestOpeningAtOnceInAnyOrderGivesOneSession checks that two hosts that open sessions at the same time end up with one,
// in whatever order packets arrive, and open no second one later.
func TestOpeningAtOnceInAnyOrderGivesOneSession(t *testing.T) {
	for seed := range uint64(40) {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t, 2)
			a, b := c.nodes[0], c.nodes[1]
			if err := a.host.Connect(t.Context(), b.host.Peerstore().PeerInfo(b.host.ID())); err != nil {
				t.Fatal(err)
			}
			pass(time.Second)
			r, mu := rand.New(rand.NewPCG(seed, 0)), make(chan struct{}, 1)
			jumbled := func(int, int) time.Duration {
				mu <- struct{}{}
				defer func() { <-mu }()
				return time.Duration(r.IntN(200)) * time.Millisecond
			}
			apart := time.Duration(r.IntN(100)) * time.Millisecond
			c.slow.Store(&jumbled)
			b.Want(a.id())
			pass(apart)
			a.Want(b.id())
			pass(time.Minute)
			if a.ups != 1 || b.ups != 1 || !a.isUp(b.id()) || !b.isUp(a.id()) {
				t.Errorf("seed %d: got %v, %v, want that one session came up on each side", seed, a.seen, b.seen)
			}
			a.checkGuarantees(t)
			b.checkGuarantees(t)
		})
	}
}
