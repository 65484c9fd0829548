package worker_test

// The safety rules of docs/protocol.md that a worker has to keep.

import (
	"slices"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker"
	"github.com/musterhq/muster/worker/driver"
	"github.com/musterhq/muster/worker/leaseclock"
)

// R1 is a rule for the owner. The worker's part is to start nothing without a Start.
func TestR1CommitAloneStartsNothing(t *testing.T) {
	h := newHost(t, config(0))
	h.meet(amy, 1)
	h.says(amy, offer(1, attempt(1, 1), cpu))
	one[contract.Commit](h, amy)
	if h.records[attempt(1, 1)].Phase != contract.PhaseReserved {
		t.Fatal("the Commit was sent before the reservation was on disk")
	}
	for range 20 {
		h.pass(time.Second)
		if len(h.done.Start) > 0 {
			t.Fatal("a task was started without a Start")
		}
	}
	if _, kept := h.records[attempt(1, 1)]; kept {
		t.Fatal("the lapsed reservation is still on disk")
	}
}

func TestR2OlderEpochIsStale(t *testing.T) {
	a := attempt(1, 1)
	commands := map[string]contract.ToWorker{
		"offer":   contract.Offer{ID: 9, Attempt: attempt(2, 1), Group: group, Epoch: epoch(4), Need: cpu},
		"start":   contract.Start{Offer: 1, Attempt: attempt(2, 1), Group: group, Epoch: epoch(4), File: file(spec(cpu))},
		"query":   contract.Query{Attempt: attempt(3, 1), Group: group, Epoch: epoch(4), Store: store},
		"signal":  contract.Signal{Attempt: a, Group: group, Epoch: epoch(4), Number: 10},
		"cancel":  contract.Cancel{Attempt: a, Group: group, Epoch: epoch(4)},
		"renewed": contract.Renewed{Group: group, Epoch: epoch(4)},
		"owns":    contract.Owns{Groups: []contract.GroupEpoch{{Group: group, Epoch: epoch(4)}}},
	}
	for name, m := range commands {
		t.Run(name, func(t *testing.T) {
			h := newHost(t, config(0))
			s := h.meet(amy, 1)
			h.run(amy, 1, a, s, cpu)
			h.meet(amy, 5)
			got[contract.Event](h, amy)
			before := len(h.records)
			e := h.says(amy, m)
			stale := one[contract.Stale](h, amy)
			if stale.Epoch != epoch(5) || stale.Owner != amy {
				t.Fatalf("stale = %+v, want epoch 1.5 of amy", stale)
			}
			if len(e.Start)+len(e.Stop)+len(e.Signal)+len(e.Extend) > 0 || len(h.records) != before {
				t.Fatalf("an old owner was obeyed: %+v", e)
			}
		})
	}
}

func TestR2EpochIsOnDiskBeforeAnythingIsDone(t *testing.T) {
	h := newHost(t, config(0))
	s := h.meet(amy, 1)
	h.run(amy, 1, attempt(1, 1), s, cpu)
	h.failing = true
	h.jump(time.Second)
	h.round(worker.Up{Peer: bob})
	worker.Bind(h.core, group, bob)
	h.says(bob, contract.Owns{Groups: []contract.GroupEpoch{{Group: group, Epoch: epoch(5)}}})
	h.jump(time.Second)
	r := one[contract.Renew](h, bob)
	e := h.says(bob,
		answerTo(r, 5, true),
		contract.Signal{Attempt: attempt(1, 1), Group: group, Epoch: epoch(5), Number: 10})
	if len(e.Extend)+len(e.Signal) > 0 {
		t.Fatalf("acted under an epoch that is not on disk: %+v", e)
	}
	h.failing = false
	h.jump(time.Second)
	e = h.round()
	if h.claims[group].Epoch != epoch(5) || len(e.Extend) != 1 {
		t.Fatalf("after the disk is back: epoch %v, extended %v, want Epoch %v and 1 of them", h.claims[group], e.Extend, epoch(5))
	}
	// The epoch survives a restart.
	h.boot(driver.Event{Attempt: attempt(1, 1), Kind: driver.Started, PID: 42})
	h.round(worker.Up{Peer: bob})
	h.says(bob, contract.Owns{Groups: []contract.GroupEpoch{{Group: group, Epoch: epoch(4)}}})
	one[contract.Stale](h, bob)
}

func TestR3DeadlineCountsFromTheRequest(t *testing.T) {
	h := newHost(t, config(0))
	s := h.meet(amy, 1)
	task := h.run(amy, 1, attempt(1, 1), s, cpu)
	if want := h.now.Boot.Add(job.DefaultLease); task.Deadline != want {
		t.Fatalf("first deadline %v, want %v", task.Deadline, want)
	}
	h.pass(contract.RenewEvery)
	r := one[contract.Renew](h, amy)
	if !slices.Equal(r.Live, []job.Attempt{attempt(1, 1)}) || r.Session != s || r.Store != store {
		t.Fatalf("renew = %+v, want Live %v, Session %v and Store %v", r, []job.Attempt{attempt(1, 1)}, s, store)
	}
	h.jump(20 * time.Second) // the answer is slow
	e := h.says(amy, answerTo(r, 1, true))
	if want := leaseclock.BootTime(r.Clock).Add(job.DefaultLease); e.Extend[attempt(1, 1)] != want {
		t.Fatalf("extended to %v, want %v", e.Extend, want)
	}
	// The same answer does not count again.
	h.jump(time.Second)
	if e = h.says(amy, answerTo(r, 1, true)); len(e.Extend) > 0 {
		t.Fatal("an answer counted twice")
	}
}

func TestR3StartCarriesTheDeadlineOfTheLastRenewal(t *testing.T) {
	h := newHost(t, config(0))
	s := h.meet(amy, 1)
	anchor := h.now.Boot
	h.jump(9 * time.Second)
	h.says(amy, offer(1, attempt(1, 1), cpu))
	h.jump(9 * time.Second)
	e := h.says(amy, start(1, attempt(1, 1), s, cpu))
	if len(e.Start) != 1 || e.Start[0].Deadline != anchor.Add(job.DefaultLease) {
		t.Fatalf("start = %+v, want deadline %v", e.Start, anchor.Add(job.DefaultLease))
	}
}

// R4 is a rule for the owner. It relies on no deadline being later than one lease after the last answered Renew. So a
// deadline that has passed is never moved.
func TestR4LapsedAttemptIsNotExtended(t *testing.T) {
	h := newHost(t, config(0))
	s := h.meet(amy, 1)
	sp := spec(cpu)
	sp.Lease = job.Duration(job.MinLease)
	h.says(amy, offer(1, attempt(1, 1), cpu))
	m := start(1, attempt(1, 1), s, cpu)
	m.File = file(sp)
	e := h.says(amy, m)
	if len(e.Start) != 1 {
		t.Fatalf("the task was not started: %+v", h.sent[amy])
	}
	h.pass(12 * time.Second)
	rs := got[contract.Renew](h, amy)
	if len(rs) == 0 {
		t.Fatal("a lease of 30 s is not renewed within 12 s")
	}
	h.jump(30 * time.Second)
	if e = h.says(amy, answerTo(rs[0], 1, true)); len(e.Extend) > 0 {
		t.Fatalf("a lapsed deadline was moved: %v, want none", e.Extend)
	}
}

func TestR6TombstoneIsOnDiskBeforeTheAnswer(t *testing.T) {
	h := newHost(t, config(0))
	s := h.meet(amy, 1)
	h.failing = true
	h.says(amy, contract.Query{Attempt: attempt(1, 1), Group: group, Epoch: epoch(1), Store: store})
	if ev := got[contract.Event](h, amy); len(ev) > 0 {
		t.Fatalf("answered %+v without a tombstone on disk, want none", ev)
	}
	h.failing = false
	h.jump(time.Second)
	h.round()
	if ev := one[contract.Event](h, amy); ev.Refused == "" || ev.Exit != nil || ev.N != 1 {
		t.Fatalf("answer %+v, want a refusal", ev)
	}
	if h.records[attempt(1, 1)].Phase != contract.PhaseRefused {
		t.Fatal("there is no tombstone")
	}
	// The attempt is never started after that, not even after a restart.
	h.says(amy, offer(1, attempt(1, 1), cpu))
	one[contract.Decline](h, amy)
	h.says(amy, start(1, attempt(1, 1), s, cpu))
	if one[contract.Event](h, amy).Refused == "" {
		t.Fatal("the Start was not refused")
	}
	h.boot()
	h.meet(amy, 1)
	if one[contract.Event](h, amy).Refused == "" {
		t.Fatal("the tombstone was forgotten by a restart")
	}
	h.says(amy, contract.Ack{Attempt: attempt(1, 1), N: 1})
	if len(h.records) > 0 {
		t.Fatalf("acknowledged, but kept: %v, want none", h.records)
	}
}

func TestR6QueryRefusesAReservedAttempt(t *testing.T) {
	h := newHost(t, config(0))
	s := h.meet(amy, 1)
	h.says(amy, offer(1, attempt(1, 1), cpu))
	h.says(amy, contract.Query{Attempt: attempt(1, 1), Group: group, Epoch: epoch(1), Store: store})
	if one[contract.Event](h, amy).Refused == "" {
		t.Fatal("the reserved attempt was not refused")
	}
	h.says(amy, contract.Ack{Attempt: attempt(1, 1), N: 1})
	e := h.says(amy, start(1, attempt(1, 1), s, cpu)) // it arrives late
	if len(e.Start) > 0 {
		t.Fatal("started though the worker answered that it never would")
	}
}

func TestR6AnotherStoreProvesNothing(t *testing.T) {
	h := newHost(t, config(0))
	h.meet(amy, 1)
	h.says(amy, contract.Query{Attempt: attempt(1, 1), Group: group, Epoch: epoch(1), Store: "wiped"})
	if ev := got[contract.Event](h, amy); len(ev)+len(h.records) > 0 {
		t.Fatalf("answered for another store: %+v", ev)
	}
}

// R7 and R8 are rules for the owner. If it breaks them, the worker still finds the tombstone or the record. An
// acknowledged attempt is not started again either.
func TestR7AcknowledgedAttemptIsNotStartedAgain(t *testing.T) {
	h := newHost(t, config(0))
	s := h.meet(amy, 1)
	h.run(amy, 1, attempt(1, 1), s, cpu)
	h.round(exited(attempt(1, 1), 0))
	e := h.says(amy, contract.Ack{Attempt: attempt(1, 1), N: 4})
	if !slices.Equal(e.Forget, []job.Attempt{attempt(1, 1)}) || len(h.records) > 0 {
		t.Fatalf("acknowledged, but kept: %v, forgotten %v, want %v and none", h.records, e.Forget, []job.Attempt{attempt(1, 1)})
	}
	if e = h.says(amy, start(1, attempt(1, 1), s, cpu)); len(e.Start) > 0 {
		t.Fatal("an acknowledged attempt was started again")
	}
}

func TestR8NewOwnerFindsRunningAttempts(t *testing.T) {
	h := newHost(t, config(0))
	s := h.meet(amy, 1)
	h.run(amy, 1, attempt(1, 1), s, cpu)
	h.round(worker.Down{Peer: amy})
	h.round(worker.Up{Peer: bob})
	worker.Bind(h.core, group, bob)
	h.says(bob, contract.Owns{Groups: []contract.GroupEpoch{{Group: group, Epoch: epoch(2)}}})
	h.wantStates(bob, job.Starting, job.Running)
	r := one[contract.Renew](h, bob)
	if !slices.Equal(r.Live, []job.Attempt{attempt(1, 1)}) {
		t.Fatalf("renew = %+v, want Live %v", r, []job.Attempt{attempt(1, 1)})
	}
	h.says(bob, contract.Query{Attempt: attempt(1, 1), Group: group, Epoch: epoch(2), Store: store})
	h.wantStates(bob, job.Running)
	h.round(exited(attempt(1, 1), 0))
	h.wantStates(bob, job.Completing, job.Succeeded)
}

func TestR9StartIsIdempotent(t *testing.T) {
	h := newHost(t, config(0))
	s := h.meet(amy, 1)
	a := attempt(1, 1)
	h.run(amy, 1, a, s, cpu)
	h.wantStates(amy, job.Starting, job.Running)
	again := func() []job.State {
		if e := h.says(amy, start(1, a, s, cpu)); len(e.Start) > 0 {
			t.Fatal("the attempt was started twice")
		}
		return h.states(amy)
	}
	if st := again(); !slices.Equal(st, []job.State{job.Running}) {
		t.Fatalf("answered %v, want RUNNING", st)
	}
	h.round(exited(a, 3))
	got[contract.Event](h, amy)
	h.jump(worker.SessionLease + time.Second) // a known attempt is answered even without a lease
	if st := again(); !slices.Equal(st, []job.State{job.Failed}) {
		t.Fatalf("answered %v, want FAILED", st)
	}
}

func TestR3LeaseOfASessionCountsFromTheRequest(t *testing.T) {
	h := newHost(t, config(0))
	s := h.meet(amy, 1)
	h.pass(contract.RenewEvery)
	r := one[contract.Renew](h, amy)
	h.jump(20 * time.Second)
	h.says(amy, answerTo(r, 1, true))
	e := h.says(amy, offer(1, attempt(1, 1), cpu))
	if len(e.Start) > 0 {
		t.Fatal("started by an offer")
	}
	e = h.says(amy, start(1, attempt(1, 1), s, cpu))
	if want := leaseclock.BootTime(r.Clock).Add(job.DefaultLease); len(e.Start) != 1 || e.Start[0].Deadline != want {
		t.Fatalf("start = %+v, want deadline %v", e.Start, want)
	}
	// A duplicate answer does not count, even if it does not keep the attempt.
	if e = h.says(amy, answerTo(contract.Renew{
		Group: group, Clock: r.Clock, Session: s, Live: []job.Attempt{attempt(1, 1)},
	}, 1, false)); len(e.Stop) > 0 {
		t.Fatal("a duplicate answer counted")
	}
}

func TestStartOfAnotherOfferIsRefused(t *testing.T) {
	for _, lapse := range []bool{false, true} {
		h := newHost(t, config(0))
		s := h.meet(amy, 1)
		h.says(amy, offer(1, attempt(1, 1), cpu))
		if lapse {
			h.pass(contract.ReserveFor + time.Second)
		}
		if e := h.says(amy, start(9, attempt(1, 1), s, cpu)); len(e.Start) > 0 {
			t.Fatalf("started by another offer; lapsed before: %v", lapse)
		}
	}
}

// A task whose lease would end soon is not started. R4 would not allow it to run on.
func TestR4StartNearTheEndOfTheLeaseIsRefused(t *testing.T) {
	for age, starts := range map[time.Duration]bool{5 * time.Second: true, 20 * time.Second: false} {
		h := newHost(t, config(0))
		s := h.meet(amy, 1)
		h.jump(age)
		h.says(amy, offer(1, attempt(1, 1), cpu))
		m := start(1, attempt(1, 1), s, cpu)
		m.File = edited(m.File, func(s *job.Spec) { s.Lease = job.Duration(job.MinLease) })
		if e := h.says(amy, m); (len(e.Start) == 1) != starts {
			t.Fatalf("renewed %v ago: %d started, want a start only with enough of the lease", age, len(e.Start))
		}
		if r := got[contract.Renew](h, amy); !starts && len(r) != 1 {
			t.Fatal("the Commit did not request a renewal")
		}
	}
}

// For each task the ledger is synced once, before the process is started.
func TestLedgerIsSyncedOnceBeforeAStart(t *testing.T) {
	h := newHost(t, config(0))
	s := h.meet(amy, 1)
	first, two := attempt(1, 1), attempt(2, 1)
	wrote := func(what string, synced bool) {
		t.Helper()
		if h.wrote.Empty() || h.wrote.Sync != synced {
			t.Errorf("%s: wrote %+v, want it synced only before a start", what, h.wrote)
		}
	}
	h.says(amy, offer(1, first, cpu))
	wrote("reservation", false)
	h.says(amy, start(1, first, s, cpu))
	wrote("start", true)
	h.round(driver.Event{Attempt: first, Kind: driver.Started, PID: 42})
	wrote("running", false)
	h.round(exited(first, 3))
	wrote("end, which the driver has on disk", false)
	h.says(amy, contract.Ack{Attempt: first, N: 4})
	wrote("removal", false)
	h.says(amy, offer(2, two, cpu))
	h.says(amy, start(2, two, s, cpu))
	h.round(driver.Event{Attempt: two, Kind: driver.Failed, Exit: job.Exit{State: job.Failed, Code: 126}})
	wrote("end of an attempt that was never started, which the driver may not know", true)
	h.says(amy, contract.Query{Attempt: attempt(3, 1), Group: group, Epoch: epoch(1), Store: store})
	wrote("refusal", true)
	worker.Bind(h.core, group, bob)
	h.says(bob, contract.Owns{Groups: []contract.GroupEpoch{{Group: group, Epoch: epoch(2)}}})
	wrote("epoch", true)
}

// A lease of 30 s is nearly over when its task is to start. The task waits for the answer to the Renew that the Commit
// has caused, and is not refused.
func TestStartWaitsForTheRenewalOfItsCommit(t *testing.T) {
	h := newHost(t, config(0))
	s := h.meet(amy, 1)
	h.jump(25 * time.Second)
	got[contract.Renew](h, amy)
	h.says(amy, offer(1, attempt(1, 1), cpu))
	r := one[contract.Renew](h, amy)
	m := start(1, attempt(1, 1), s, cpu)
	m.File = edited(m.File, func(s *job.Spec) { s.Lease = job.Duration(job.MinLease) })
	if e := h.says(amy, m); len(e.Start) > 0 || len(got[contract.Event](h, amy)) > 0 {
		t.Fatalf("started or refused before the answer: %+v", e)
	}
	if e := h.says(amy, m); len(e.Start) > 0 || len(got[contract.Event](h, amy)) > 0 {
		t.Fatalf("started or refused after a second Start: %+v", e)
	}
	e := h.says(amy, answerTo(r, 1, true))
	if len(e.Start) != 1 || e.Start[0].Deadline != leaseclock.BootTime(r.Clock).Add(job.MinLease) {
		t.Fatalf("start = %+v, want a deadline of %v", e.Start, leaseclock.BootTime(r.Clock).Add(job.MinLease))
	}

	// If no answer comes, the attempt is refused in the end.
	h = newHost(t, config(0))
	s = h.meet(amy, 1)
	h.jump(25 * time.Second)
	h.says(amy, offer(1, attempt(1, 1), cpu))
	m.Session = s
	h.says(amy, m)
	h.pass(6 * time.Second)
	if r := h.records[attempt(1, 1)]; r.Phase != contract.PhaseRefused {
		t.Fatalf("record = %+v, want Phase %v", r, contract.PhaseRefused)
	}
}
