package session

import (
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/libp2p/go-libp2p/core/network"

	"github.com/musterhq/muster/internal/contract"
)

// TestUnwantedSessionIsGivenUp checks that a session that nobody wants any more ends on both sides, without a goodbye,
// a silence or an error. The connection stays.
func TestUnwantedSessionIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 2)
		a, b := c.nodes[0], c.nodes[1]
		a.Want(b.id())
		pass(time.Hour)
		if !a.isUp(b.id()) || a.ups != 1 {
			t.Fatalf("a wanted session: got %v, want that it came up once", a.seen)
		}
		a.Unwant(b.id())
		pass(59 * time.Second)
		if !a.isUp(b.id()) {
			t.Fatal("given up at once, so that a peer that is wanted again must be dialled again")
		}
		pass(2 * time.Second)
		for _, n := range c.nodes {
			if err := n.lastErr(); !errors.Is(err, ErrUnused) {
				t.Errorf("down for %v, want ErrUnused", err)
			}
		}
		if a.host.Network().Connectedness(b.host.ID()) != network.Connected {
			t.Error("the connection was closed with it")
		}
		pass(time.Hour)
		b.stop()
		b.start(t)
		pass(time.Minute)
		if a.isUp(b.id()) || a.ups != 1 {
			t.Errorf("got %v, want no second session for a peer that nobody wants", a.seen)
		}
		a.Want(b.id())
		pass(time.Second)
		if !a.isUp(b.id()) {
			t.Error("a peer that is wanted again was not dialled")
		}
		a.checkGuarantees(t)
		b.checkGuarantees(t)
	})
}

// TestPeerWantedAgainInTimeKeepsItsSession checks that a peer that is wanted again in time keeps its session.
func TestPeerWantedAgainInTimeKeepsItsSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 2)
		a, b := c.nodes[0], c.nodes[1]
		for range 20 {
			a.Want(b.id())
			pass(time.Hour)
			a.Unwant(b.id())
			pass(50 * time.Second)
		}
		if a.ups != 1 || !a.isUp(b.id()) {
			t.Errorf("got %v, want one session that stays", a.seen)
		}
	})
}

// TestSideThatWantsSessionOpensIt checks the case that only the side that accepted the session wants it. That side
// opens its own session, and the other side does not give that one up.
func TestSideThatWantsSessionOpensIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 2)
		for i, a := range c.nodes {
			b := c.nodes[1-i]
			ups := a.ups
			a.Want(b.id())
			pass(time.Second)
			b.Want(a.id())
			pass(time.Second)
			a.Unwant(b.id())
			pass(3 * time.Hour)
			if infos := b.Peers(); len(infos) != 1 || !infos[0].Opened || len(a.Peers()) != 1 || a.ups > ups+2 {
				t.Errorf("only host %d wants a session: got %+v, %v, want one that it opened", 1-i, infos, a.seen)
			}
			b.Unwant(a.id())
			pass(time.Hour)
			if len(a.Peers())+len(b.Peers()) > 0 || a.ups > ups+2 {
				t.Errorf("nobody wants a session: got %v, want none", a.seen)
			}
		}
	})
}

// TestAcceptedSessionStays checks that a daemon does not give up a session that the other side opened.
func TestAcceptedSessionStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 2)
		a, b := c.nodes[0], c.nodes[1]
		a.Want(b.id())
		pass(time.Second)
		b.Want(a.id())
		b.Unwant(a.id())
		pass(time.Hour)
		if a.ups != 1 || !b.isUp(a.id()) {
			t.Errorf("got %v, want one session that stays", a.seen)
		}
	})
}

// TestSessionInUseStays checks that a session in use stays. Messages that a worker sends to all peers do not count as
// use.
func TestSessionInUseStays(t *testing.T) {
	const tick = 50 * time.Second
	for name, x := range map[string]struct {
		msg   any
		back  bool // sent by the peer
		stays bool
	}{
		"our offers":                   {testOffer(1), false, true},
		"the peer's offers":            {testOffer(1), true, true},
		"our availability":             {contract.Availability{}, false, false},
		"peer's availability":          {contract.Availability{}, true, false},
		"the groups of a peer":         {contract.Owns{}, true, false},
		"a renewal without an attempt": {testRenew(), true, false},
		"a renewal of an attempt":      {testRenew(testOffer(1).Attempt), true, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, 2)
				a, b := c.nodes[0], c.nodes[1]
				a.Want(b.id())
				pass(time.Second)
				a.Unwant(b.id())
				from, to := a, b
				if x.back {
					from, to = b, a
				}
				for range 20 {
					pass(tick)
					if err := from.Send(to.id(), x.msg); err != nil && x.stays {
						t.Fatal(err)
					}
				}
				if a.isUp(b.id()) != x.stays {
					t.Errorf("up %v, want %v", !x.stays, x.stays)
				}
				pass(2 * time.Minute)
				if a.isUp(b.id()) {
					t.Error("still up though it is no longer used")
				}
			})
		})
	}
}

// TestGivenUpSessionReadsAsTheEndOfTheStream checks what a peer of any version reads from a session that is given up:
// everything that was sent, then the end of the stream between two frames.
func TestGivenUpSessionReadsAsTheEndOfTheStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 2)
		a, b := c.nodes[0], c.nodes[1]
		b.stop() // the test itself acts as b
		opened := make(chan *open, 1)
		b.host.SetStreamHandler(ID, func(s network.Stream) {
			o, err := readOpen(t.Context(), s)
			if err != nil {
				t.Error(err)
				return
			}
			first, err := appendFrame(nil, acceptFrame(count{1, 1}))
			if err != nil {
				t.Error(err)
			}
			if _, err := s.Write(first); err != nil {
				t.Error(err)
			}
			opened <- o
		})
		a.Want(b.id())
		pass(5 * time.Second)
		a.Unwant(b.id())
		o, pings := <-opened, 0
		for {
			f, err := o.frames.next()
			if err == io.EOF { //nolint:errorlint // exactly io.EOF
				break
			}
			if err != nil {
				t.Fatalf("after %d pings: %v", pings, err)
			}
			if pings++; pings > 100 {
				t.Fatalf("the session was not given up after 100 pings: got %v, want at most 100", pings)
			}
			if p := f.GetPing(); p != nil {
				answer, err := appendFrame(nil, pong(p.GetNumber(), time.Now()))
				if err != nil {
					t.Fatal(err)
				}
				if _, err := o.stream.Write(answer); err != nil {
					t.Fatal(err)
				}
			}
		}
		// A peer that keeps sending instead of ending its half is not waited for.
		for range 20 {
			answer, err := appendFrame(nil, pong(0, time.Now()))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := o.stream.Write(answer); err != nil {
				break
			}
			pass(time.Second)
		}
		if err := a.lastErr(); !errors.Is(err, ErrUnused) {
			t.Errorf("down for %v, want ErrUnused", err)
		}
	})
}

// bounded returns a cluster whose first host keeps few sessions.
func bounded(t *testing.T, hosts, wanted, peers int) (*cluster, *node) {
	c := newCluster(t, hosts)
	a := c.nodes[0]
	a.stop()
	cfg := DefaultConfig()
	cfg.MaxWanted, cfg.MaxPeers = wanted, peers
	a.startWith(t, cfg)
	return c, a
}

// TestWantedPeerAlwaysGetsSession has strangers that take and use all places. A peer that this daemon wants still gets
// a session, whichever side dials. No stranger displaces another.
func TestWantedPeerAlwaysGetsSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const peers = 5
		c, a := bounded(t, 12, 4, peers)
		strangers := c.nodes[1:9]
		for _, s := range strangers {
			s.Want(a.id())
		}
		pass(time.Minute)
		if n := len(a.Peers()); n != peers {
			t.Fatalf("got %d sessions of strangers, want %d", n, peers)
		}
		first := a.ups
		for range 20 {
			for _, s := range strangers {
				_ = s.Send(a.id(), testOffer(1)) // to those that have a session
			}
			pass(time.Minute)
		}
		if a.ups != first {
			t.Errorf("got %d sessions in use that lost their places, want 0", a.ups-first)
		}
		dialled, dialling := c.nodes[9:11], c.nodes[11]
		for _, d := range dialled {
			a.Want(d.id())
		}
		c.nodes[11].Want(a.id())
		a.Want(dialling.id())
		pass(time.Minute)
		for i, n := range c.nodes[9:] {
			if !a.isUp(n.id()) {
				t.Errorf("wanted host %d has no session", i)
			}
		}
		if n := len(a.Peers()); n != peers {
			t.Errorf("got %d sessions, want %d", n, peers)
		}
		a.checkGuarantees(t)
	})
}

// TestLongestIdleSessionIsDisplaced checks that a new session displaces the one that has been idle longest, after a
// while and no more often.
func TestLongestIdleSessionIsDisplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, a := bounded(t, 5, 1, 3)
		for i := 1; i <= 3; i++ {
			c.nodes[i].Want(a.id())
			pass(10 * time.Second)
		}
		late := c.nodes[4]
		late.Want(a.id())
		pass(time.Minute)
		if late.isUp(a.id()) {
			t.Fatal("a session that was idle for a minute was given up for a new one")
		}
		pass(displaceIdle)
		if !late.isUp(a.id()) || len(a.Peers()) != 3 {
			t.Errorf("got %v, want a session of the new peer, and 3 in all", a.seen)
		}
		down := slices.IndexFunc(a.seen, func(s string) bool { return strings.HasPrefix(s, "down") })
		if down < 0 || a.seen[down] != "down "+c.nodes[1].id().Short() {
			t.Errorf("got %v, want that the longest idle session ended first", a.seen)
		}
		before := a.ups
		pass(time.Hour)
		if most := int(time.Hour/displaceIdle)*3 + 3; a.ups-before > most || len(a.Peers()) != 3 {
			t.Errorf("%d sessions came up in an hour for 3 places, want at most %d; %d are up, want 3", a.ups-before, most, len(a.Peers()))
		}
		a.checkGuarantees(t)
	})
}

func TestWantedPeersAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, a := bounded(t, 4, 2, 3)
		for i := 1; i <= 3; i++ {
			if got := a.Want(c.nodes[i].id()); got != (i <= 2) {
				t.Errorf("want for peer %d: got %v, want true for the first 2 only", i, got)
			}
		}
		if !a.Want(c.nodes[1].id()) {
			t.Error("a peer that is already wanted is refused")
		}
		a.Unwant(c.nodes[1].id())
		if !a.Want(c.nodes[3].id()) {
			t.Error("refused though a place is free again")
		}
		pass(5 * time.Minute)
		if a.isUp(c.nodes[1].id()) || !a.isUp(c.nodes[2].id()) || !a.isUp(c.nodes[3].id()) {
			t.Errorf("got %v, want sessions with hosts 2 and 3 only", a.seen)
		}
	})
}

// TestPeerWithoutArraysGetsTheFileWithEachStart checks that a peer that does not say in its Accept that it knows arrays
// gets the job file with each Start, and that any other peer gets it once.
func TestPeerWithoutArraysGetsTheFileWithEachStart(t *testing.T) {
	for _, knows := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t, 2)
			a, b := c.nodes[0], c.nodes[1]
			b.stop() // the test itself acts as b
			opened := make(chan *open, 1)
			b.host.SetStreamHandler(ID, func(s network.Stream) {
				o, err := readOpen(t.Context(), s)
				if err != nil || !o.knows.arrays || !o.knows.gangs {
					t.Errorf("got Open %+v, %v, want that it knows arrays and gangs", o, err)
					return
				}
				accept := acceptFrame(count{1, 1})
				accept.GetAccept().Arrays = knows
				first, err := appendFrame(nil, accept)
				if err == nil {
					_, err = s.Write(first)
				}
				if err != nil {
					t.Error(err)
				}
				opened <- o
			})
			a.Want(b.id())
			pass(5 * time.Second)
			offer, f := testOffer(1), named("a", 1000)
			for range 2 {
				if err := a.Send(b.id(), contract.Start{Attempt: offer.Attempt, Group: offer.Group, File: f}); err != nil {
					t.Fatal(err)
				}
			}
			o, with := <-opened, 0
			for starts := 0; starts < 2; {
				frame, err := o.frames.next()
				if err != nil {
					t.Fatal(err)
				}
				if m := frame.GetStart(); m != nil {
					starts++
					with += min(1, len(m.GetSpec()))
				}
			}
			if want := map[bool]int{false: 2, true: 1}[knows]; with != want {
				t.Errorf("knows arrays %v: got %d of 2 Starts have the job file, want %d", knows, with, want)
			}
			_ = o.stream.Reset()
		})
	}
}
