package worker_test

// The memory of a core does not grow with the work that it has done.

import (
	"fmt"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker"
	"github.com/musterhq/muster/worker/driver"
)

// A core keeps no more after 20,000 short tasks than after the first thousand. The tasks belong to 50 users and several
// schedulers, with broken sessions, refusals, cancels, lapses and renewals.
func TestMemoryDoesNotGrowWithTasks(t *testing.T) {
	cfg := config(2)
	cfg.Limits = limits(t, map[string]string{"per_user.tasks": "2"})
	h := newHost(t, cfg)
	owners := []job.Peer{"s0", "s1", "s2"}
	for i, p := range owners {
		h.owner(p, job.Group(20+i))
	}
	var early map[string]int
	const tasks = 20_000
	for n := uint64(1); n <= tasks; n++ {
		i := int(n % 3)
		p, g := owners[i], job.Group(20+i)
		m := theirs(g, n, n, gpus(1))
		m.User, m.Age = fmt.Sprint("u", n%50), time.Duration(n%7)*time.Second
		h.says(p, m, m)
		s := contract.Start{Offer: n, Attempt: m.Attempt, Group: g, Epoch: epoch(1), User: m.User, File: file(spec(gpus(1)))}
		for _, c := range got[contract.Commit](h, p) {
			s.Session = c.Session
		}
		switch n % 97 {
		case 1:
			h.says(p, contract.Release{Offer: n})
		case 2:
			h.pass(contract.ReserveFor + time.Second)
		case 3:
			h.says(p, s, contract.Cancel{Attempt: m.Attempt, Group: g, Epoch: epoch(1)})
			h.says(p, contract.Ack{Attempt: m.Attempt, Group: g, Epoch: epoch(1), N: 4})
		case 4:
			h.round(worker.Down{Peer: p}, worker.Up{Peer: p})
			fallthrough
		default:
			h.says(p, s, s)
			h.round(driver.Event{Attempt: m.Attempt, Kind: driver.Started, PID: 9})
			over := m
			for k := range uint64(3) { // one more than the user may hold
				over.ID, over.Attempt.N = 1_000_000+3*n+k, int(k)+2
				over.Need = cpu
				h.says(p, over)
				h.says(p, contract.Release{Offer: over.ID})
			}
			end := exited(m.Attempt, int(n%2))
			h.round(end, worker.StopFailed{Attempt: m.Attempt})
			h.says(p, contract.Ack{Attempt: m.Attempt, Group: g, Epoch: epoch(1), N: 4})
		}
		if n%50 == 0 { // hellos, faults and refusals of all kinds
			h.says(p, contract.Owns{Groups: []contract.GroupEpoch{{Group: g, Epoch: epoch(1)}}}, contract.Owns{Groups: []contract.GroupEpoch{{Group: g, Epoch: epoch(1)}}})
			h.round(fault(gone), worker.DeviceRestored{UUID: "GPU-a"}, worker.Drain{})
			big := theirs(g, 2_000_000+n, 2_000_000+n, gpus(2))
			h.says(p, big, theirs(g, 3_000_000+n, n, gpus(1)))
			h.pass(2 * contract.MaxOfferWait)
		}
		h.pass(10 * time.Millisecond)
		for _, q := range owners {
			h.renew(q)
		}
		clear(h.sent)
		if n == 1000 || n == tasks {
			h.pass(5 * time.Minute)
			for _, q := range owners {
				h.renew(q)
			}
			sizes := worker.Sizes(h.core)
			if n == tasks {
				for what, size := range sizes {
					if size > early[what]+16 {
						t.Errorf("%s: %d after %d tasks, %d after 1000, want at most %v", what, size, tasks, early[what], early[what]+16)
					}
				}
			}
			early = sizes
		}
	}
	if v := h.core.View(); v.Running+v.Queued > 0 || len(h.records) > 0 || v.Free.CPUs != 8 {
		t.Fatalf("%d records, view %+v, want none, nothing running or queued and 8 CPUs free", len(h.records), v)
	}
	for what, size := range early {
		if size > 64 {
			t.Errorf("%s holds %d after all tasks have ended, want at most 64", what, size)
		}
	}
}

// Events that are repeated many times do not each set a timer.
func TestRepeatedEventsDoNotAddTimers(t *testing.T) {
	for name, swarm := range map[string]func(h *host){
		"faults": func(h *host) { h.round(fault(gone)) },
		"new epochs": func(h *host) {
			e := h.claims[group].Epoch
			e.Term++
			h.says(amy, contract.Owns{Groups: []contract.GroupEpoch{{Group: group, Epoch: e}}})
		},
		"sessions": func(h *host) { h.round(worker.Down{Peer: amy}, worker.Up{Peer: amy}) },
		"drains": func(h *host) {
			h.round(worker.Drain{On: true, Deadline: h.now.Wall.Add(time.Hour)}, worker.Drain{})
		},
		"renewed offers": func(h *host) {
			m := offer(1, attempt(1, 1), gpus(2))
			m.Wait = time.Minute
			h.says(amy, m)
		},
		"released offers": func(h *host) {
			m := offer(1, attempt(1, 1), gpus(2))
			m.Wait = time.Minute
			h.says(amy, m, contract.Release{Offer: 1})
		},
		"stops that fail": func(h *host) { h.round(worker.StopFailed{Attempt: attempt(9, 1)}) },
	} {
		t.Run(name, func(t *testing.T) {
			h, _ := newHostWithRealGPUs(t)
			h.says(amy, offer(5, attempt(5, 1), gpus(1)))
			for range 1000 {
				h.jump(time.Microsecond)
				swarm(h)
				clear(h.sent)
			}
			if n, known := worker.Sizes(h.core)["turn.Timers.heap.all"]; !known || n > 20 {
				t.Errorf("%d timers, known: %v, want at most 20: %v", n, known, worker.Sizes(h.core))
			}
		})
	}
}
