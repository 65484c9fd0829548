package scheduler

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/lease"
)

// bench is a core whose journal commits at once and whose worker takes all.
type bench struct {
	core  *Core
	now   time.Time
	index uint64
	tok   Token
	ended int
	sent  []Outgoing
}

func newBench(b *testing.B, workers, cpus int) *bench {
	cfg := DefaultConfig()
	cfg.Self, cfg.Group, cfg.Seed = "w0", 7, 1
	x := &bench{core: NewCore(cfg, Saved{}, storyStart), now: storyStart}
	x.step(Committed{job.Committed{Index: 1, Epoch: job.Epoch{Term: 1}, Lead: true}})
	x.index = 1
	for i := range workers {
		p := job.Peer(fmt.Sprintf("w%d", i))
		x.step(SessionUp{Peer: p}, FromWorker{Peer: p, Msg: lease.Hello{
			Profile: lease.Profile{Name: string(p), Store: "s", CPUs: cpus, Drivers: []string{"exec"}, Worker: true},
			Free:    lease.Free{CPUs: cpus},
		}})
	}
	b.ReportAllocs()
	return x
}

func (x *bench) step(events ...Event) {
	x.now = x.now.Add(time.Microsecond)
	fx := x.core.Step(x.now, events...)
	x.sent = append(x.sent, fx.Send...)
	for len(fx.Propose) > 0 {
		x.index++
		fx = x.core.Step(x.now, Committed{job.Committed{Index: x.index, Epoch: job.Epoch{Term: 1}, Records: fx.Propose}})
		x.sent = append(x.sent, fx.Send...)
	}
}

// serve answers what was sent as a worker would that is done at once.
func (x *bench) serve() {
	sent := x.sent
	x.sent = nil
	for _, o := range sent {
		switch m := o.Msg.(type) {
		case lease.Offer:
			x.step(FromWorker{Peer: o.To, Msg: lease.Commit{Offer: m.ID, Attempt: m.Attempt, Group: 7, Session: 1}})
		case lease.Start:
			for n, s := range []job.State{job.Starting, job.Running, job.Completing, job.Succeeded} {
				e := lease.Event{Attempt: m.Attempt, Group: 7, N: uint64(n), State: s}
				if s == job.Succeeded {
					e.Exit = &job.Exit{State: s, Started: true, Ended: x.now}
					x.ended++
				}
				x.step(FromWorker{Peer: o.To, Msg: e})
			}
			x.step(FromWorker{Peer: o.To, Msg: lease.Availability{Free: lease.Free{CPUs: 32}}})
		default:
		}
	}
}

func benchSpec(i int) job.Spec {
	s := job.DefaultSpec()
	s.Command = []string{"/bin/true"}
	s.Resources.Memory = job.Size(i)
	return s
}

// One job from submission to its end, with nothing else about.
func BenchmarkJob(b *testing.B) {
	x := newBench(b, 1, 32)
	for b.Loop() {
		x.tok++
		x.step(SubmitAsk{Token: x.tok, Spec: benchSpec(0)})
		for len(x.sent) > 0 {
			x.serve()
		}
	}
	b.ReportMetric(float64(x.ended)/float64(b.N), "ended/op")
}

// One job from submission to its end on a host that others of its kind fill,
// with 100,000 tasks waiting: all alike, or each its own request.
func BenchmarkJobBehind100k(b *testing.B) {
	for name, distinct := range map[string]bool{"alike": false, "distinct": true} {
		b.Run(name, func(b *testing.B) {
			x := newBench(b, 8, 32)
			for i := range 100_000 {
				s := benchSpec(0)
				s.Resources.CPUs = 33 // nobody has so many: accepted on hold, then let go
				s.Hold = true
				if distinct {
					s.Resources.Memory = job.Size(i)
				}
				x.tok++
				x.step(SubmitAsk{Token: x.tok, Spec: s})
			}
			for _, id := range slices.Sorted(maps.Keys(x.core.jobs)) {
				x.tok++
				x.step(HoldAsk{Token: x.tok, Job: id, Release: true})
			}
			for b.Loop() {
				x.tok++
				x.step(SubmitAsk{Token: x.tok, Spec: benchSpec(0)})
				for len(x.sent) > 0 {
					x.serve()
				}
			}
			b.ReportMetric(float64(x.ended)/float64(b.N), "ended/op")
		})
	}
}

// A burst that queues on a full cluster and drains through it.
func BenchmarkBurst(b *testing.B) {
	for b.Loop() {
		x := newBench(b, 8, 4)
		for range 2000 {
			x.tok++
			x.step(SubmitAsk{Token: x.tok, Spec: benchSpec(0)})
		}
		for len(x.sent) > 0 {
			x.serve()
		}
		if x.ended != 2000 {
			b.Fatalf("%d ended", x.ended)
		}
	}
}
