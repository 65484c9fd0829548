package scheduler

import (
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler/step"
)

// pendingSpec is the i-th of many different requests. Three of four ask for one to four GPUs, the others for a share of
// one. Each asks for different memory, so that none is placed like another.
func pendingSpec(i int, policy string) job.Spec {
	s := benchSpec(i)
	s.Policy, s.Hold = policy, true
	s.Resources.GPUs = i % 4
	if s.Resources.GPUs == 0 {
		s.Resources.GPUShare = float64(1+i%9) / 10
	}
	return s
}

// cpuTime sums the CPU time of the calling goroutine. This is the time of the same work on an idle machine.
type cpuTime struct {
	b     testing.TB
	sum   time.Duration
	began time.Duration
}

func startCPU(b testing.TB) *cpuTime {
	runtime.LockOSThread()
	b.Cleanup(runtime.UnlockOSThread)
	return &cpuTime{b: b}
}

func (c *cpuTime) start() { c.began = c.now() }

func (c *cpuTime) stop() { c.sum += c.now() - c.began }

func (c *cpuTime) now() time.Duration {
	const thisThread = 1
	var u syscall.Rusage
	if err := syscall.Getrusage(thisThread, &u); err != nil {
		c.b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkPlan10k measures one plan over 10,000 hosts and 1,000 different pending requests: by each policy with hosts
// that all have free capacity, and with full hosts. A plan takes several steps.
func BenchmarkPlan10k(b *testing.B) {
	plan := func(b *testing.B, roomy int, policy string) {
		const hosts, requests = 10_000, 1000
		b.ReportAllocs()
		cpu := startCPU(b)
		for b.Loop() {
			b.StopTimer()
			x := big(b, hosts, roomy)
			for i := range requests {
				x.tok++
				x.step(step.Submit{Token: x.tok, Submission: job.Submission{Spec: pendingSpec(i, policy)}})
			}
			entry := job.Committed{Index: x.index + 1, Epoch: job.Epoch{Term: 1}}
			for _, j := range x.core.entries.table.Jobs() {
				entry.Records = append(entry.Records, job.HoldRecord{Job: j.ID, Release: true})
			}
			x.core.turn.Outgoing = 2 * step.MaxOutgoing // so that nothing is placed yet
			x.took(x.core.Step(x.now, step.Committed{Committed: entry}))
			x.core.turn.Outgoing = 0
			b.StartTimer()
			cpu.start()
			x.took(x.core.Step(x.now))
			for x.core.plan.again {
				x.took(x.core.Step(x.now))
			}
			cpu.stop()
			b.StopTimer()
			offered := map[job.ID]bool{}
			for _, o := range x.sent {
				if m, ok := o.Msg.(contract.Offer); ok {
					offered[m.Attempt.Job] = true
				}
			}
			if len(offered) != requests {
				b.Fatalf("%d of %d requests are offered, want all of them", len(offered), requests)
			}
			b.StartTimer()
		}
		b.ReportMetric(1000*cpu.sum.Seconds()/float64(b.N), "cpu-ms/op")
	}
	for _, name := range step.Policies() {
		b.Run(name, func(b *testing.B) { plan(b, 10_000, name) })
	}
	b.Run("full", func(b *testing.B) { plan(b, 0, "frag") })
}
