package session

// Peers that send more than they may are read slowly or cut, and no others are.

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/libp2p/go-libp2p/core/network"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
)

// rawSession opens a session of b, whose manager was stopped, with a. It returns its stream; nil if a refuses it.
func rawSession(t *testing.T, b, a *node, n uint64) network.Stream {
	t.Helper()
	s, err := b.host.NewStream(t.Context(), a.host.ID(), ID)
	if err != nil {
		return nil
	}
	o, err := say(t.Context(), s, count{incarnation: 1, n: n})
	if err != nil {
		return nil
	}
	return o.stream
}

// One peer sends without a pause the messages that each kind of host sends now and then. It is read at the rate of
// their cost, its session stays, and messages of another peer arrive at once.
func TestFloodIsReadSlowly(t *testing.T) {
	const span = 20 * time.Second
	attempt := job.Attempt{Job: job.NewID(7, 1), N: 1}
	for name, flood := range map[string]struct {
		msg  any
		most int // messages a second
	}{
		"availability": {contract.Availability{Seq: 1, Free: contract.Free{CPUs: 1}}, maxRate / freeCost},
		"renewals":     {testRenew(), maxRate / renewCost},
		"queries":      {contract.Query{Attempt: attempt, Group: 7}, maxRate / renewCost},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, 3)
				a, b, honest := c.nodes[0], c.nodes[1], c.nodes[2]
				got, slowest := 0, time.Duration(0)
				a.onAny = func(msg any) {
					switch m := msg.(type) {
					case contract.Commit:
						slowest = max(slowest, time.Duration(time.Now().UnixNano()-int64(m.Offer)))
					default:
						got++
					}
				}
				b.stop() // the test itself acts as b
				honest.Want(a.id())
				pass(time.Second)
				s := rawSession(t, b, a, 1)
				frames := []byte{}
				for range 1000 {
					frames = append(frames, frameOf(t, flood.msg)...)
				}
				done := make(chan struct{})
				go func() {
					defer close(done)
					for {
						if _, err := s.Write(frames); err != nil {
							return
						}
					}
				}()
				for at := time.Now(); time.Since(at) < span; pass(100 * time.Millisecond) {
					if err := honest.Send(a.id(), contract.Commit{Offer: uint64(time.Now().UnixNano()), Attempt: attempt, Group: 7}); err != nil {
						t.Fatal(err)
					}
				}
				if !a.isUp(b.id()) || !a.isUp(honest.id()) {
					t.Errorf("a session was cut: got %v, want that both stay", a.lastErr())
				}
				_ = s.Reset()
				<-done
				pass(time.Second)
				if most := flood.most * int(span/time.Second+3); got > most || got < most/4 {
					t.Errorf("got %d messages in %s, want at most %d", got, span, most)
				}
				if slowest > time.Second/10 {
					t.Errorf("a message of another peer took %s, want at most %v", slowest, time.Second/10)
				}
				a.checkGuarantees(t)
			})
		})
	}
}

// A peer that begins one session after another, and sends in each as much as it may at once, is not read faster.
func TestFloodOfSessionsIsReadSlowly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const span = 20 * time.Second
		c := newCluster(t, 2)
		a, b := c.nodes[0], c.nodes[1]
		got := 0
		a.onAny = func(any) { got++ }
		b.stop()
		pass(time.Second)
		var hellos []byte
		for range 30 {
			hellos = append(hellos, frameOf(t, contract.Hello{Profile: contract.Profile{Peer: b.id(), Name: "b", Store: "s", Worker: true}})...)
		}
		var last network.Stream
		for at, n := time.Now(), uint64(1); time.Since(at) < span; n++ {
			if s := rawSession(t, b, a, n); s != nil {
				_, _ = s.Write(hellos)
				last = s
			}
			pass(100 * time.Millisecond)
		}
		if last == nil {
			t.Fatal("no session")
		}
		_ = last.Reset()
		pass(time.Second)
		if most := maxRate / profileCost * int(span/time.Second+3); got > most || got < most/8 {
			t.Errorf("got %d profiles in %s, want at most %d", got, span, most)
		}
		if most := maxRate / sessionCost * int(span/time.Second+3); a.ups > most {
			t.Errorf("got %d sessions in %s, want at most %d", a.ups, span, most)
		}
		a.checkGuarantees(t)
	})
}

// A peer that sends its profile without end is cut, and refused for longer each time. Another peer's session stays.
func TestFloodOfProfilesIsCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		a, b, honest := c.nodes[0], c.nodes[1], c.nodes[2]
		b.stop()
		honest.Want(a.id())
		pass(time.Second)
		hello := frameOf(t, contract.Hello{Profile: contract.Profile{Peer: b.id(), Name: "b", Store: "s", Worker: true}})
		shortest := DefaultConfig().BackoffMax
		for n, want := range []time.Duration{shortest, shortest, shortest, 2 * shortest, 4 * shortest} {
			s := rawSession(t, b, a, uint64(n+1)*1000)
			if s == nil {
				t.Fatalf("session %d was refused", n)
			}
			for {
				if _, err := s.Write(hello); err != nil {
					break
				}
				pass(10 * time.Millisecond)
			}
			if err := a.lastErr(); !errors.Is(err, ErrFlood) {
				t.Fatalf("cut for %v, want ErrFlood", err)
			}
			pass(want - time.Second)
			if s := rawSession(t, b, a, uint64(n+1)*1000+1); s != nil {
				t.Errorf("a session was accepted after ban %d and before %s, want a refusal", n, want)
			}
			pass(time.Minute)
		}
		if a.ups != 6 || !a.isUp(honest.id()) {
			t.Errorf("the other peer: got %v, want one session that stays", a.seen)
		}
		a.checkGuarantees(t)
	})
}

func TestBansGrowToABoundAndAreForgotten(t *testing.T) {
	now := time.Unix(1e9, 0)
	b := bans{shortest: 10 * time.Second}
	for range 20 {
		b.add("mallory", now)
	}
	if d := b.until("mallory").Sub(now); d != longestBan {
		t.Errorf("the 20th ban lasts %s, want %v", d, longestBan)
	}
	for n := range 2 * maxBans { // made-up members neither fill the memory nor displace the worst ban
		b.add(job.Peer(fmt.Sprint("peer-", n)), now)
	}
	if len(b.by) > maxBans || b.until("mallory").Before(now.Add(longestBan)) {
		t.Errorf("got %d bans, want at most %d; mallory is banned until %s, want at least %s", len(b.by), maxBans, b.until("mallory"), now.Add(longestBan))
	}
	now = now.Add(longestBan + bansKept + time.Second)
	if d := b.add("mallory", now); d != b.shortest {
		t.Errorf("a ban after a long time lasts %s, want %v", d, b.shortest)
	}
}
