package worker_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker"
	"github.com/musterhq/muster/worker/useraccounts"
)

// newHostWithAccounts returns a host whose tasks run as their users.
func newHostWithAccounts(t *testing.T) *host {
	cfg := config(0)
	cfg.LookUp = true
	cfg.Profile.CPUs = 1000
	h := newHost(t, cfg)
	h.meet(amy, 1)
	return h
}

// asks offers a task of a user, and returns the users that are then looked up.
func (h *host) asks(n uint64, user string) []string {
	m := offer(n, attempt(n, 1), job.Resources{CPUs: 1})
	m.User = user
	var users []string
	for _, l := range h.says(amy, m).LookUp {
		users = append(users, l.User)
	}
	return users
}

func (h *host) finds(user string, is useraccounts.Presence) {
	h.round(worker.LookedUp{User: user, Is: is})
}

func (h *host) commits(want int) {
	h.t.Helper()
	if n := len(got[contract.Commit](h, amy)); n != want {
		h.t.Fatalf("%d commits, want %d", n, want)
	}
}

func TestOffersWaitForTheLookupOfTheirUser(t *testing.T) {
	h := newHostWithAccounts(t)
	if who := h.asks(1, "ada"); !slices.Equal(who, []string{"ada"}) {
		t.Fatalf("looked up: %v, want %v", who, []string{"ada"})
	}
	if who := h.asks(2, "ada"); len(who) != 0 {
		t.Fatalf("looked up again: %v, want none", who)
	}
	h.commits(0)
	h.finds("ada", useraccounts.Present)
	h.commits(2)
	if who := h.asks(3, "ada"); len(who) != 0 {
		t.Fatalf("looked up again: %v, want none", who)
	}
	h.commits(1)
	h.pass(time.Hour)
	if who := h.asks(4, "ada"); !slices.Equal(who, []string{"ada"}) {
		t.Fatalf("after an hour looked up: %v, want %v", who, []string{"ada"})
	}
	h.commits(1) // what was known counts meanwhile
}

func TestOffersForUsersWithoutAnAccount(t *testing.T) {
	h := newHostWithAccounts(t)
	h.asks(1, "ada")
	h.finds("ada", useraccounts.Absent)
	if d := one[contract.Decline](h, amy); !d.NoUser || !d.Never || d.Reason != (job.Reason{Word: job.ReasonNoMatch, Detail: "this node has no user ada"}) {
		t.Fatalf("decline = %+v, want it for good, because the node has no user ada", d)
	}
	if who := h.asks(2, "ada"); len(who) != 0 {
		t.Fatalf("looked up again: %v, want none", who)
	}
	if d := one[contract.Decline](h, amy); !d.NoUser {
		t.Fatalf("decline = %+v, want NoUser", d)
	}
	h.pass(time.Minute) // the account is created
	if who := h.asks(3, "ada"); !slices.Equal(who, []string{"ada"}) {
		t.Fatalf("after a minute looked up: %v, want %v", who, []string{"ada"})
	}
	h.finds("ada", useraccounts.Present)
	h.commits(1)
	if d := got[contract.Decline](h, amy); len(d) != 0 {
		t.Fatalf("declines = %+v, want none", d)
	}
}

// A directory that does not answer, or fails, does not stop tasks. A late answer counts.
func TestSlowLookupDoesNotStopTasks(t *testing.T) {
	h := newHostWithAccounts(t)
	h.asks(1, "ada")
	h.pass(time.Second)
	h.commits(1)
	if who := h.asks(2, "ada"); len(who) != 0 {
		t.Fatalf("looked up twice at a time: %v, want none", who)
	}
	h.commits(1)
	full := offer(3, attempt(3, 1), job.Resources{CPUs: 1000})
	full.User, full.Wait = "ada", time.Minute
	h.says(amy, full) // queues
	h.finds("ada", useraccounts.Absent)
	if d := one[contract.Decline](h, amy); !d.NoUser || d.Offer != 3 {
		t.Fatalf("decline = %+v, want offer 3 with NoUser", d)
	}
	h.asks(4, "bob")
	h.finds("bob", useraccounts.Unknown)
	h.commits(1)
	if who := h.asks(5, "bob"); len(who) != 0 {
		t.Fatalf("looked up again at once: %v, want none", who)
	}
	h.commits(1)
}

// An offer that was withdrawn, or whose scheduler has gone, gets no answer.
func TestOffersThatAreGoneGetNoAnswer(t *testing.T) {
	h := newHostWithAccounts(t)
	h.asks(1, "ada")
	h.asks(2, "ada")
	h.says(amy, contract.Release{Offer: 1})
	h.finds("ada", useraccounts.Present)
	if m := one[contract.Commit](h, amy); m.Offer != 2 {
		t.Fatalf("commit = %+v, want Offer 2", m)
	}
	h.asks(3, "bob")
	h.round(worker.Down{Peer: amy})
	h.finds("bob", useraccounts.Present)
	h.commits(0)
	h.finds("eve", useraccounts.Present) // nobody asked
}

// If a scheduler always names new users, few are looked up at a time, and few are remembered.
func TestLookupsAreBounded(t *testing.T) {
	h := newHostWithAccounts(t)
	open, most := map[string]bool{}, 0
	for n := range uint64(20_000) {
		m := offer(n+1, attempt(n+1, 1), job.Resources{CPUs: 1})
		m.User = fmt.Sprint("u", n)
		for _, who := range h.says(amy, m).LookUp {
			open[who.User] = true
		}
		most = max(most, len(open))
		if n%100 == 99 { // the directory answers now and then
			for who := range open {
				h.finds(who, useraccounts.Absent)
			}
			clear(open)
		}
		h.says(amy, contract.Release{Offer: n + 1})
		h.jump(time.Millisecond)
	}
	if most == 0 || most > useraccounts.MaxLookUps {
		t.Errorf("%d were looked up at a time, want at most %d", most, useraccounts.MaxLookUps)
	}
	if n := worker.Residents(h.core); n > 4096 {
		t.Errorf("%d users are remembered, want at most 4096", n)
	}
	h.pass(time.Minute)
	h.sent = map[job.Peer][]contract.ToScheduler{}
	h.asks(30_000, "ada")
	h.finds("ada", useraccounts.Present)
	h.commits(1)
}

// A scheduler makes up users, or offers thousands of tasks of a user whose lookup is under way. The lookups and places
// of others are not affected: their users are looked up, their offers wait and are answered as without it.
func TestLookupsOfOneSchedulerDoNotDelayOthers(t *testing.T) {
	h := newHostWithAccounts(t)
	founding, hers := job.FoundFrom(mallory, job.Founding{})
	h.round(worker.Up{Peer: mallory})
	h.says(mallory, contract.Owns{Groups: []contract.GroupEpoch{{Group: hers, Epoch: epoch(1), Founding: founding}}})
	asks := func(n uint64, user string) int {
		m := offer(n, job.Attempt{Job: job.NewID(hers, n), N: 1}, cpu)
		m.Group, m.User = hers, user
		return len(h.says(mallory, m).LookUp)
	}
	asked := 0
	for n := range uint64(2 * useraccounts.MaxLookUps) {
		asked += asks(1+n, fmt.Sprint("u", n))
	}
	for n := range uint64(3000) {
		asks(1000+n, "u0")
	}
	if asked != useraccounts.MaxLookUps/2 {
		t.Errorf("%d of mallory's users are looked up at a time, want half of %d", asked, useraccounts.MaxLookUps)
	}
	for i, user := range []string{"ada", "bea", "eve"} {
		n := uint64(i + 1)
		if who := h.asks(n, user); !slices.Equal(who, []string{user}) {
			t.Fatalf("looked up for amy: %v, want %s", who, user)
		}
		h.asks(n+100, user)
		h.commits(0) // both wait
		h.finds(user, useraccounts.Absent)
		if d := got[contract.Decline](h, amy); len(d) != 2 || !d[0].NoUser || !d[1].NoUser {
			t.Fatalf("declines = %+v, want 2 with NoUser", d)
		}
	}
	h.round(worker.Down{Peer: mallory})
	for n := range useraccounts.MaxLookUps {
		h.finds(fmt.Sprint("u", n), useraccounts.Absent)
	}
	if n := worker.Sizes(h.core); n["offers.residents.open.of"]+n["offers.residents.held.of"] != 0 {
		t.Errorf("without lookups there are still counts: %v", n)
	}
}

// If a scheduler makes up users, only users of its own are forgotten for them, however many it makes up.
func TestMadeUpUsersDoNotDisplaceOthers(t *testing.T) {
	h := newHostWithAccounts(t)
	for n := range uint64(50) {
		user := fmt.Sprint("ada", n)
		h.asks(n+1, user)
		h.finds(user, useraccounts.Absent)
	}
	founding, hers := job.FoundFrom(mallory, job.Founding{})
	h.round(worker.Up{Peer: mallory})
	h.says(mallory, contract.Owns{Groups: []contract.GroupEpoch{{Group: hers, Epoch: epoch(1), Founding: founding}}})
	for n := range uint64(10_000) {
		m := offer(n+1, job.Attempt{Job: job.NewID(hers, n+1), N: 1}, cpu)
		m.Group, m.User = hers, fmt.Sprint("u", n)
		if e := h.says(mallory, m); len(e.LookUp) != 1 {
			t.Fatalf("user %d is not looked up", n)
		}
		h.finds(m.User, useraccounts.Absent)
		clear(h.sent)
	}
	for n := range uint64(50) {
		if who := h.asks(100+n, fmt.Sprint("ada", n)); len(who) != 0 {
			t.Fatalf("looked up again: %v, want none", who)
		}
		if d := one[contract.Decline](h, amy); !d.NoUser {
			t.Fatalf("decline = %+v, want NoUser", d)
		}
	}
}
