package worker_test

// Sessions that a worker wants: one with each owner of an attempt that is not acknowledged.

import (
	"slices"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker"
	"github.com/musterhq/muster/worker/driver"
)

// wantSessions checks with which peers the last round has made a session wanted or unwanted.
func (h *host) wantSessions(want, unwant []job.Peer) {
	h.t.Helper()
	if !slices.Equal(h.done.Want, want) || !slices.Equal(h.done.Unwant, unwant) {
		h.t.Fatalf("wants %v, wants no more %v; want %v and %v", h.done.Want, h.done.Unwant, want, unwant)
	}
}

func TestSessionIsWantedUntilTheEndIsAcknowledged(t *testing.T) {
	a, b := attempt(1, 1), attempt(2, 1)
	h := newHost(t, config(2))
	s := h.meet(amy, 1)
	h.wantSessions(nil, nil)
	h.says(amy, offer(1, a, gpus(1)), offer(2, b, gpus(1)))
	h.wantSessions(nil, nil) // there are no events yet
	h.says(amy, start(1, a, s, gpus(1)))
	h.wantSessions([]job.Peer{amy}, nil)
	h.says(amy, start(2, b, s, gpus(1)))
	h.wantSessions(nil, nil)
	h.round(worker.Down{Peer: amy})
	h.wantSessions(nil, nil)
	h.round(worker.Up{Peer: amy})
	h.round(exited(a, 0), exited(b, 0))
	h.says(amy, contract.Ack{Attempt: a, N: 4})
	h.wantSessions(nil, nil)
	h.says(amy, contract.Ack{Attempt: b, N: 4})
	if len(h.records) > 0 {
		t.Fatalf("kept %+v, want none", h.records)
	}
	h.wantSessions(nil, []job.Peer{amy})
	// A tombstone must be reported too.
	h.says(amy, contract.Query{Attempt: attempt(3, 1), Group: group, Epoch: epoch(1), Store: store})
	h.wantSessions([]job.Peer{amy}, nil)
	h.says(amy, contract.Ack{Attempt: attempt(3, 1), N: 1}, contract.Query{Attempt: attempt(4, 1), Group: group, Epoch: epoch(1), Store: store})
	h.wantSessions(nil, nil) // the next tombstone comes in the same round
}

func TestRestartedWorkerWantsSessionsWithOwners(t *testing.T) {
	for name, term := range map[string]uint64{"the same epoch": 1, "a newer epoch on disk than in the records": 2} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t, config(2))
			h.owner(bob, 8)
			sa := h.meet(amy, 1)
			a := attempt(1, 1)
			h.run(amy, 1, a, sa, gpus(1))
			m := theirs(8, 1, 1, gpus(1))
			h.says(bob, m)
			c := one[contract.Commit](h, bob)
			h.says(bob, contract.Start{Offer: 1, Attempt: m.Attempt, Group: 8, Epoch: epoch(1), Session: c.Session, User: "ada", File: file(spec(gpus(1)))})
			h.round(exited(m.Attempt, 0)) // it has ended and is not acknowledged
			if term > 1 {
				h.meet(amy, term) // amy was restarted
			}
			h.boot(driver.Event{Attempt: a, Kind: driver.Started, PID: 42}, exited(m.Attempt, 0))
			h.wantSessions([]job.Peer{amy, bob}, nil)
			h.pass(time.Minute)
			h.round()
			h.wantSessions(nil, nil)
			h.round(worker.Up{Peer: bob})
			h.says(bob, contract.Owns{Groups: []contract.GroupEpoch{{Group: 8, Epoch: epoch(1)}}})
			h.says(bob, contract.Ack{Attempt: m.Attempt, Group: 8, Epoch: epoch(1), N: 3})
			h.wantSessions(nil, []job.Peer{bob})
		})
	}
}

// A lease survives a restart of the worker if there is a session with the owner in time.
func TestRestartedWorkerRenewsItsLeases(t *testing.T) {
	h := newHost(t, config(1))
	s := h.meet(amy, 1)
	a := attempt(1, 1)
	h.run(amy, 1, a, s, gpus(1))
	h.meet(amy, 2)
	h.cfg.Seed = 2
	h.boot(driver.Event{Attempt: a, Kind: driver.Started, PID: 42})
	if !slices.Contains(h.done.Want, amy) {
		t.Fatalf("wants %v", h.done.Want)
	}
	h.meet(amy, 2) // the session that it wanted
	h.pass(contract.RenewEvery)
	if e := h.says(amy, answerTo(one[contract.Renew](h, amy), 2, true)); len(e.Extend) != 1 {
		t.Fatalf("extended %v, want 1 of them", e.Extend)
	}
}

func TestNewOwnersSessionIsWanted(t *testing.T) {
	h := newHost(t, config(1))
	s := h.meet(amy, 1)
	h.run(amy, 1, attempt(1, 1), s, gpus(1))
	h.round(worker.Up{Peer: bob})
	worker.Bind(h.core, group, bob)
	h.round(worker.Message{From: bob, Msg: contract.Owns{Groups: []contract.GroupEpoch{{Group: group, Epoch: epoch(2)}}}})
	h.wantSessions([]job.Peer{bob}, []job.Peer{amy})
	h.says(mallory, contract.Owns{Groups: []contract.GroupEpoch{{Group: group, Epoch: epoch(3)}}})
	h.wantSessions(nil, nil)
}

// Another member that claims the owner's epoch does not become the owner, and its acknowledgement does not count.
func TestOwnerIsNotDisplacedUnderItsEpoch(t *testing.T) {
	h := newHost(t, config(1))
	s := h.meet(amy, 1)
	a := attempt(1, 1)
	h.run(amy, 1, a, s, gpus(1))
	h.round(exited(a, 0), worker.Up{Peer: mallory})
	h.says(mallory, contract.Owns{Groups: []contract.GroupEpoch{{Group: group, Epoch: epoch(1)}}})
	h.wantSessions(nil, nil)
	if n := len(got[contract.Event](h, mallory)) + len(got[contract.Renew](h, mallory)); n > 0 {
		t.Fatalf("it was sent %d messages, want 0", n)
	}
	h.says(mallory, contract.Ack{Attempt: a, Group: group, Epoch: epoch(1), N: 4})
	if _, kept := h.records[a]; !kept {
		t.Fatal("the acknowledgement of another member counted")
	}
}

// The scheduler of this host needs no session.
func TestNoSessionIsWantedWithThisHost(t *testing.T) {
	h := newHost(t, config(1))
	me := h.cfg.Profile.Peer
	s := h.meet(me, 1)
	h.run(me, 1, attempt(1, 1), s, gpus(1))
	h.wantSessions(nil, nil)
	h.boot(driver.Event{Attempt: attempt(1, 1), Kind: driver.Started, PID: 42})
	h.wantSessions(nil, nil)
}
