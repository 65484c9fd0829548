package worker_test

// The cost of a task for its worker.

import (
	"testing"
	"time"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker"
	"github.com/musterhq/muster/worker/driver"
)

// BenchmarkTask measures one task from offer to acknowledgement, while others run and wait.
func BenchmarkTask(b *testing.B) {
	h := newHost(b, config(4))
	s := h.meet(amy, 1)
	tiny := job.Resources{Memory: 1 << 10}
	n := uint64(1)
	for range 1000 {
		h.run(amy, n, attempt(n, 1), s, tiny)
		n++
	}
	for i := range 16 {
		p := job.Peer([]byte{'p', byte('a' + i)})
		h.round(worker.Up{Peer: p})
		for range contract.MaxOffers {
			m := offer(n, attempt(n, 1), job.Resources{CPUs: 8, GPUs: 4})
			m.Wait, m.Priority = time.Minute, 1
			h.says(p, m)
			n++
		}
	}
	h.says(amy, offer(n, attempt(n, 1), gpus(1)))
	clear(h.sent)
	b.ReportAllocs()
	for b.Loop() {
		n++
		a := attempt(n, 1)
		h.says(amy, offer(n, a, tiny))
		h.says(amy, start(n, a, s, tiny))
		h.round(driver.Event{Attempt: a, Kind: driver.Started, PID: 9})
		h.round(exited(a, 0))
		h.says(amy, contract.Ack{Attempt: a, N: 4})
		clear(h.sent)
	}
}

// BenchmarkQueue measures one pass over 10,000 queued offers on a host with 1,006 tasks that have time limits. All
// offers have one of a few needs, or each has its own.
func BenchmarkQueue(b *testing.B) {
	for name, need := range map[string]func(i int) job.Resources{
		"few needs":  func(i int) job.Resources { return job.Resources{CPUs: 1, GPUs: 1 + i%8} },
		"many needs": func(i int) job.Resources { return job.Resources{CPUs: 1, Memory: job.Size(i), GPUs: 1 + i%8} },
	} {
		b.Run(name, func(b *testing.B) {
			h := newHost(b, config(8))
			s := h.meet(amy, 1)
			for i := range uint64(6) {
				m := timed(i+1, job.Resources{GPUs: 1}, time.Duration(i+1)*time.Hour)
				h.says(amy, m)
				h.begins(m, s)
			}
			for i := range 1000 {
				n := uint64(100 + i)
				m := timed(n, job.Resources{Memory: 1 << 10}, time.Duration(i+1)*time.Minute)
				h.says(amy, m)
				h.begins(m, s)
			}
			h.core.Flood(h.now, 10_000, amy, func(i int) contract.Offer {
				m := timed(uint64(10_000+i), need(i+1), time.Duration(i%100)*time.Hour)
				m.Need.GPUs = max(m.Need.GPUs, 3)
				return m
			})
			h.round()
			clear(h.sent)
			b.ReportAllocs()
			for b.Loop() {
				h.round(worker.LimitsChanged{}) // all offers are decided again
				clear(h.sent)
			}
			if v := h.core.View(); v.Queued != 10_000 {
				b.Fatalf("%d queued, want 10_000", v.Queued)
			}
		})
	}
}

// BenchmarkTaskAmongGangs measures the same task while 64 places are held for gangs and 16 gangs have a conditional
// Commit. A thousand waiting offers could revoke the places, but would still not fit.
func BenchmarkTaskAmongGangs(b *testing.B) {
	h := newHost(b, config(4))
	s := h.meet(amy, 1)
	tiny := job.Resources{Memory: 1 << 10}
	n := uint64(1)
	for range 1000 {
		h.run(amy, n, attempt(n, 1), s, tiny)
		n++
	}
	for range 4 {
		m := start(n, attempt(n, 1), s, gpus(1))
		m.File = edited(m.File, func(s *job.Spec) { s.Priority, s.Preemptible = 1, true })
		h.says(amy, offer(n, m.Attempt, gpus(1)), m)
		h.round(driver.Event{Attempt: m.Attempt, Kind: driver.Started, PID: 9})
		n++
	}
	for i := range 18 {
		p := job.Peer([]byte{'p', byte('a' + i)})
		h.round(worker.Up{Peer: p})
		for k := range uint64(contract.MaxOffers) {
			m := offer(n, attempt(n, 1), job.Resources{CPUs: 8, GPUs: 4})
			m.Wait, m.Priority, m.Hold = time.Minute, 60, time.Minute
			switch {
			case i == 16:
				m.Need, m.Gang, m.Order, m.Priority = tiny, 3, k+1, 20
			case i == 17 && k < 16:
				m.Need, m.Gang, m.Order, m.Priority, m.Preempt = gpus(1), 3, k+1, 30, true
			}
			h.says(p, m)
			n++
		}
	}
	clear(h.sent)
	b.ReportAllocs()
	for b.Loop() {
		n++
		a := attempt(n, 1)
		h.says(amy, offer(n, a, tiny))
		h.says(amy, start(n, a, s, tiny))
		h.round(driver.Event{Attempt: a, Kind: driver.Started, PID: 9})
		h.round(exited(a, 0))
		h.says(amy, contract.Ack{Attempt: a, N: 4})
		clear(h.sent)
	}
}
