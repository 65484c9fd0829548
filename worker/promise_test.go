package worker_test

// Conditional Commits of gangs: which tasks are promised, and when they end.

import (
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker"
	"github.com/musterhq/muster/worker/driver"
)

// asks offers a member of a gang that may preempt.
func (f *filled) asks(number uint64, priority, devices int) contract.Offer {
	m := member(number, 1, gpus(devices))
	m.Priority, m.Preempt = priority, true
	return m
}

// A conditional Commit ends no task. Firm ends the tasks that are needed then, and the Commit follows when they have
// ended.
func TestConditionalCommitEndsTasksOnceItIsFirm(t *testing.T) {
	f := newFilled(t, 3)
	_, young, third := f.run(50, 1, true), f.run(50, 1, true), f.run(50, 1, true)
	m := f.asks(500, 90, 2)
	if e := f.says(amy, m); len(e.Stop) > 0 {
		t.Fatalf("stops %+v, want none", e.Stop)
	}
	if c := one[contract.Commit](f.host, amy); !c.Conditional || c.Offer != m.ID || c.Session == 0 {
		t.Fatalf("commit %+v, want a conditional one with a session", c)
	}
	// No other offer ends a promised task, and what a victim frees by itself is kept.
	if ended := f.ask(80, 2); len(ended) > 0 {
		t.Fatalf("%v end for another offer, want none", ended)
	}
	f.round(exited(third, 0))
	f.says(amy, offer(900, attempt(900, 1), gpus(1)))
	if cs := got[contract.Commit](f.host, amy); len(cs) > 0 {
		t.Fatalf("commits %+v, want none", cs)
	}
	m.Firm = true
	e := f.says(amy, m)
	if len(e.Stop) != 1 || e.Stop[0].Attempt != young {
		t.Fatalf("stops %+v, want %s", e.Stop, young)
	}
	if e := f.says(amy, m); len(e.Stop) > 0 || len(got[contract.Commit](f.host, amy)) > 0 {
		t.Fatalf("again: stops %+v, want none and no Commit", e.Stop)
	}
	f.round(driver.Event{Attempt: young, Kind: driver.Exited, Exit: job.Exit{State: job.Failed, Code: 143, Signal: 15}})
	if c := one[contract.Commit](f.host, amy); c.Conditional || c.Offer != m.ID || len(c.Devices) != 2 {
		t.Fatalf("commit %+v, want a Commit with 2 devices", c)
	}
	// Once firm, no other gang takes the place, and it can be started.
	f.says(amy, f.asks(1, 95, 3))
	for _, d := range got[contract.Decline](f.host, amy) {
		if d.Offer == m.ID {
			t.Fatalf("decline %+v, want another offer declined", d)
		}
	}
	s := startOf(m, contract.Commit{Session: f.session})
	s.Gang.Members[1].Node = "me"
	if e := f.says(amy, s); len(e.Start) != 1 {
		t.Fatal("the gang was not started")
	}
}

// A conditional Commit that is released, expires or loses its session leaves the tasks alone, and others may preempt
// them.
func TestEndOfAConditionalCommitLeavesTheTasks(t *testing.T) {
	for name, end := range map[string]func(*filled, contract.Offer){
		"released":     func(f *filled, m contract.Offer) { f.says(amy, contract.Release{Offer: m.ID}) },
		"runs out":     func(f *filled, _ contract.Offer) { f.pass(2 * time.Minute) },
		"disconnected": func(f *filled, _ contract.Offer) { f.round(worker.Down{Peer: amy}, worker.Up{Peer: amy}) },
	} {
		t.Run(name, func(t *testing.T) {
			f := newFilled(t, 1)
			low := f.run(50, 1, true)
			m := f.asks(500, 90, 1)
			f.says(amy, m)
			one[contract.Commit](f.host, amy)
			end(f, m)
			m.Firm = true
			if e := f.says(amy, m); len(e.Stop) > 0 {
				t.Fatalf("an offer that is not known any more ends %+v, want none", e.Stop)
			}
			if ds := got[contract.Decline](f.host, amy); len(ds) == 0 {
				t.Error("the conditional offer was not declined")
			}
			if ended := f.ask(80, 1); !slices.Equal(ended, []job.Attempt{low}) {
				t.Errorf("%v end for another offer, want %v", ended, []job.Attempt{low})
			}
		})
	}
}

// If all victims end by themselves, the Commit follows without Firm.
func TestCommitFollowsIfVictimsEndByThemselves(t *testing.T) {
	f := newFilled(t, 2)
	first, second := f.run(50, 1, true), f.run(50, 1, true)
	m := f.asks(500, 90, 2)
	f.says(amy, m)
	one[contract.Commit](f.host, amy)
	f.round(exited(first, 0))
	if cs := got[contract.Commit](f.host, amy); len(cs) > 0 {
		t.Fatalf("commits %+v, want none", cs)
	}
	f.round(exited(second, 0))
	if c := one[contract.Commit](f.host, amy); c.Conditional || len(c.Devices) != 2 {
		t.Errorf("commit %+v, want a Commit with 2 devices", c)
	}
}

// A gang that ranks first takes the tasks that were promised to another, which is told. It also takes a reservation, if
// it needs both.
func TestEarlierGangTakesAPromise(t *testing.T) {
	f := newFilled(t, 2)
	low := f.run(50, 1, true)
	held := member(700, 2, gpus(1))
	f.says(amy, held)
	one[contract.Commit](f.host, amy)
	promised := f.asks(600, 90, 1)
	promised.Order = 701 // so that it cannot revoke the reservation
	promised.Priority = 90
	held.Priority = 50
	f.says(amy, promised)
	c := one[contract.Commit](f.host, amy)
	if c.Conditional {
		t.Fatalf("commit %+v, want no condition: a reservation of a lower priority can be revoked", c)
	}
	one[contract.Decline](f.host, amy)
	first := f.asks(500, 95, 2)
	if e := f.says(amy, first); len(e.Stop) > 0 {
		t.Fatalf("stops %+v, want none", e.Stop)
	}
	if c := one[contract.Commit](f.host, amy); !c.Conditional || c.Offer != first.ID {
		t.Fatalf("commit %+v, want a conditional one", c)
	}
	if d := one[contract.Decline](f.host, amy); d.Offer != promised.ID {
		t.Fatalf("decline %+v, want Offer %v", d, promised.ID)
	}
	second := f.asks(400, 99, 2)
	f.says(amy, second)
	if d := one[contract.Decline](f.host, amy); d.Offer != first.ID {
		t.Fatalf("decline %+v, want Offer %v", d, first.ID)
	}
	one[contract.Commit](f.host, amy)
	second.Firm = true
	if e := f.says(amy, second); len(e.Stop) != 1 || e.Stop[0].Attempt != low {
		t.Fatalf("stops %+v, want 1 of them and [0].Attempt %v", e.Stop, low)
	}
}

// A firm offer is decided first, although another one ranks before it: that one may still revoke what the firm one may
// not.
func TestFirmOfferIsDecidedFirst(t *testing.T) {
	f := newFilled(t, 2)
	f.run(10, 1, true)
	held := f.asks(700, 92, 1)
	held.Preempt = false
	f.says(amy, held)
	one[contract.Commit](f.host, amy)
	firm := f.asks(600, 90, 1)
	f.says(amy, firm)
	firm.Firm = true
	if e := f.says(amy, firm); len(e.Stop) != 1 {
		t.Fatalf("stops %+v, want 1 of them", e.Stop)
	}
	one[contract.Commit](f.host, amy)
	first := f.asks(500, 95, 1)
	first.Preempt = false
	f.says(amy, first)
	if c := one[contract.Commit](f.host, amy); c.Offer != first.ID {
		t.Errorf("commit %+v, want Offer %v", c, first.ID)
	}
	if d := one[contract.Decline](f.host, amy); d.Offer != held.ID {
		t.Errorf("decline %+v, want Offer %v", d, held.ID)
	}
}

// Without enough preemptible tasks the offer of a gang is declined, and nothing is promised.
func TestGangIsDeclinedWithoutEnoughVictims(t *testing.T) {
	f := newFilled(t, 2)
	f.run(50, 1, true)
	f.run(50, 1, false)
	f.says(amy, f.asks(500, 90, 2))
	if d := one[contract.Decline](f.host, amy); !strings.Contains(d.Reason.Detail, "would make room") {
		t.Errorf(`decline %+v, want Reason.Detail "would make room" in it`, d)
	}
}

// Whatever happens before, all conditional Commits that are open can become firm at once: each becomes a Commit when
// its victims have ended. Before Firm no task ends for a gang.
func TestAllConditionalCommitsCanBecomeFirm(t *testing.T) {
	kept := 0
	rapid.Check(t, func(t *rapid.T) {
		h := newHost(t, config(4))
		session := h.meet(amy, 1)
		pick := func(name string, n int) int { return rapid.IntRange(0, n-1).Draw(t, name) }
		n := uint64(0)
		running := map[job.Attempt]bool{}
		run := func() {
			n++
			need := rapid.SampledFrom([]job.Resources{gpus(1), gpus(2), {CPUs: 2}, {CPUs: 1, GPUShare: 0.4}}).Draw(t, "holds")
			m := start(n, attempt(n, 1), session, need)
			m.File = edited(m.File, func(s *job.Spec) { s.Priority, s.Preemptible = pick("priority", 4)*10, pick("preemptible", 5) > 0 })
			h.says(amy, offer(n, m.Attempt, need))
			if len(got[contract.Commit](h, amy)) == 0 {
				h.says(amy, contract.Release{Offer: n})
				return
			}
			h.says(amy, m)
			h.round(driver.Event{Attempt: m.Attempt, Kind: driver.Started, PID: int(n)})
			running[m.Attempt] = true
		}
		for range 8 {
			run()
		}
		asked, stands := map[uint64]contract.Offer{}, map[uint64]bool{}
		heard := func(e worker.Effects) {
			for _, s := range e.Stop {
				for _, m := range asked {
					if m.Gang > 0 && strings.Contains(s.Reason, string(m.Attempt.Job)) && !m.Firm {
						t.Fatalf("%s ends for a gang that is not firm", s.Attempt)
					}
				}
			}
			for _, c := range got[contract.Commit](h, amy) {
				stands[c.Offer] = c.Conditional
			}
			for _, d := range got[contract.Decline](h, amy) {
				delete(stands, d.Offer)
				delete(asked, d.Offer)
			}
		}
		ends := func(a job.Attempt) {
			delete(running, a)
			heard(h.round(exited(a, 0)))
		}
		gang := func(*rapid.T) {
			n++
			m := member(n, 1, rapid.SampledFrom([]job.Resources{gpus(1), gpus(2), gpus(4), {CPUs: 3}, {CPUs: 6}}).Draw(t, "need"))
			m.ID, m.Priority, m.Preempt, m.Order = n, 50+10*pick("priority", 3), pick("preempt", 4) > 0, uint64(pick("order", 9))
			asked[n] = m
			heard(h.says(amy, m))
		}
		t.Repeat(map[string]func(*rapid.T){
			"gang": gang,
			"task": func(*rapid.T) {
				n++
				m := offer(n, attempt(n, 1), rapid.SampledFrom([]job.Resources{gpus(1), gpus(2), {CPUs: 4}}).Draw(t, "need"))
				m.Priority, m.Preempt, m.Wait, m.Age = 50+10*pick("priority", 3), pick("preempt", 2) > 0, time.Minute, time.Duration(pick("age", 9))*time.Second
				asked[n] = m
				heard(h.says(amy, m))
			},
			"ends": func(*rapid.T) {
				for _, r := range h.core.Attempts() {
					if running[r.Attempt] && pick("this", 4) == 0 {
						ends(r.Attempt)
						return
					}
				}
			},
			"cancelled": func(*rapid.T) {
				for _, r := range h.core.Attempts() {
					if running[r.Attempt] && pick("this", 4) == 0 {
						heard(h.says(amy, contract.Cancel{Attempt: r.Attempt, Group: group, Epoch: epoch(1), Grace: time.Minute, Reason: "enough"}))
						return
					}
				}
			},
			"released": func(*rapid.T) {
				id := n - uint64(pick("offer", 5))
				delete(asked, id)
				delete(stands, id)
				heard(h.says(amy, contract.Release{Offer: id}))
			},
			"time": func(*rapid.T) {
				h.jump(time.Duration(pick("time", 15)) * time.Second)
				heard(h.round())
			},
		})
		gang(t) // so that one more is requested at the end; otherwise few are conditional then
		var firm []contract.ToWorker
		for id := range n + 1 {
			if stands[id] {
				m := asked[id]
				m.Firm = true
				asked[id] = m
				firm = append(firm, m)
			}
		}
		heard(h.says(amy, firm...))
		for range 20 {
			for _, r := range h.core.Attempts() {
				if running[r.Attempt] && r.Reason != "" {
					ends(r.Attempt)
				}
			}
		}
		for _, m := range firm {
			id := m.(contract.Offer).ID
			if conditional, there := stands[id]; conditional || !there {
				t.Fatalf("offer %d had a promise: conditional %v, not declined %v, want a Commit", id, conditional, there)
			}
			kept++
		}
	})
	if kept < 5 {
		t.Errorf("only %d conditional Commits were made firm, want at least 5", kept)
	}
}
