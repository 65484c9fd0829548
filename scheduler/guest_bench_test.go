package scheduler

// What the largest messages of a host cost the scheduler.

import (
	"fmt"
	"testing"
	"time"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/lease"
)

// benchGuest is a host with the most GPUs that a message may name, of several models.
func benchGuest(classes int) (lease.Profile, lease.Free) {
	p := lease.Profile{Peer: "guest", Name: "guest", Store: "s", CPUs: 64, Memory: 1 << 40, Worker: true, Drivers: []string{lease.DriverExec}}
	f := lease.Free{CPUs: 64, Memory: 1 << 40}
	for i := range lease.MaxGPUs {
		p.GPUs = append(p.GPUs, gpu.Device{UUID: fmt.Sprintf("GPU-%040d", i), Class: fmt.Sprint("h100-80gb-", i%classes), Model: "NVIDIA", Memory: 80 << 30})
	}
	for i := range lease.MaxGPUs {
		f.GPUs = append(f.GPUs, lease.FreeGPU{UUID: p.GPUs[lease.MaxGPUs-1-i].UUID, Memory: 80 << 30, Milli: 1000})
	}
	return p, f
}

func BenchmarkGuestWithManyGPUs(b *testing.B) {
	for _, classes := range []int{1, 7} {
		p, f := benchGuest(classes)
		g := f
		g.GPUs = g.GPUs[1:]
		for _, x := range []struct {
			name string
			msg  func(n int) lease.ToScheduler
		}{
			{"hello", func(int) lease.ToScheduler { return lease.Hello{Profile: p, Free: f} }},
			{"availability", func(n int) lease.ToScheduler {
				return lease.Availability{Seq: uint64(n), Free: []lease.Free{f, g}[n%2]}
			}},
		} {
			b.Run(fmt.Sprintf("%s/classes=%d", x.name, classes), func(b *testing.B) {
				cfg := DefaultConfig()
				cfg.Self, cfg.Group, cfg.Seed = "self", 7, 1
				now := time.Unix(1e9, 0)
				c := NewCore(cfg, Saved{}, now)
				c.Step(now, Committed{job.Committed{Index: 1, Lead: true, Epoch: job.Epoch{Term: 1}}})
				c.Step(now, SessionUp{Peer: "guest"}, FromWorker{Peer: "guest", Msg: lease.Hello{Profile: p, Free: f}})
				b.ReportAllocs()
				for n := range b.N {
					now = now.Add(time.Millisecond)
					c.Step(now, FromWorker{Peer: "guest", Msg: x.msg(n + 1)})
				}
			})
		}
	}
}
