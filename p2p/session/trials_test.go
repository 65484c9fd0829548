package session

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/p2p/wirepb"
)

// startOf is the Start of a task of a job with this name.
func startOf(n uint64, name string) contract.Start {
	o := testOffer(n)
	return contract.Start{Offer: n, Attempt: o.Attempt, Group: o.Group, Epoch: o.Epoch, Session: 1, User: "amy", File: named(name, 10)}
}

// wait lets virtual time pass until ok.
func wait(t *testing.T, ok func() bool) {
	t.Helper()
	for began := time.Now(); !ok(); pass(2 * oneWay) {
		if time.Since(began) > 5*time.Minute {
			t.Fatal("the condition did not hold within 5 min")
		}
	}
}

// poison makes the node end the session whenever a Start of a job with this name arrives, as a daemon does that cannot
// read it.
func (n *node) poison(of *node, name string) (arrived func() int) {
	seen := 0
	n.onAny = func(msg any) {
		if m, is := msg.(contract.Start); is && m.File.Spec().Name == name {
			seen++
			n.table.get(of.id()).cut(errors.New("cannot read it"))
		}
	}
	return func() int { return seen }
}

// A Start that ends its session is sent once more at once, then after a minute, two minutes, four and so on. Meanwhile
// it is held back, and everything else arrives.
func TestStartThatEndsItsSessionIsSentEverMoreRarely(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 2)
		a, b := c.nodes[0], c.nodes[1]
		arrived := b.poison(a, "poison")
		a.Want(b.id())
		wait(t, func() bool { return a.isUp(b.id()) })

		began, held, others := time.Now(), 0, 0
		for time.Since(began) < time.Hour {
			switch err := a.Send(b.id(), startOf(uint64(2+held), "poison")); {
			case errors.As(err, new(*HeldBackError)):
				held++
			case err != nil && !errors.Is(err, ErrNoSession):
				t.Fatal(err)
			}
			if err := a.Send(b.id(), startOf(1, fmt.Sprint("good ", others))); err == nil {
				others++
			} else if !errors.Is(err, ErrNoSession) {
				t.Fatalf("another job's start: got %v, want ErrNoSession", err)
			}
			time.Sleep(5 * time.Second)
		}
		// At once, once more, and after 1, 3, 7, 15 and 31 minutes.
		if n := arrived(); n < 6 || n > 7 {
			t.Errorf("got %d sends of it in an hour, want 6 to 7", n)
		}
		if others < 690 {
			t.Errorf("got %d of 720 starts of other jobs, want at least 690", others)
		}
		var e *HeldBackError
		if err := a.Send(b.id(), startOf(9, "poison")); !errors.As(err, &e) || e.Wait < time.Minute || e.Times < 6 {
			t.Errorf("after an hour: got %v, want that it is held back after at least 6 sends", err)
		}
		a.checkGuarantees(t)
		b.checkGuarantees(t)
	})
}

// All messages that were under way when a host lost power are sent again without a delay.
func TestInnocentMessagesAreNotDelayed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 2)
		a, b := c.nodes[0], c.nodes[1]
		a.Want(b.id())
		wait(t, func() bool { return a.isUp(b.id()) })
		gone := func(int, int) time.Duration { return never }
		c.slow.Store(&gone)
		for i := range uint64(100) {
			if err := a.Send(b.id(), startOf(i+1, fmt.Sprint("job ", i))); err != nil {
				t.Fatal(err)
			}
		}
		wait(t, func() bool { return !a.isUp(b.id()) })
		c.slow.Store(nil)
		wait(t, func() bool { return a.isUp(b.id()) })
		got := 0
		b.onAny = func(msg any) {
			if _, is := msg.(contract.Start); is {
				got++
			}
		}
		began := time.Now()
		for i := range uint64(100) {
			for {
				err := a.Send(b.id(), startOf(i+1, fmt.Sprint("job ", i)))
				if err == nil {
					break
				}
				if !errors.As(err, new(*HeldBackError)) {
					t.Fatal(err)
				}
				time.Sleep(2 * oneWay)
			}
		}
		wait(t, func() bool { return got == 100 })
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("100 starts took %s, want at most 5 s", took)
		}
	})
}

// The number of messages that a peer can make us remember by ending sessions is bounded, and they are forgotten in the
// end.
func TestSuspectsAreBounded(t *testing.T) {
	ts, now := trials{}, time.Unix(1e9, 0)
	for i := range 2 * maxTried {
		c := &conn{peer: job.Peer(fmt.Sprint(i)), cause: ErrSilent, out: &outbox{}}
		c.out.underWay.suspects = ts.of(c.peer, features{})
		for j := range 2 * maxUnderWay {
			u := &c.out.underWay
			u.n++
			u.sent = append(u.sent, onWay{n: u.n, subject: subject{byte(j), byte(j >> 8)}})
		}
		ts.ended(c, now)
		if n := len(ts[c.peer].by); n > maxUnderWay {
			t.Fatalf("got %d suspects, want at most %v", n, maxUnderWay)
		}
	}
	if len(ts) > maxTried {
		t.Errorf("got %d peers with suspects, want at most %v", len(ts), maxTried)
	}
	for p := range ts {
		c := &conn{peer: p, cause: ErrGoodbye, out: &outbox{}}
		c.out.underWay.suspects = ts.of(p, features{})
		ts.ended(c, now.Add(2*suspicionEnds))
	}
	if len(ts) > 0 {
		t.Errorf("got %d peers with old suspects, want 0", len(ts))
	}
}

// An Event that is long and ends sessions is sent without its long part, so that its owner learns of the end.
func TestLongEventThatEndsItsSessionIsSentShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 2)
		a, b := c.nodes[0], c.nodes[1]
		long, short := 0, 0
		b.onAny = func(msg any) { // called with the lock of the recorder
			if m, is := msg.(contract.Event); is && len(m.Exit.Tail) > 0 {
				long++
				b.table.get(a.id()).cut(errors.New("it does not get through"))
			} else if is {
				short++
			}
		}
		a.Want(b.id())
		o := testOffer(1)
		end := contract.Event{Attempt: o.Attempt, Group: o.Group, N: 3, State: job.Succeeded, Exit: &job.Exit{State: job.Succeeded, Started: true, Tail: string(make([]byte, longEvent))}}
		for range 3 {
			wait(t, func() bool { return a.isUp(b.id()) })
			if err := a.Send(b.id(), end); err != nil {
				t.Fatal(err)
			}
			time.Sleep(20 * time.Second)
		}
		if long != 2 || short != 1 {
			t.Errorf("it arrived %d times whole and %d times short, want 2 and 1", long, short)
		}
		if len(end.Exit.Tail) != longEvent {
			t.Error("the sender's own copy was changed")
		}
	})
}

// However many messages are suspected, one more that ends sessions is held back like the others. It displaces one that
// has not certainly ended a session, or the oldest one.
func TestNewSuspectDisplacesTheLeastCertainOne(t *testing.T) {
	for _, failed := range []bool{false, true} {
		s, now := &suspects{}, time.Unix(1e9, 0)
		for i := range maxUnderWay {
			s.add(subject{byte(i), 1}, failed, now.Add(time.Duration(i)*time.Second))
		}
		now = now.Add(10 * time.Minute)
		s.add(subject{2}, true, now)
		if _, err := s.check(subject{2}, now); err == nil {
			t.Errorf("failed %v: the message is sent, want that it is held back", failed)
		}
		if there, _ := s.check(subject{0, 1}, now); there || len(s.by) != maxUnderWay {
			t.Errorf("failed %v: got %d suspects, with the oldest one: %v, want as many as allowed, without it", failed, len(s.by), there)
		}
		for i := range 2 * maxUnderWay { // of one session
			s.add(subject{byte(i), byte(3 + i>>8)}, false, now.Add(time.Minute))
		}
		if there, _ := s.check(subject{0, 3}, now); !there || len(s.by) != maxUnderWay {
			t.Errorf("failed %v: got %d suspects, with the first of a session: %v, want as many as allowed, with it", failed, len(s.by), there)
		}
		now = now.Add(2*suspicionEnds + time.Hour)
		s.add(subject{9}, false, now)
		if len(s.by) != 1 {
			t.Errorf("failed %v: got %d old suspects, want 0", failed, len(s.by)-1)
		}
	}
}

// The answer to a Ping says nothing about a message that is sent after it. A Ping that was not queued confirms nothing
// later.
func TestPingsConfirmOnlyEarlierMessages(t *testing.T) {
	u := &underWay{suspects: &suspects{}}
	now := time.Now()
	ping := func() (uint64, error) { return 7, nil }
	sends := func(name string) subject {
		t.Helper()
		f := startFrame(startOf(1, name))
		s, _ := subjectOf(f)
		u.suspects.add(s, false, now)
		if err := u.send(f, s, func(*wirepb.Frame) error { return nil }, func() (uint64, error) { return 0, ErrBusy }); err != nil {
			t.Fatal(err)
		}
		return s
	}
	first := sends("first")
	if u.ping != 0 {
		t.Fatalf("a Ping that was not queued is awaited: got %v, want 0", u.ping)
	}
	u.sendPing(func() (uint64, error) { return 5, ErrBusy })
	if u.ping != 0 {
		t.Fatalf("a Ping of the watcher that was not queued is awaited: got %v, want 0", u.ping)
	}
	u.sendPing(func() (uint64, error) {
		if u.mu.TryLock() {
			t.Error("a message can be sent between a Ping and the record of what it confirms")
			u.mu.Unlock()
		}
		return ping()
	})
	u.trial = 0 // so that the next one is sent now
	second := sends("second")
	u.trial = 0
	u.answered(7)
	if there, _ := u.suspects.check(first, now); there {
		t.Error("a message before the Ping is suspected")
	}
	if there, _ := u.suspects.check(second, now); !there {
		t.Error("a message after the Ping is not suspected")
	}
}

// A session with a full queue has no Ping under way.
func TestPingThatDoesNotFitIsNotAwaited(t *testing.T) {
	c := newConn(Config{}, "p", open{source: &source{}}, true)
	c.out.underWay.suspects = &suspects{}
	c.out.underWay.sent = []onWay{{n: 1}}
	c.out.buf = make([]byte, MaxQueue)
	if c.ping(time.Now(), 0); c.out.underWay.ping != 0 {
		t.Errorf("a Ping that did not fit into the queue is awaited: got %v, want 0", c.out.underWay.ping)
	}
}

// A message that the earlier version of a peer could not read is sent to the new version at once, though that one
// reports the same format.
func TestNewVersionOfAPeerGetsSuspectsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 2)
		a, b := c.nodes[0], c.nodes[1]
		arrived := b.poison(a, "poison")
		a.Want(b.id())
		up := func(version string) {
			t.Helper()
			wait(t, func() bool { return a.isUp(b.id()) })
			if err := b.Send(a.id(), contract.Hello{Profile: contract.Profile{Peer: b.id(), Name: "b", Store: "s", Version: version}}); err != nil {
				t.Fatal(err)
			}
			pass(4 * oneWay)
		}
		for range 2 {
			up("v1")
			if err := a.Send(b.id(), startOf(1, "poison")); err != nil {
				t.Fatal(err)
			}
			wait(t, func() bool { return !a.isUp(b.id()) })
		}
		up("v1")
		if err := a.Send(b.id(), startOf(1, "poison")); !errors.As(err, new(*HeldBackError)) {
			t.Fatalf("to the version that ended the session: got %v, want HeldBackError", err)
		}
		b.onAny = nil
		up("v2")
		if err := a.Send(b.id(), startOf(1, "poison")); err != nil {
			t.Errorf("to the next version: got %v, want no error", err)
		}
		if n := arrived(); n != 2 {
			t.Errorf("it ended %d sessions, want 2", n)
		}
		a.checkGuarantees(t)
		b.checkGuarantees(t)
	})
}
