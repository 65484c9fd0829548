package daemon

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/p2p/gossip"
	"github.com/musterhq/muster/scheduler/step"
)

func testCallers(k *fakeKeeper) *callers {
	return newCallers(contract.Profile{Worker: true, CPUs: 8, Memory: 64 << 30}, testWants(k).of(forCallers), func() int { return 1 })
}

func callFor(class string) gossip.Announcement {
	return gossip.Announcement{Wants: []gossip.Want{{Class: class, Count: 1}}, Sessions: sessionsAsked}
}

func TestSessionOfACallerIsKeptWhileItAnnounces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newFakeKeeper(10)
		c := testCallers(k)
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- c.run(ctx) }()
		class := (*c.classes.Load())[0]
		for range 200 { // half an hour
			c.hear("s", callFor(class))
			pass(10 * time.Second)
			if !k.has("s") {
				t.Fatal("a scheduler that announces has no session")
			}
		}
		pass(callHolds - 20*time.Second)
		if !k.has("s") {
			t.Error("the session was given up too early")
		}
		for range 10 { // an announcement of a class that this host does not have keeps no session
			c.hear("s", callFor("gpu/model/none"))
			pass(10 * time.Second)
		}
		if k.has("s") {
			t.Error("the session is kept although the scheduler no longer announces")
		}
		c.hear("s", callFor(class))
		pass(time.Second)
		if !k.has("s") {
			t.Error("a new announcement opens no session")
		}
		stop()
		if err := <-done; err != nil || len(c.kept) != 1 {
			t.Errorf("got %v, %d sessions, want no error and 1", err, len(c.kept))
		}
		if len(k.odd) > 0 {
			t.Errorf("got unexpected calls of the session manager: %v, want none", k.odd)
		}
	})
}

func TestCallersAreBounded(t *testing.T) {
	k := newFakeKeeper(10 * maxCallers)
	c := testCallers(k)
	now := time.Now()
	name := func(i int) job.Peer { return job.Peer(fmt.Sprintf("s%04d", i)) }
	for i := range maxCallers {
		c.keep(name(i), now.Add(time.Duration(i)*time.Millisecond))
	}
	now = now.Add(time.Second)
	c.keep("late", now)
	if k.kept["late"] || len(k.kept) != maxCallers {
		t.Error("a caller that still announces was replaced")
	}
	now = now.Add(callMissed)
	c.again(name(0), now)
	for i := range 10 {
		c.keep(job.Peer(fmt.Sprintf("late%d", i)), now)
	}
	if len(k.kept) != maxCallers || len(c.kept) != maxCallers {
		t.Errorf("got %d sessions, want %d", len(k.kept), maxCallers)
	}
	for i := range 12 {
		if got, want := k.kept[name(i)], i == 0 || i > 10; got != want {
			t.Errorf("%s kept: got %v, want %v: the caller that announced longest ago is replaced first", name(i), got, want)
		}
	}
	if len(k.odd) > 0 {
		t.Errorf("got unexpected calls of the session manager: %v, want none", k.odd)
	}
}

// Two schedulers of one daemon are announced as one, so that neither replaces the other.
func TestTwoSchedulersAreAnnouncedAsOne(t *testing.T) {
	got := sumOf(map[job.Group][]step.Want{
		2: {{Class: "h100", Count: 3}, {Class: "cpu", Count: 1}}, 1: {{Class: "cpu", Count: 4}}, 3: nil,
	})
	if want := []gossip.Want{{Class: "cpu", Count: 5}, {Class: "h100", Count: 3}}; !slices.Equal(got, want) {
		t.Errorf("announced %v, want %v", got, want)
	}
}
