package scheduler

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/musterhq/muster/gpu"
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
	keep  bool      // rows are kept
	rows  []job.Row // if so
}

// benchMemory is what each host has of it, in bytes: it never is what is short.
const benchMemory = 64e9

func newBench(b testing.TB, workers, cpus int) *bench {
	cfg := DefaultConfig()
	cfg.Self, cfg.Group, cfg.Seed = "w0", 7, 1
	x := &bench{core: NewCore(cfg, Saved{}, storyStart), now: storyStart}
	x.step(Committed{job.Committed{Index: 1, Epoch: job.Epoch{Term: 1}, Lead: true}})
	x.index = 1
	for i := range workers {
		p := job.Peer(fmt.Sprintf("w%d", i))
		x.step(SessionUp{Peer: p}, FromWorker{Peer: p, Msg: lease.Hello{
			Profile: lease.Profile{Name: string(p), Store: "s", CPUs: cpus, Memory: benchMemory, Drivers: []string{"exec"}, Worker: true},
			Free:    lease.Free{CPUs: cpus, Memory: benchMemory},
		}})
	}
	if b, ok := b.(*testing.B); ok {
		b.ReportAllocs()
	}
	return x
}

func (x *bench) step(events ...Event) {
	x.now = x.now.Add(time.Microsecond)
	fx := x.core.Step(x.now, events...)
	x.took(fx)
	for len(fx.Propose) > 0 {
		x.index++
		fx = x.core.Step(x.now, Committed{job.Committed{Index: x.index, Epoch: job.Epoch{Term: 1}, Records: fx.Propose}})
		x.took(fx)
	}
}

// took keeps what a step sent. No request of a benchmark may be refused: it would
// measure the refusal.
func (x *bench) took(fx Effects) {
	x.sent = append(x.sent, fx.Send...)
	if x.keep {
		x.rows = append(x.rows, fx.Rows...)
	}
	for _, r := range fx.Reply {
		if r.Err != nil {
			panic(r.Err)
		}
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
			x.step(FromWorker{Peer: o.To, Msg: lease.Availability{Free: lease.Free{CPUs: 32, Memory: benchMemory}}})
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
		x.step(Submit{Token: x.tok, Spec: benchSpec(0)})
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
				x.step(Submit{Token: x.tok, Spec: s})
			}
			for _, id := range slices.Sorted(maps.Keys(x.core.entries.byID)) {
				x.tok++
				x.step(Hold{Token: x.tok, Job: id, Release: true})
			}
			for b.Loop() {
				x.tok++
				x.step(Submit{Token: x.tok, Spec: benchSpec(0)})
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
			x.step(Submit{Token: x.tok, Spec: benchSpec(0)})
		}
		for len(x.sent) > 0 {
			x.serve()
		}
		if x.ended != 2000 {
			b.Fatalf("%d ended", x.ended)
		}
	}
}

// big is a core that knows many hosts of 8 GPUs, all of them full but for the
// first so many.
func big(b *testing.B, hosts, roomy int) *bench {
	x := newBench(b, 0, 0)
	for i := range hosts {
		p := job.Peer(fmt.Sprintf("w%d", i))
		h := lease.Hello{Profile: lease.Profile{Name: string(p), Store: "s", CPUs: 64, Memory: 512e9, Drivers: []string{"exec"}, Worker: true}}
		for g := range 8 {
			d := gpu.Device{UUID: fmt.Sprintf("GPU-%d-%d", i, g), Model: "NVIDIA H100 80GB HBM3", Class: "h100-80gb", Memory: 80e9}
			h.Profile.GPUs = append(h.Profile.GPUs, d)
			if i < roomy {
				h.Free.GPUs = append(h.Free.GPUs, lease.FreeGPU{UUID: d.UUID, Memory: d.Memory, Milli: 1000})
			}
		}
		h.Free.CPUs, h.Free.Memory = 64, 512e9
		x.step(SessionUp{Peer: p}, FromWorker{Peer: p, Msg: h})
	}
	x.sent = nil
	return x
}

// One placement at 10,000 hosts that all have room: 64 of them are scored.
func BenchmarkPlace10k(b *testing.B) {
	x := big(b, 10_000, 10_000)
	s := benchSpec(0)
	s.Resources.GPUs, s.Resources.GPUModel = 2, "H100"
	x.tok++
	s.Hold = true
	x.step(Submit{Token: x.tok, Spec: s})
	t := x.core.entries.byID[slices.Collect(maps.Keys(x.core.entries.byID))[0]].tasks[0]
	x.core.pending.join(t)
	x.core.hosts.fleet.Count(x.now)
	for b.Loop() {
		if w, _ := x.core.placement.bestFit(t); w == nil {
			b.Fatal("no host fits")
		}
	}
}

// Likewise where none has room: all are passed over.
func BenchmarkPlace10kFull(b *testing.B) {
	x := big(b, 10_000, 0)
	s := benchSpec(0)
	s.Resources.GPUs, s.Resources.GPUModel, s.Hold = 2, "H100", true
	x.tok++
	x.step(Submit{Token: x.tok, Spec: s})
	t := x.core.entries.byID[slices.Collect(maps.Keys(x.core.entries.byID))[0]].tasks[0]
	x.core.pending.join(t)
	x.core.hosts.fleet.Count(x.now)
	for b.Loop() {
		if w, _ := x.core.placement.bestFit(t); w != nil {
			b.Fatal("a full host fits")
		}
	}
}

// One step at 10,000 hosts and 1,000 blocked requests, each another, when one
// host gets room for none of them, and when it says that it has none.
func BenchmarkFreed10k(b *testing.B) {
	x := big(b, 10_000, 0)
	for i := range 1000 {
		s := benchSpec(i)
		s.Resources.GPUs, s.Resources.GPUModel = 2, "H100"
		s.NodeList = []string{"w1"} // where as many queue as may
		x.tok++
		x.step(Submit{Token: x.tok, Spec: s})
	}
	x.sent = nil
	if x.core.pending.parked.count < 990 {
		b.Fatalf("%d requests are blocked", x.core.pending.parked.count)
	}
	free := lease.Free{CPUs: 64, Memory: 512e9, GPUs: []lease.FreeGPU{{UUID: "GPU-7-0", Memory: 80e9, Milli: 1000}, {UUID: "GPU-7-1", Memory: 80e9, Milli: 1000}}}
	for i := 0; b.Loop(); i++ {
		m := lease.Availability{Free: free}
		if i%2 == 1 {
			m.Free.GPUs = nil
		}
		x.core.Step(x.now, FromWorker{Peer: "w7", Msg: m})
	}
}

// site is a host of the full cluster: what it runs, and what queues there.
type site struct {
	peer   job.Peer
	free   int
	runs   []lease.Start
	queued []lease.Offer
}

// full is a cluster of hosts that commit what fits and keep the rest.
type full struct {
	*bench
	sites map[job.Peer]*site
	order []*site
	next  int
}

func newFull(b *testing.B, hosts, cpus int) *full {
	f := &full{bench: newBench(b, hosts, cpus), sites: map[job.Peer]*site{}}
	for i := range hosts {
		s := &site{peer: job.Peer(fmt.Sprintf("w%d", i)), free: cpus}
		f.sites[s.peer], f.order = s, append(f.order, s)
	}
	return f
}

// deliver hands out what was sent until nothing more comes.
func (f *full) deliver() {
	for len(f.sent) > 0 {
		sent := f.sent
		f.sent = nil
		for _, o := range sent {
			s := f.sites[o.To]
			switch m := o.Msg.(type) {
			case lease.Offer:
				if !slices.ContainsFunc(s.queued, func(q lease.Offer) bool { return q.ID == m.ID }) {
					s.queued = append(s.queued, m)
				}
			case lease.Release:
				s.queued = slices.DeleteFunc(s.queued, func(q lease.Offer) bool { return q.ID == m.Offer })
			case lease.Start:
				s.runs = append(s.runs, m)
			default:
			}
			f.commit(s)
		}
	}
}

func (f *full) commit(s *site) {
	for s.free > 0 && len(s.queued) > 0 {
		m := s.queued[0]
		s.queued = s.queued[1:]
		s.free--
		f.step(FromWorker{Peer: s.peer, Msg: lease.Commit{Offer: m.ID, Attempt: m.Attempt, Group: 7, Session: 1}})
	}
}

// finish ends one task that runs somewhere.
func (f *full) finish(b *testing.B) {
	for range f.order {
		s := f.order[f.next%len(f.order)]
		f.next++
		if len(s.runs) == 0 {
			continue
		}
		m := s.runs[0]
		s.runs = s.runs[1:]
		for n, state := range []job.State{job.Starting, job.Running, job.Completing, job.Succeeded} {
			e := lease.Event{Attempt: m.Attempt, Group: 7, N: uint64(n) + 1, State: state}
			if state == job.Succeeded {
				e.Exit = &job.Exit{State: state, Started: true, Ended: f.now}
			}
			f.step(FromWorker{Peer: s.peer, Msg: e})
		}
		s.free++
		f.commit(s)
		f.step(FromWorker{Peer: s.peer, Msg: lease.Availability{Free: lease.Free{CPUs: s.free, Memory: benchMemory}}})
		f.deliver()
		return
	}
	b.Fatal("no host runs anything")
}

// One job from submission to its end in a cluster of 90 hosts that 4,000 others,
// each another request, keep full.
func BenchmarkFull90(b *testing.B) {
	f := newFull(b, 90, 4)
	submit := func(i int) {
		f.tok++
		f.step(Submit{Token: f.tok, Spec: benchSpec(i % 100)})
		f.deliver()
	}
	for i := range 4000 {
		submit(i)
	}
	for i := 0; b.Loop(); i++ {
		submit(i)
		f.finish(b)
	}
}
