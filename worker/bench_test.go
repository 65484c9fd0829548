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
