package worker_test

// What one hostile scheduler can make a host remember and reserve.

import (
	"testing"
	"time"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker"
	"github.com/musterhq/muster/worker/driver"
)

var theirGroup = group + 5

// A scheduler queries attempts that never existed, without end, and acknowledges nothing. The host keeps a bounded
// number of its refusals, forgets them later, and accepts tasks of others meanwhile, even after a restart.
func TestFloodOfQueriesIsBounded(t *testing.T) {
	h := newHost(t, config(0))
	s := h.meet(amy, 1)
	h.round(worker.Up{Peer: mallory})
	for i := range job.Group(16) {
		worker.Bind(h.core, theirGroup+i, mallory)
	}
	for batch := range 100 {
		var asks []contract.ToWorker
		for i := range 400 {
			n := uint64(batch*400 + i)
			g := theirGroup + job.Group(i%16)
			asks = append(asks, contract.Query{Attempt: job.Attempt{Job: job.NewID(g, n), N: 1}, Group: g, Epoch: epoch(1), Store: store})
		}
		h.says(mallory, asks...)
		clear(h.sent)
	}
	if n := len(h.records); n > 4100 {
		t.Errorf("%d refusals are kept, want at most 4100", n)
	}
	for i, restart := range []bool{false, true} {
		if restart {
			h.boot(driver.Event{Attempt: attempt(1, 1), Kind: driver.Started, PID: 42})
			s = h.meet(amy, 1)
			h.round(worker.Up{Peer: mallory})
		}
		h.run(amy, uint64(i+1), attempt(uint64(i+1), 1), s, cpu)
	}
	h.says(amy, contract.Query{Attempt: attempt(9, 1), Group: group, Epoch: epoch(1), Store: store})
	if r := h.records[attempt(9, 1)]; r.Phase != contract.PhaseRefused {
		t.Errorf("amy's query: %+v, want Phase %v", r, contract.PhaseRefused)
	}
	for range 30 {
		h.pass(5 * time.Minute)
		h.renew(amy)
	}
	if n := len(h.records); n > 3 {
		t.Errorf("%d records are kept after hours, want at most 3", n)
	}
}

// A scheduler never acknowledges the ends of its tasks. In the end its offers are declined, and those of others are
// not.
func TestResultsWithoutAcknowledgementAreBounded(t *testing.T) {
	h := newHost(t, config(0))
	s := h.meet(amy, 1)
	h.owner(mallory, theirGroup)
	n := uint64(0)
	for ; n < 10_000; n++ {
		m := theirs(theirGroup, n+1, n+1, cpu)
		h.says(mallory, m)
		all := got[contract.Commit](h, mallory)
		if len(all) == 0 {
			break
		}
		h.says(mallory, contract.Start{Offer: m.ID, Attempt: m.Attempt, Group: theirGroup, Epoch: epoch(1), Session: all[0].Session, User: m.User, File: file(spec(cpu))})
		h.round(driver.Event{Attempt: m.Attempt, Kind: driver.Started, PID: 9})
		h.round(exited(m.Attempt, 0))
		clear(h.sent)
	}
	if n > 4096 {
		t.Errorf("%d results without acknowledgement are kept, want at most 4096", n)
	}
	h.run(amy, 1, attempt(1, 1), s, cpu)
}

// A scheduler takes all places again and again, with offers of the highest priority and age, and starts nothing.
// Another scheduler gets places within minutes at first, and most of the host in the end.
func TestSchedulerThatOnlyReservesLeavesRoomForOthers(t *testing.T) {
	for name, change := range map[string]func(m *contract.Offer){
		"tasks": func(*contract.Offer) {}, "gangs": func(m *contract.Offer) { m.Gang, m.Hold = 2, 2*time.Minute },
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t, config(0))
			h.meet(amy, 1)
			h.owner(mallory, theirGroup)
			id, got1, waited, longest := uint64(0), 0, time.Duration(0), time.Duration(0)
			for range 4 * 3600 { // seconds
				for range 8 {
					id++
					m := theirs(theirGroup, 1_000_000+id, id, cpu)
					m.Priority, m.Age, m.Wait = 100, 365*24*time.Hour, time.Minute
					change(&m)
					h.says(mallory, m)
				}
				id++
				a := attempt(id, 1)
				m := offer(id, a, cpu)
				m.Wait = time.Second
				h.says(amy, m)
				h.pass(time.Second)
				if len(got[contract.Commit](h, amy)) > 0 {
					got1++
					longest, waited = max(longest, waited), 0
				} else {
					waited += time.Second
				}
				h.says(amy, contract.Release{Offer: id})
				clear(h.sent)
				if id%900 == 0 {
					h.renew(amy)
				}
			}
			share := float64(got1) / (4 * 3600)
			t.Logf("amy got %.0f %% of what it asked for, and waited for %s at most", 100*share, max(longest, waited))
			if share < 0.8 || max(longest, waited) > 5*time.Minute {
				t.Errorf("amy got %.0f %% of what it asked for, and waited for %s at most, want at least 80 %% and at most 5 minutes", 100*share, max(longest, waited))
			}
		})
	}
}
