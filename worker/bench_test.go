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

// BenchmarkQueue measures one pass over 10,000 offers in the queue of a host with 1,006 tasks that have time limits. The
// offers ask for the same few things, or each for something else.
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
			h.core.Flood(h.now, 10_000, amy, func(i int) lease.Offer {
				m := timed(uint64(10_000+i), need(i+1), time.Duration(i%100)*time.Hour)
				m.Need.GPUs = max(m.Need.GPUs, 3)
				return m
			})
			h.round()
			clear(h.sent)
			b.ReportAllocs()
			for b.Loop() {
				h.round(worker.LimitsChanged{}) // all offers are decided on again
				clear(h.sent)
			}
			if v := h.core.View(); v.Queued != 10_000 {
				b.Fatalf("%d queued", v.Queued)
			}
		})
	}
}
