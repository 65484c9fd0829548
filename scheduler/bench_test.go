package scheduler

import (
	"fmt"
	"maps"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler/fleet"
	"github.com/musterhq/muster/scheduler/place"
	"github.com/musterhq/muster/scheduler/step"
)

// bench is a core with a journal that commits at once and hosts that commit to every offer.
type bench struct {
	core  *Core
	now   time.Time
	index uint64
	tok   step.Token
	ended int
	fails bool // the first attempt of each task fails
	sent  []step.Outgoing
	keep  bool      // keep the rows
	rows  []job.Row // the rows that were kept
	files []step.FileWanted
}

// benchMemory is the memory of each host in bytes. It is always enough.
const benchMemory = 64e9

func newBench(b testing.TB, workers, cpus int) *bench {
	cfg := step.DefaultConfig()
	cfg.Self, cfg.Group, cfg.Seed = "w0", 7, 1
	x := &bench{core: NewCore(cfg, Saved{}, storyStart), now: storyStart}
	x.step(step.Committed{Committed: job.Committed{Index: 1, Epoch: job.Epoch{Term: 1}, Lead: true}})
	x.index = 1
	x.addHosts(workers, cpus)
	if b, ok := b.(*testing.B); ok {
		b.ReportAllocs()
	}
	return x
}

// addHosts opens a session with each of n hosts.
func (x *bench) addHosts(n, cpus int) {
	for i := range n {
		p := job.Peer(fmt.Sprintf("w%d", i))
		x.step(step.SessionUp{Peer: p}, step.FromWorker{Peer: p, Msg: contract.Hello{
			Profile: contract.Profile{Name: string(p), Store: "s", CPUs: cpus, Memory: benchMemory, Drivers: []string{"exec"}, Worker: true},
			Free:    contract.Free{CPUs: cpus, Memory: benchMemory},
		}})
	}
}

func (x *bench) step(events ...step.Event) {
	x.now = x.now.Add(time.Microsecond)
	fx := x.core.Step(x.now, events...)
	x.took(fx)
	for len(fx.Propose) > 0 {
		x.index++
		fx = x.core.Step(x.now, step.Committed{Committed: job.Committed{Index: x.index, Epoch: job.Epoch{Term: 1}, Records: fx.Propose}})
		x.took(fx)
	}
}

// took keeps the messages of a step. A refused request is an error, because the benchmark would measure the refusal.
func (x *bench) took(fx step.Effects) {
	x.sent = append(x.sent, fx.Send...)
	x.files = append(x.files, fx.Files...)
	if x.keep {
		x.rows = append(x.rows, fx.Rows...)
	}
	for _, r := range fx.Reply {
		if r.Err != nil {
			panic(r.Err)
		}
	}
}

// serve answers the messages like a host whose tasks end at once.
func (x *bench) serve() {
	sent := x.sent
	x.sent = nil
	for _, o := range sent {
		switch m := o.Msg.(type) {
		case contract.Offer:
			x.step(step.FromWorker{Peer: o.To, Msg: contract.Commit{Offer: m.ID, Attempt: m.Attempt, Group: 7, Session: 1}})
		case contract.Start:
			for n, s := range []job.State{job.Starting, job.Running, job.Completing, job.Succeeded} {
				e := contract.Event{Attempt: m.Attempt, Group: 7, N: uint64(n), State: s}
				if s == job.Succeeded && x.fails && m.Attempt.N == 1 {
					e.State, e.Exit = job.Failed, &job.Exit{State: job.Failed, Code: 1, Started: true, Ended: x.now}
				} else if s == job.Succeeded {
					e.Exit = &job.Exit{State: s, Started: true, Ended: x.now}
					x.ended++
				}
				x.step(step.FromWorker{Peer: o.To, Msg: e})
			}
			x.step(step.FromWorker{Peer: o.To, Msg: contract.Availability{Free: contract.Free{CPUs: 32, Memory: benchMemory}}})
		default:
		}
	}
}

// run answers the messages like a host whose tasks run on.
func (x *bench) run() {
	for len(x.sent) > 0 {
		sent := x.sent
		x.sent = nil
		for _, o := range sent {
			switch m := o.Msg.(type) {
			case contract.Offer:
				x.step(step.FromWorker{Peer: o.To, Msg: contract.Commit{Offer: m.ID, Attempt: m.Attempt, Group: 7, Session: 1}})
			case contract.Start:
				x.step(step.FromWorker{Peer: o.To, Msg: contract.Event{Attempt: m.Attempt, Group: 7, N: 1, State: job.Running, PID: 4711}})
			default:
			}
		}
	}
}

func benchSpec(i int) job.Spec {
	s := job.DefaultSpec()
	s.Command = []string{"/bin/true"}
	s.Resources.Memory = job.Size(i)
	return s
}

// One job from its submission to its end, without other jobs.
func BenchmarkJob(b *testing.B) {
	x := newBench(b, 1, 32)
	x.core.turn.Config.SaveEvery = 100 * time.Millisecond // as in the daemon
	for b.Loop() {
		x.tok++
		x.step(step.Submit{Token: x.tok, Submission: job.Submission{Spec: benchSpec(0)}})
		for len(x.sent) > 0 {
			x.serve()
		}
	}
	b.ReportMetric(float64(x.ended)/float64(b.N), "ended/op")
}

// One job from its submission to its end on a full host while 100,000 tasks wait: all with the same request, or each
// with another one.
func BenchmarkJobBehind100k(b *testing.B) {
	for name, distinct := range map[string]bool{"alike": false, "distinct": true} {
		b.Run(name, func(b *testing.B) {
			x := newBench(b, 8, 32)
			for i := range 100_000 {
				s := benchSpec(0)
				s.Resources.CPUs = 33 // no host has so many: the job is submitted with hold, then released
				s.Hold = true
				if distinct {
					s.Resources.Memory = job.Size(i)
				}
				x.tok++
				x.step(step.Submit{Token: x.tok, Submission: job.Submission{Spec: s}})
			}
			for _, id := range slices.Sorted(maps.Keys(x.core.entries.byID)) {
				x.tok++
				x.step(step.Hold{Token: x.tok, Job: id, Release: true})
			}
			for b.Loop() {
				x.tok++
				x.step(step.Submit{Token: x.tok, Submission: job.Submission{Spec: benchSpec(0)}})
				for len(x.sent) > 0 {
					x.serve()
				}
			}
			b.ReportMetric(float64(x.ended)/float64(b.N), "ended/op")
		})
	}
}

// A burst of jobs that queue on a full cluster and run one after the other.
func BenchmarkBurst(b *testing.B) {
	for b.Loop() {
		x := newBench(b, 8, 4)
		for range 2000 {
			x.tok++
			x.step(step.Submit{Token: x.tok, Submission: job.Submission{Spec: benchSpec(0)}})
		}
		for len(x.sent) > 0 {
			x.serve()
		}
		if x.ended != 2000 {
			b.Fatalf("%d ended, want 2000", x.ended)
		}
	}
}

// big is a core that knows many hosts with 8 GPUs. Only the first roomy hosts have free GPUs. No two neighbours have
// the same free CPUs and the same free parts of their GPUs.
func big(b *testing.B, hosts, roomy int) *bench {
	x := newBench(b, 0, 0)
	for i := range hosts {
		p := job.Peer(fmt.Sprintf("w%d", i))
		h := contract.Hello{Profile: contract.Profile{Name: string(p), Store: "s", CPUs: 64, Memory: 512e9, Drivers: []string{"exec"}, Worker: true}}
		for g := range 8 {
			d := gpu.Device{UUID: fmt.Sprintf("GPU-%d-%d", i, g), Model: "NVIDIA H100 80GB HBM3", Class: "h100-80gb", Memory: 80e9}
			h.Profile.GPUs = append(h.Profile.GPUs, d)
			if i < roomy {
				f := contract.FreeGPU{UUID: d.UUID, Memory: d.Memory, Milli: 1000}
				if g < i%5 {
					f.Milli = 100 * (1 + (i+g)%9)
					f.Memory = d.Memory / 1000 * job.Size(f.Milli)
				}
				h.Free.GPUs = append(h.Free.GPUs, f)
			}
		}
		h.Free.CPUs, h.Free.Memory, h.Free.Tasks = 64-i%37, 512e9, i%37
		x.step(step.SessionUp{Peer: p}, step.FromWorker{Peer: p, Msg: h})
	}
	x.sent = nil
	return x
}

// twoGPUs is a request for two whole GPUs.
func twoGPUs() job.Spec {
	s := benchSpec(0)
	s.Resources.GPUs, s.Resources.GPUModel = 2, "H100"
	return s
}

// toPlace submits a task that is held, so that only the benchmark places it.
func (x *bench) toPlace(s job.Spec) *task {
	s.Hold = true
	x.tok++
	x.step(step.Submit{Token: x.tok, Submission: job.Submission{Spec: s}})
	all := x.core.entries.table.Jobs()
	t := x.core.entries.byID[all[len(all)-1].ID].task(0)
	x.core.pending.join(t)
	x.core.hosts.fleet.Count(x.now)
	return t
}

// One placement by each policy with 10,000 hosts that all have free capacity; 64 of them are scored. Before that, users
// asked for 100 kinds of tasks, some of them for a certain model or several GPUs.
func BenchmarkPlace10k(b *testing.B) {
	x := big(b, 10_000, 10_000)
	for i := range 100 {
		need := job.Resources{CPUs: 1 + i%12, Memory: job.Size(i%7) << 30, GPUs: 1 << (i % 4)}
		if i%3 == 0 {
			need.GPUs, need.GPUShare = 0, float64(1+i%9)/10
		}
		if i%10 == 0 {
			need.GPUModel = []string{"h100", "a100", "h100|a100"}[i%3]
		}
		x.core.placement.policies.typical.Asked(need, 1+i%20)
	}
	place10k := func(b *testing.B, s job.Spec) {
		b.ReportAllocs()
		t := x.toPlace(s)
		cpu := startCPU(b)
		cpu.start()
		for b.Loop() {
			if d := x.core.placement.decide(t, x.core.hosts.anySlot()); d.Verdict != place.Fits {
				b.Fatal("no host fits")
			}
		}
		cpu.stop()
		b.ReportMetric(1e6*cpu.sum.Seconds()/float64(b.N), "cpu-µs/op")
	}
	for _, name := range step.Policies() {
		s := twoGPUs()
		s.Policy = name
		b.Run(name, func(b *testing.B) { place10k(b, s) })
	}
	share := benchSpec(0)
	share.Policy, share.Resources.GPUShare = "frag", 0.2
	b.Run("frag-share", func(b *testing.B) { place10k(b, share) })
}

// One placement with 10,000 full hosts.
func BenchmarkPlace10kFull(b *testing.B) {
	x := big(b, 10_000, 0)
	t := x.toPlace(twoGPUs())
	for b.Loop() {
		if d := x.core.placement.decide(t, x.core.hosts.anySlot()); d.Verdict == place.Fits {
			b.Fatal("a full host fits")
		}
	}
}

// One step with 10,000 hosts and 1,000 different waiting requests: one host reports capacity that suffices for none of
// them, then no capacity.
func BenchmarkHostReportsCapacity10k(b *testing.B) {
	x := big(b, 10_000, 0)
	for i := range 1000 {
		s := benchSpec(i)
		s.Resources.GPUs, s.Resources.GPUModel = 2, "H100"
		s.NodeList = []string{"w1"} // its queue is full
		x.tok++
		x.step(step.Submit{Token: x.tok, Submission: job.Submission{Spec: s}})
	}
	x.sent = nil
	if x.core.pending.parked.count < 1000-fleet.MaxQueuedAll {
		b.Fatalf("%d requests are blocked, want at least %v", x.core.pending.parked.count, 1000-fleet.MaxQueuedAll)
	}
	free := contract.Free{CPUs: 64, Memory: 512e9, GPUs: []contract.FreeGPU{{UUID: "GPU-7-0", Memory: 80e9, Milli: 1000}, {UUID: "GPU-7-1", Memory: 80e9, Milli: 1000}}}
	for i := 0; b.Loop(); i++ {
		m := contract.Availability{Free: free}
		if i%2 == 1 {
			m.Free.GPUs = nil
		}
		x.core.Step(x.now, step.FromWorker{Peer: "w7", Msg: m})
	}
}

// site is a host of the full cluster: its running tasks and its queued offers.
type site struct {
	peer   job.Peer
	free   int
	runs   []contract.Start
	queued []contract.Offer
}

// full is a cluster of hosts that commit to the offers that fit and let the others queue.
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

// deliver delivers messages to the hosts until there are no more.
func (f *full) deliver() {
	for len(f.sent) > 0 {
		sent := f.sent
		f.sent = nil
		for _, o := range sent {
			s := f.sites[o.To]
			switch m := o.Msg.(type) {
			case contract.Offer:
				if !slices.ContainsFunc(s.queued, func(q contract.Offer) bool { return q.ID == m.ID }) {
					s.queued = append(s.queued, m)
				}
			case contract.Release:
				s.queued = slices.DeleteFunc(s.queued, func(q contract.Offer) bool { return q.ID == m.Offer })
			case contract.Start:
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
		f.step(step.FromWorker{Peer: s.peer, Msg: contract.Commit{Offer: m.ID, Attempt: m.Attempt, Group: 7, Session: 1}})
	}
}

// finish ends one running task.
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
			e := contract.Event{Attempt: m.Attempt, Group: 7, N: uint64(n) + 1, State: state}
			if state == job.Succeeded {
				e.Exit = &job.Exit{State: state, Started: true, Ended: f.now}
			}
			f.step(step.FromWorker{Peer: s.peer, Msg: e})
		}
		s.free++
		f.commit(s)
		f.step(step.FromWorker{Peer: s.peer, Msg: contract.Availability{Free: contract.Free{CPUs: s.free, Memory: benchMemory}}})
		f.deliver()
		return
	}
	b.Fatal("no host runs anything")
}

// One job from its submission to its end in a cluster of 90 hosts that 4,000 other jobs keep full.
func BenchmarkJobInAFullCluster(b *testing.B) {
	f := newFull(b, 90, 4)
	f.core.turn.Config.SaveEvery = 100 * time.Millisecond // as in the daemon
	submit := func(i int) {
		f.tok++
		f.step(step.Submit{Token: f.tok, Submission: job.Submission{Spec: benchSpec(i % 100)}})
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

// inUse is the memory in use, in bytes.
func inUse() float64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}

// BenchmarkMemory measures the memory of an owner with an array of a million waiting tasks, an array of 10,000 running
// tasks, and 20,000 jobs of one task that wait for a GPU.
func BenchmarkMemory(b *testing.B) {
	array := func(x *bench, text string) {
		s := benchSpec(0)
		s.Array = text
		x.tok++
		x.step(step.Submit{Token: x.tok, Submission: job.Submission{Spec: s}})
	}
	for b.Loop() {
		x := newBench(b, 3, 4)
		before := inUse()
		array(x, "0-999999")
		b.ReportMetric((inUse()-before)/1e6, "MB/million-waiting")
		runtime.KeepAlive(x)

		x = newBench(b, 100, 128)
		before = inUse()
		array(x, "0-9999")
		x.run()
		if n := x.core.entries.table.Jobs()[0].Assigned(); n != 10_000 {
			b.Fatalf("%d tasks run, want 10_000", n)
		}
		b.ReportMetric((inUse()-before)/1e6, "MB/10k-running")
		runtime.KeepAlive(x)

		const jobs = 20_000
		x = big(b, 3, 0)
		before = inUse()
		for range jobs {
			s := benchSpec(0)
			s.Resources.GPUs = 1
			x.tok++
			x.step(step.Submit{Token: x.tok, Submission: job.Submission{Spec: s}})
			x.sent = nil
		}
		if n := x.core.entries.table.Len(); n != jobs {
			b.Fatalf("%d jobs wait, want %v", n, jobs)
		}
		b.ReportMetric((inUse()-before)/jobs, "B/waiting-job")
		runtime.KeepAlive(x)
	}
}
