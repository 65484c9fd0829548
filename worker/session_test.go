package worker_test

// R5: a Start or an answer to a Renew that is minutes late does not count.

import (
	"slices"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker"
	"github.com/musterhq/muster/worker/leaseclock"
)

func TestR5SessionIsNewWhenNoLeaseIsLive(t *testing.T) {
	h := newHost(t, config(0))
	h.round(worker.Up{Peer: amy})
	h.says(amy, contract.Owns{Groups: []contract.GroupEpoch{{Group: group, Epoch: epoch(1)}}})
	first := one[contract.Renew](h, amy)
	h.pass(6 * time.Second)
	second := one[contract.Renew](h, amy)
	if first.Session == second.Session || first.Session == 0 || second.Session == 0 {
		t.Fatalf("two requests without a lease have the sessions %v and %v, want different ones", first.Session, second.Session)
	}
	// A late answer to the first request does not start a lease.
	h.says(amy, answerTo(first, 1, true))
	h.says(amy, offer(1, attempt(1, 1), cpu))
	if c := one[contract.Commit](h, amy); c.Session != 0 {
		t.Fatal("an abandoned session counts")
	}
	h.says(amy, start(1, attempt(1, 1), first.Session, cpu))
	if ev := one[contract.Event](h, amy); ev.Refused == "" {
		t.Fatalf("started under an abandoned session: %+v", ev)
	}
	h.says(amy, answerTo(second, 1, true))
	h.says(amy, offer(2, attempt(2, 1), cpu))
	if c := one[contract.Commit](h, amy); c.Session != second.Session {
		t.Fatalf("commit names session %v, want %v", c.Session, second.Session)
	}
}

// The daemon is stopped (SIGSTOP) for longer than a lease. Messages that waited in its queues must not count, although
// no timer has fired.
func TestR5LapseIsNoticedBeforeStartAndRenewed(t *testing.T) {
	for _, first := range []string{"start", "renewed"} {
		t.Run(first, func(t *testing.T) {
			h := newHost(t, config(0))
			s := h.meet(amy, 1)
			h.pass(contract.RenewEvery - time.Second)
			got[contract.Renew](h, amy)
			h.pass(2 * time.Second)
			h.says(amy, offer(1, attempt(1, 1), cpu))
			one[contract.Commit](h, amy)
			rs := got[contract.Renew](h, amy)
			r := contract.Renew{Group: group, Session: s, Clock: int64(h.now.Boot)}
			if len(rs) > 0 {
				r = rs[len(rs)-1]
			}
			h.jump(worker.SessionLease + time.Second)
			msgs := []contract.ToWorker{start(1, attempt(1, 1), s, cpu), answerTo(r, 1, true)}
			if first == "renewed" {
				slices.Reverse(msgs)
			}
			e := h.says(amy, msgs...)
			if len(e.Start) > 0 {
				t.Fatal("a delayed Start started a task")
			}
			if ev := one[contract.Event](h, amy); ev.Refused == "" {
				t.Fatalf("event %+v, want a refusal", ev)
			}
			if h.records[attempt(1, 1)].Phase != contract.PhaseRefused {
				t.Fatal("there is no tombstone")
			}
		})
	}
}

func TestR5StartOfAnotherSessionIsRefused(t *testing.T) {
	h := newHost(t, config(0))
	s := h.meet(amy, 1)
	h.says(amy, offer(1, attempt(1, 1), cpu))
	e := h.says(amy, start(1, attempt(1, 1), s+1, cpu))
	if len(e.Start) > 0 || one[contract.Event](h, amy).Refused == "" {
		t.Fatal("a Start of another session was not refused")
	}
	if f := h.core.View().Free; f.CPUs != 8 {
		t.Fatalf("the refused attempt still holds something: %+v, want CPUs 8", f)
	}
}

// A running task with a longer lease does not make a late Start valid.
func TestR5LongLeaseDoesNotKeepASession(t *testing.T) {
	for name, long := range map[string]func(*job.Spec){
		"lease of a day": func(s *job.Spec) { s.Lease = job.Duration(24 * time.Hour) },
		"hold":           func(s *job.Spec) { s.Partition = "hold" },
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t, config(0))
			s := h.meet(amy, 1)
			h.says(amy, offer(1, attempt(1, 1), cpu))
			h.jump(worker.SessionLease)
			m := start(1, attempt(1, 1), s, cpu)
			m.File = edited(m.File, long)
			if e := h.says(amy, m); len(e.Start) > 0 {
				t.Fatal("a Start of a lapsed session started a task")
			}
			if one[contract.Event](h, amy).Refused == "" {
				t.Fatal("the Start was not refused")
			}
		})
	}
}

func TestR5SessionWithoutAnAnswerIsNoLease(t *testing.T) {
	h := newHost(t, config(0))
	h.round(worker.Up{Peer: amy})
	h.says(amy, contract.Owns{Groups: []contract.GroupEpoch{{Group: group, Epoch: epoch(1)}}})
	r := one[contract.Renew](h, amy)
	h.says(amy, offer(1, attempt(1, 1), cpu), offer(2, attempt(2, 1), cpu))
	long := spec(cpu)
	long.Partition = "hold"
	for i, s := range []contract.Session{r.Session, 0} {
		m := start(uint64(i+1), attempt(uint64(i+1), 1), s, cpu)
		m.File = file(long)
		if e := h.says(amy, m); len(e.Start) > 0 {
			t.Fatalf("started under session %v without a lease", s)
		}
	}
}

func TestR5AnswerOfAnotherSessionIsNoLease(t *testing.T) {
	h := newHost(t, config(0))
	h.round(worker.Up{Peer: amy})
	h.says(amy, contract.Owns{Groups: []contract.GroupEpoch{{Group: group, Epoch: epoch(1)}}})
	r := one[contract.Renew](h, amy)
	r.Session++
	h.says(amy, answerTo(r, 1, true))
	h.says(amy, offer(1, attempt(1, 1), cpu))
	if c := one[contract.Commit](h, amy); c.Session != 0 {
		t.Fatalf("session %v is live, want 0", c.Session)
	}
}

// The disk works again only after the lease is over. The task that waited for it is not started.
func TestR5LapseWhileTheDiskFailsRefusesTheStart(t *testing.T) {
	h := newHost(t, config(0))
	s := h.meet(amy, 1)
	h.says(amy, offer(1, attempt(1, 1), cpu))
	h.failing = true
	h.says(amy, offer(2, attempt(2, 1), cpu))
	m := start(1, attempt(1, 1), s, cpu)
	m.File = edited(m.File, func(s *job.Spec) { s.Partition = "hold" })
	h.says(amy, m) // the write is not repeated yet
	h.failing = false
	h.jump(worker.SessionLease)
	if e := h.round(); len(e.Start) > 0 {
		t.Fatal("started without a lease")
	}
	if one[contract.Event](h, amy).Refused == "" {
		t.Fatal("the Start was not refused")
	}
}

// The daemon is paused until the lease has ended by what it knows. An answer that came meanwhile is read first, and
// extends the lease of the running task from the time of the request.
func TestR3AnswerThatIsReadLateCounts(t *testing.T) {
	for _, over := range []time.Duration{-time.Second, time.Second} {
		h := newHost(t, config(0))
		s := h.meet(amy, 1)
		a := attempt(1, 1)
		h.run(amy, 1, a, s, cpu)
		h.pass(contract.RenewEvery)
		r := got[contract.Renew](h, amy)
		asked := r[len(r)-1]
		late := leaseclock.BootTime(asked.Clock).Add(worker.SessionLease + over) // the lease before ended 20 s ago
		h.jump(late.Sub(h.now.Boot))
		e := h.says(amy, answerTo(asked, 1, true))
		if until, extended := e.Extend[a]; extended != (over < 0) || extended && until != leaseclock.BootTime(asked.Clock).Add(worker.SessionLease) {
			t.Errorf("read %s after the end of what it grants: extended %v until %v, want it extended only before the end", over, extended, until)
		}
	}
}
