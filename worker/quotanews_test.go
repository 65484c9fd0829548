package worker_test

// A scheduler whose offer was declined for a user's quota is told once when the user may hold more. No other scheduler
// is told.

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker"
)

// told returns the users of whom a scheduler was told since the last call.
func (h *host) told(p job.Peer) []string {
	var out []string
	for _, a := range got[contract.Availability](h, p) {
		out = append(out, a.UnderQuota...)
	}
	return out
}

func (h *host) wantTold(p job.Peer, users ...string) {
	h.t.Helper()
	if have := h.told(p); !slices.Equal(have, users) {
		h.t.Fatalf("%s was told of %v, want %v", p, have, users)
	}
}

// over returns a host where ada has reached her quota, so that an offer of amy was declined.
func over(t *testing.T) (*tries, job.Attempt) {
	r := limited(t, map[string]string{"per_user.tasks": "1"})
	r.round(worker.Up{Peer: bob})
	a, ok := r.taken("ada", cpu)
	if !ok {
		t.Fatal("the first task was not accepted")
	}
	r.wantQuota("ada", cpu, "1 tasks")
	r.pass(time.Second)
	r.wantTold(amy)
	return r, a
}

func TestRefusedSchedulerIsToldWhenTheUserMayHoldMore(t *testing.T) {
	for name, change := range map[string]func(r *tries, a job.Attempt){
		"a task ends":   func(r *tries, a job.Attempt) { r.round(exited(a, 0)) },
		"limits change": func(r *tries, _ job.Attempt) { r.round(worker.LimitsChanged{Limits: limits(t, nil)}) },
		"one user's limit changes": func(r *tries, _ job.Attempt) {
			r.round(worker.LimitsChanged{Limits: limits(t, map[string]string{"users.ada.tasks": "2"})})
		},
	} {
		t.Run(name, func(t *testing.T) {
			r, a := over(t)
			change(r, a)
			r.wantTold(amy, "ada")
			r.wantTold(bob)
			if b, ok := r.taken("ada", cpu); ok { // once
				r.pass(time.Second)
				r.round(exited(b, 0))
			}
			r.pass(time.Second)
			r.wantTold(amy)
		})
	}
}

func TestSchedulerIsToldWhenAReservationEnds(t *testing.T) {
	for name, c := range map[string]struct {
		says contract.ToWorker
		pass time.Duration
	}{
		"released": {contract.Release{Offer: 1}, 0}, "lapsed": {nil, contract.ReserveFor + time.Second},
		"refused": {contract.Query{Attempt: attempt(1, 1), Group: group, Epoch: epoch(1), Store: store}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			r := limited(t, map[string]string{"per_user.tasks": "1"})
			r.says(amy, offer(1, attempt(1, 1), cpu))
			r.says(amy, offer(2, attempt(2, 1), cpu))
			if d := one[contract.Decline](r.host, amy); d.Reason.Word != job.ReasonQuota {
				t.Fatalf("decline = %+v, want Reason.Word %v", d, job.ReasonQuota)
			}
			r.pass(time.Second)
			r.wantTold(amy)
			if c.says != nil {
				r.says(amy, c.says)
			}
			r.pass(c.pass)
			r.wantTold(amy, "ada")
		})
	}
}

// Each scheduler with a declined offer is told, within the bound on Availability messages.
func TestEveryRefusedSchedulerIsTold(t *testing.T) {
	r, a := over(t)
	r.owner(bob, 8)
	r.says(bob, theirs(8, 1, 1, cpu))
	if d := one[contract.Decline](r.host, bob); d.Reason.Word != job.ReasonQuota {
		t.Fatalf("decline = %+v, want Reason.Word %v", d, job.ReasonQuota)
	}
	r.says(bob, contract.Release{Offer: 99})
	r.pass(time.Second)
	r.says(amy, offer(50, attempt(50, 1), job.Resources{Memory: 1})) // declined again
	r.pass(time.Second)
	o := offer(51, attempt(51, 1), cpu)
	o.User = "bea"
	r.says(amy, o) // changes what is free
	r.wantTold(amy)
	r.round(exited(a, 0))
	if n := r.told(amy); len(n) != 0 {
		t.Fatalf("told of %v too soon after the last Availability, want none", n)
	}
	r.pass(100 * time.Millisecond)
	r.wantTold(amy, "ada")
	r.wantTold(bob, "ada")
}

func TestRefusalsAreForgottenWithTheSession(t *testing.T) {
	r, a := over(t)
	r.round(worker.Down{Peer: amy}, worker.Up{Peer: amy})
	r.round(exited(a, 0))
	r.pass(time.Second)
	r.wantTold(amy)
	if n := worker.Refusals(r.core); n != 0 {
		t.Fatalf("%d refusals are kept, want 0", n)
	}
}

// refuseAll gives the first task of so many users a place each, and declines the second one.
func (r *tries) refuseAll(users int) {
	for i := range uint64(users) {
		for n := range uint64(2) {
			o := offer(2*i+n+1, attempt(2*i+n+1, 1), job.Resources{})
			o.User = fmt.Sprintf("u%05d", i)
			r.says(amy, o)
		}
	}
}

// If there are more users than fit into one message, the others follow in the next.
func TestManyUsersAreToldInSeveralMessages(t *testing.T) {
	r := limited(t, map[string]string{"per_user.tasks": "1"})
	const users = 2*contract.MaxUnderQuota + 10
	r.refuseAll(users)
	got[contract.Decline](r.host, amy)
	r.pass(time.Second)
	r.wantTold(amy)
	began := r.now.Boot
	r.round(worker.LimitsChanged{Limits: limits(t, nil)})
	var names []string
	for range 3 {
		a := one[contract.Availability](r.host, amy)
		if len(a.UnderQuota) > contract.MaxUnderQuota {
			t.Fatalf("%d names in one message, want at most %v", len(a.UnderQuota), contract.MaxUnderQuota)
		}
		names = append(names, a.UnderQuota...)
		r.pass(100 * time.Millisecond)
	}
	slices.Sort(names)
	if names = slices.Compact(names); len(names) != users || r.now.Boot.Sub(began) > time.Second {
		t.Fatalf("told of %d users in %v, want %v and at most %v", len(names), r.now.Boot.Sub(began), users, time.Second)
	}
	if a := got[contract.Availability](r.host, amy); len(a) > 0 {
		t.Fatalf("told without a change: %+v, want none", a)
	}
}

// If there are too many refusals, the oldest are dropped.
func TestRefusalsAreBounded(t *testing.T) {
	r := limited(t, map[string]string{"per_user.tasks": "1"})
	r.refuseAll(worker.MaxRefusals + 10)
	if n := worker.Refusals(r.core); n != worker.MaxRefusals {
		t.Fatalf("%d refusals are kept, want %v", n, worker.MaxRefusals)
	}
	clear(r.sent)
	r.round(worker.LimitsChanged{Limits: limits(t, nil)})
	r.pass(10 * time.Second)
	names := r.told(amy)
	slices.Sort(names)
	if len(names) != worker.MaxRefusals || names[0] != "u00010" {
		t.Fatalf(`told of %d, the first %s, want %v and "u00010"`, len(names), names[0], worker.MaxRefusals)
	}
	if n := worker.Refusals(r.core); n != 0 {
		t.Fatalf("%d refusals are kept, want 0", n)
	}
}

// A repeated refusal is kept once.
func TestRepeatedRefusalIsKeptOnce(t *testing.T) {
	r, _ := over(t)
	for i := range uint64(3 * worker.MaxRefusals) {
		r.says(amy, offer(100+i, attempt(100+i, 1), cpu))
		clear(r.sent)
	}
	if n := worker.Refusals(r.core); n != 1 {
		t.Fatalf("%d refusals are kept, want 1", n)
	}
}

// Of the tasks of one user that wait for a limit, the one with the highest priority starts first, whichever scheduler
// has it and whichever answers first. It also starts before one that arrives only then.
func TestHighestPriorityGoesFirstUnderALimit(t *testing.T) {
	r, a := over(t) // of amy, with the usual priority
	r.owner(bob, 8)
	r.says(bob, contract.Release{Offer: 99})
	high, low := theirs(8, 1, 1, cpu), offer(50, attempt(50, 1), cpu)
	high.Priority, low.Priority = 90, 10
	refused := func(p job.Peer) string {
		t.Helper()
		d := one[contract.Decline](r.host, p)
		if d.Reason.Word != job.ReasonQuota {
			t.Fatalf("decline %+v, want Reason.Word %v", d, job.ReasonQuota)
		}
		return d.Reason.Detail
	}
	r.says(bob, high)
	refused(bob)
	r.says(amy, low)
	refused(amy)
	r.pass(time.Second)
	r.told(amy)
	r.round(exited(a, 0))
	r.wantTold(bob, "ada")
	r.wantTold(amy)
	low.ID++
	r.says(amy, low)
	if why := refused(amy); !strings.Contains(why, "priority 90 of user ada") {
		t.Errorf(`declined: %s, want "priority 90 of user ada" in it`, why)
	}
	high.ID++
	r.says(bob, high)
	c := one[contract.Commit](r.host, bob)
	r.pass(2 * time.Second)
	r.wantTold(amy, "ada")
	low.ID++
	r.says(amy, low)
	if why := refused(amy); !strings.Contains(why, "holds 1 of at most 1") {
		t.Errorf(`declined: %s, want "holds 1 of at most 1" in it`, why)
	}
	r.says(bob, contract.Release{Offer: c.Offer})
	r.pass(time.Second)
	r.wantTold(amy, "ada")
	low.ID++
	r.says(amy, low)
	one[contract.Commit](r.host, amy)
}

// A scheduler that is told first and no longer needs the quota delays tasks with lower priorities by a second.
func TestUnusedTurnOfTheHighestPriorityDelaysOthersByASecond(t *testing.T) {
	r, a := over(t)
	r.owner(bob, 8)
	high := theirs(8, 1, 1, cpu)
	high.Priority = 90
	r.says(bob, high)
	got[contract.Decline](r.host, bob)
	r.pass(time.Second)
	r.round(exited(a, 0))
	r.wantTold(amy)
	r.pass(1200 * time.Millisecond)
	r.wantTold(amy, "ada")
	r.taken("ada", cpu)
	r.pass(2 * time.Second)
	if n := worker.Refusals(r.core); n != 0 {
		t.Errorf("%d refusals are kept, want 0", n)
	}
}
