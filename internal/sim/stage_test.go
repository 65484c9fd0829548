package sim

// The cost of a step of a scheduler as hosts and waiting jobs grow in number (P6).

import (
	"fmt"
	"testing"
	"time"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler"
	"github.com/musterhq/muster/scheduler/step"
)

// stage is one scheduler that is told of hosts by the test.
type stage struct {
	b     *testing.B
	core  *scheduler.Core
	now   time.Duration
	index uint64
	seq   uint64
	token step.Token
}

func (s *stage) step(events ...step.Event) step.Effects {
	fx := s.core.Step(moment(s.now, 0), events...)
	for len(fx.Propose) > 0 {
		s.index++
		more := s.core.Step(moment(s.now, 0), step.Committed{Committed: job.Committed{
			Index: s.index, Epoch: job.Epoch{Generation: 1, Term: 1}, Records: fx.Propose,
		}})
		fx.Propose = more.Propose
		fx.Send = append(fx.Send, more.Send...)
	}
	return fx
}

func stagePeer(i int) job.Peer { return job.Peer(fmt.Sprintf("host-%05d", i)) }

// newStage has so many hosts with a GPU each, none of it free.
func newStage(b *testing.B, hosts int) *stage {
	cfg := step.DefaultConfig()
	cfg.Self, cfg.Group, cfg.Seed = "owner", 1, 1
	s := &stage{b: b, core: scheduler.NewCore(cfg, scheduler.Saved{}, moment(0, 0)), index: 1}
	s.step(step.Committed{Committed: job.Committed{Index: 1, Epoch: job.Epoch{Generation: 1, Term: 1}, Lead: true}})
	for i := range hosts {
		s.step(step.SessionUp{Peer: stagePeer(i)}, step.FromWorker{Peer: stagePeer(i), Msg: contract.Hello{
			Profile: contract.Profile{
				Name: fmt.Sprintf("n%05d", i), Store: fmt.Sprint(i), CPUs: 64, Memory: 512 << 30, Drivers: []string{contract.DriverExec}, Worker: true,
				GPUs: []gpu.Device{{UUID: fmt.Sprintf("GPU-%d", i), Class: "h100-80gb", Memory: 80 << 30}},
			},
		}})
	}
	return s
}

// submit adds jobs of so many kinds, which then wait, as nothing is free.
func (s *stage) submit(jobs, kinds, priority int) {
	for i := 0; i < jobs; {
		var asks []step.Event
		for ; i < jobs && len(asks) < 256; i++ {
			s.token++
			spec := job.DefaultSpec()
			spec.Command, spec.Priority = []string{"true"}, priority
			spec.Resources = job.Resources{CPUs: 1, GPUs: 1, Memory: job.Size(1+i%kinds) << 20}
			asks = append(asks, step.Submit{Token: s.token, Submission: job.Submission{User: "ada", Spec: spec}})
		}
		s.step(asks...)
		s.settle()
	}
}

// settle has the core perform all the steps that are due now.
func (s *stage) settle() {
	s.now += time.Millisecond
	for range 1000 {
		wake := s.core.Wake()
		if wake.IsZero() || wake.After(moment(s.now, 0)) {
			return
		}
		s.step()
	}
}

func (s *stage) tell(host int, free contract.Free) step.Effects {
	s.seq++
	return s.step(step.FromWorker{Peer: stagePeer(host), Msg: contract.Availability{Seq: s.seq, Free: free}})
}

// queuedAtHost is an upper bound of the offers of one scheduler that queue at a host, for each host at which a task
// queues.
const queuedAtHost = 3

// BenchmarkNews has a host report a little more free capacity, not enough for any waiting job. Each host has as many
// queued offers as allowed, so that the waiting jobs are blocked. They are of up to a thousand kinds.
func BenchmarkNews(b *testing.B) {
	for _, hosts := range []int{90, 1_000, 10_000} {
		for _, waiting := range []int{100, 1_000, 10_000} {
			b.Run(fmt.Sprintf("hosts=%d/waiting=%d", hosts, waiting), func(b *testing.B) {
				s := newStage(b, hosts)
				s.submit(queuedAtHost*hosts, 1, 100)
				s.submit(waiting, min(waiting, 1000), 50)
				n := 0
				for b.Loop() {
					n++
					s.now += time.Millisecond
					s.tell(n%hosts, contract.Free{CPUs: 1 + n/hosts%2})
				}
			})
		}
	}
}

// BenchmarkPlace submits a job, which is offered to one of many idle hosts, and cancels it.
func BenchmarkPlace(b *testing.B) {
	for _, hosts := range []int{90, 1_000, 10_000} {
		b.Run(fmt.Sprintf("hosts=%d", hosts), func(b *testing.B) {
			s := newStage(b, hosts)
			for i := range hosts {
				s.tell(i, contract.Free{CPUs: 64, Memory: 512 << 30, GPUs: []contract.FreeGPU{{UUID: fmt.Sprintf("GPU-%d", i), Memory: 80 << 30, Milli: 1000}}})
			}
			spec := job.DefaultSpec()
			spec.Command, spec.Resources = []string{"true"}, job.Resources{CPUs: 1, GPUs: 1}
			for b.Loop() {
				s.now += time.Millisecond
				s.token++
				token := s.token
				fx := s.step(step.Submit{Token: token, Submission: job.Submission{User: "ada", Spec: spec}})
				for _, m := range fx.Send {
					if o, ok := m.Msg.(contract.Offer); ok {
						s.token++
						s.step(step.Cancel{Token: s.token, Job: o.Attempt.Job})
					}
				}
			}
		})
	}
}

// BenchmarkFullCluster measures the cost of a job for 90 full hosts and three owners, while hundreds wait, including
// the referee.
func BenchmarkFullCluster(b *testing.B) {
	for b.Loop() {
		began := cpuTime()
		w := newTestWorld(b, 7, options{standing: 128, sampling: time.Hour})
		for range 90 {
			w.addHost(hostSpec{gpus: "8xH100", cpus: 64})
		}
		owners := []*owner{w.addOwner(nil), w.addOwner(nil), w.addOwner(nil)}
		r := w.chance
		for range 3000 {
			need := gpus([]int{1, 1, 1, 1, 2, 2, 4, 8}[r.IntN(8)])
			j := w.newWork(owners[r.IntN(3)], "ada", need, logNormal(r, 4*time.Minute, 1, 5*time.Second, time.Hour))
			j.submitAt(between(r, 0, 30*time.Minute))
		}
		w.start()
		w.runAll(45 * time.Minute)
		b.ReportMetric((cpuTime()-began).Seconds()*1000/float64(w.stats.ended), "cpu-ms/job")
		b.ReportMetric(float64(len(w.waiting)), "waiting")
		b.ReportMetric(float64(w.stats.steps)/float64(w.stats.ended), "steps/job")
	}
}
