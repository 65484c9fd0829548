package worker_test

// The cost of a task for its worker.

import (
	"testing"
	"time"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/lease"
	"github.com/musterhq/muster/worker"
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
		for range lease.MaxOffers {
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
		h.round(worker.DriverEvent{Attempt: a, Kind: worker.DriverStarted, PID: 9})
		h.round(exited(a, 0))
		h.says(amy, lease.Ack{Attempt: a, N: 4})
		clear(h.sent)
	}
}

// BenchmarkTaskAmongGangs measures the same task while 64 places are held for gangs, which a thousand offers that wait
// could revoke but would not fit even then, and 16 gangs have a conditional Commit.
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
		h.round(worker.DriverEvent{Attempt: m.Attempt, Kind: worker.DriverStarted, PID: 9})
		n++
	}
	for i := range 18 {
		p := job.Peer([]byte{'p', byte('a' + i)})
		h.round(worker.Up{Peer: p})
		for k := range uint64(lease.MaxOffers) {
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
		h.round(worker.DriverEvent{Attempt: a, Kind: worker.DriverStarted, PID: 9})
		h.round(exited(a, 0))
		h.says(amy, lease.Ack{Attempt: a, N: 4})
		clear(h.sent)
	}
}
