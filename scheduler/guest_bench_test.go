package scheduler

// The cost of the largest messages of a host to the scheduler.

import (
	"fmt"
	"testing"
	"time"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler/step"
)

// benchGuest is a host with the most GPUs that a message may hold, of several models.
func benchGuest(classes int) (contract.Profile, contract.Free) {
	p := contract.Profile{Peer: "guest", Name: "guest", Store: "s", CPUs: 256, Memory: 1 << 40, Worker: true, Drivers: []string{contract.DriverExec}}
	f := contract.Free{CPUs: 64, Memory: 1 << 40}
	for i := range contract.MaxGPUs {
		p.GPUs = append(p.GPUs, gpu.Device{UUID: fmt.Sprintf("GPU-%040d", i), Class: fmt.Sprint("h100-80gb-", i%classes), Model: "NVIDIA", Memory: 80 << 30})
	}
	for i := range contract.MaxGPUs {
		f.GPUs = append(f.GPUs, contract.FreeGPU{UUID: p.GPUs[contract.MaxGPUs-1-i].UUID, Memory: 80 << 30, Milli: 1000})
	}
	return p, f
}

func BenchmarkGuestWithManyGPUs(b *testing.B) {
	for _, c := range []struct{ classes, waiting int }{{1, 0}, {7, 0}, {7, 20_000}} {
		classes, waiting := c.classes, c.waiting
		p, f := benchGuest(classes)
		g := f
		g.GPUs = g.GPUs[1:]
		for _, x := range []struct {
			name string
			msg  func(n int) contract.ToScheduler
		}{
			{"hello", func(int) contract.ToScheduler { return contract.Hello{Profile: p, Free: f} }},
			{"availability", func(n int) contract.ToScheduler {
				return contract.Availability{Seq: uint64(n), Free: []contract.Free{f, g}[n%2]}
			}},
		} {
			b.Run(fmt.Sprintf("%s/classes=%d/waiting=%d", x.name, classes, waiting), func(b *testing.B) {
				cfg := step.DefaultConfig()
				cfg.Self, cfg.Group, cfg.Seed = "self", 7, 1
				now := time.Unix(1e9, 0)
				c := NewCore(cfg, Saved{}, now)
				c.Step(now, step.Committed{Committed: job.Committed{Index: 1, Lead: true, Epoch: job.Epoch{Term: 1}}})
				c.Step(now, step.SessionUp{Peer: "guest"}, step.FromWorker{Peer: "guest", Msg: contract.Hello{Profile: p, Free: f}})
				waitAtGuest(b, c, now, waiting)
				b.ReportAllocs()
				b.ResetTimer()
				for n := range b.N {
					now = now.Add(time.Millisecond)
					c.Step(now, step.FromWorker{Peer: "guest", Msg: x.msg(n + 1)})
				}
			})
		}
	}
}

// waitAtGuest submits jobs that the guest could run if less of it were in use. Each has another need.
func waitAtGuest(b *testing.B, c *Core, now time.Time, n int) {
	index := uint64(1)
	for i := range n {
		s := job.DefaultSpec()
		s.Command = []string{"true"}
		s.Resources = job.Resources{CPUs: 65 + i%100, GPUs: 1 + i%8}
		fx := c.Step(now, step.Submit{Token: step.Token(i + 1), Submission: job.Submission{User: "amy", Spec: s}})
		for len(fx.Propose) > 0 {
			index++
			fx = c.Step(now, step.Committed{Committed: job.Committed{Index: index, Records: fx.Propose, Epoch: job.Epoch{Term: 1}}})
		}
	}
	if got := len(c.entries.byID); got != n {
		b.Fatalf("%d jobs wait, want %d", got, n)
	}
}
