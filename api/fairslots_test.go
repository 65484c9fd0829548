package api

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/musterhq/muster/job"
)

func of(user string) account { return account{party: party{user: user}} }

// fill takes slots until there are no more for the account, and returns their number.
func (r *slots) fill(a account) (n int) {
	for r.take(a, 1) {
		n++
	}
	return n
}

// One party gets half of the slots, each further one half of the rest, and operators get those that are reserved for
// them.
func TestSlotsAreShared(t *testing.T) {
	r := newSlots("places", 64, 8)
	for i, want := range []int{32, 16, 8, 4} {
		if got := r.fill(of(fmt.Sprint("user", i))); got != want {
			t.Errorf("user %d: got %d slots, want %d", i, got, want)
		}
	}
	if err := r.refusal(of("user0")); !errors.Is(err, ErrTooMany) || !strings.Contains(err.Error(), "user user0 has 32 of 64 places") {
		t.Errorf("refusal = %v, want ErrTooMany with the numbers of user0", err)
	}
	root := account{party: party{user: "root"}, operator: true}
	if got := r.fill(root); got != 12 {
		t.Errorf("operators: got %d slots, want 12: the 4 that are free and 8 reserved", got)
	}
}

// A daemon gets no more slots under many names, nor by saying that they are operators. A user gets no more through many
// daemons.
func TestForwardedRequestsGetNoExtraSlots(t *testing.T) {
	r := newSlots("places", 64, 8)
	via := func(d job.Peer, user string) account {
		return requester{from: fromPeer, daemon: d, user: user, operator: true}.account()
	}
	n := 0
	for r.take(via("mallory", fmt.Sprint("name", n)), 1) {
		n++
	}
	if n != 32 {
		t.Errorf("one daemon under different names: got %d of 64 slots, want 32", n)
	}
	if err := r.refusal(via("mallory", "name")); !strings.Contains(err.Error(), "daemon mallory has 32") {
		t.Errorf("refusal = %v, want one with the number of the daemon", err)
	}
	if !r.take(via("ben", "name0"), 1) {
		t.Error("a user whose name a daemon has used gets no slot through another daemon")
	}
	r.give(via("ben", "name0"), 1)
	for i := range n {
		r.give(via("mallory", fmt.Sprint("name", i)), 1)
	}
	n = 0
	for r.take(via(job.Peer(fmt.Sprint("daemon", n)), "eve"), 1) {
		n++
	}
	if n != 32 {
		t.Errorf("one user through different daemons: got %d of 64 slots, want 32", n)
	}
}

// Those who wait get slots when some are free: those of one account in order, and each account without regard to the
// others.
func TestWaitersGetSlotsInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newSlots("places", 8, 0)
		eve, amy := of("eve"), of("amy")
		n := r.fill(eve)
		var said []int
		for i := range 20 {
			go func() {
				if err := r.wait(t.Context(), eve, 1); err != nil {
					t.Error(err)
				}
				said = append(said, i) // one of them has a slot at a time
				time.Sleep(time.Second)
				r.give(eve, 1)
			}()
			synctest.Wait()
		}
		if err := r.wait(t.Context(), amy, 1); err != nil || len(said) > 0 {
			t.Errorf("another account waits behind those: got %v, want no wait", err)
		}
		r.give(amy, 1)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := r.wait(ctx, eve, 1); !errors.Is(err, ErrTooMany) {
			t.Errorf("after a second of waiting: got %v, want ErrTooMany", err)
		}
		r.give(eve, 1)
		time.Sleep(time.Minute)
		r.give(eve, int64(n-1))
		for i, n := range said {
			if i != n {
				t.Fatalf("got the order %v, want the order of waiting", said)
			}
		}
		if len(said) != 20 || r.used != 0 || len(r.has) > 0 || len(r.lines) > 0 {
			t.Errorf("got %d that came in, then %d slots used by %v, and %d lines, want 20, 0, none and 0", len(said), r.used, r.has, len(r.lines))
		}
	})
}

// Whatever parties do, no slot is given twice or lost, and a party without one gets one when others have more.
func TestSlotsAreNeverLostOrGivenTwice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		most := rapid.Int64Range(4, 100).Draw(t, "most")
		r := newSlots("places", most, most/operatorPart)
		r.greed = rapid.Int64Range(1, 4).Draw(t, "greed")
		type held struct {
			account
			n int64
		}
		var all []held
		for range rapid.IntRange(0, 200).Draw(t, "steps") {
			if len(all) > 0 && rapid.Bool().Draw(t, "give") {
				i := rapid.IntRange(0, len(all)-1).Draw(t, "which")
				r.give(all[i].account, all[i].n)
				all = append(all[:i], all[i+1:]...)
				continue
			}
			a := account{party: party{user: rapid.SampledFrom([]string{"amy", "ben", "eve"}).Draw(t, "user")}, operator: rapid.IntRange(0, 9).Draw(t, "op") == 0}
			n := rapid.Int64Range(1, 3).Draw(t, "n")
			if r.take(a, n) {
				all = append(all, held{a, n})
				if newcomer := of("new"); !a.operator && r.has[a.party] > r.greed {
					if !r.take(newcomer, 1) {
						t.Fatalf("%s got %d slots, and nothing is left of %d: %v; want a slot for a newcomer", a.user, n, most, r.has)
					}
					r.give(newcomer, 1)
				}
			}
			sum := int64(0)
			for _, h := range all {
				sum += h.n
			}
			if sum != r.used || r.used > r.most+r.kept {
				t.Fatalf("got %d slots used, want %d, the sum, of at most %d", r.used, sum, most)
			}
		}
		for _, h := range all {
			r.give(h.account, h.n)
		}
		if r.used != 0 || len(r.has) > 0 {
			t.Fatalf("all slots were given back: got %d used by %v, want 0", r.used, r.has)
		}
	})
}
