package report_test

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/internal/sim/load"
	"github.com/musterhq/muster/internal/sim/record"
	"github.com/musterhq/muster/internal/sim/report"
	"github.com/musterhq/muster/internal/sim/report/reporttest"
	"github.com/musterhq/muster/job"
)

func tally(tb testing.TB, l *load.Load, records []record.Record, end time.Duration, faults ...report.Fault) *report.Figures {
	tb.Helper()
	t, err := report.NewTally(l)
	if err != nil {
		tb.Fatal(err)
	}
	for _, r := range records {
		t.Take(r)
	}
	return t.Figures(end, faults)
}

func gpus(n int) job.Spec { return job.Spec{Resources: job.Resources{CPUs: 1000, GPUs: n}} }

// One machine of 4 GPUs, three jobs, a preemption and a fault: each figure is computed by hand.
func TestFiguresAreThoseComputedByHand(t *testing.T) {
	l := &load.Load{
		Machines: []load.Machine{{Name: "a", CPUs: 8000, GPUs: 4, Labels: map[string]string{"rack": "r1"}}, {Name: "b", CPUs: 8000, Labels: map[string]string{"rack": "r2"}}},
		Jobs: []load.Job{
			{Name: "one", User: "amy", Class: "LS", Runs: 100 * time.Second, Spec: gpus(4)},
			{Name: "two", User: "bob", Class: "BE", Submit: 50 * time.Second, Runs: 100 * time.Second, Spec: gpus(2)},
			{Name: "three", User: "bob", Class: "BE", Submit: 60 * time.Second, Runs: 5 * time.Second, Spec: gpus(0)},
			{Name: "four", User: "cy", Class: "BE", Submit: 90 * time.Second, Runs: time.Second, Spec: gpus(1)},
			{Name: "five", User: "cy", Class: "BE", Submit: 90 * time.Second, Runs: time.Second, Spec: gpus(1)},
		},
	}
	s := time.Second
	on := func(machine, hops int, devices ...int) []record.Alloc {
		return []record.Alloc{{Machine: machine, Devices: devices, Milli: 1000, Hops: hops}}
	}
	f := tally(t, l, []record.Record{
		{At: 0, Kind: record.Start, Job: 0, Alloc: on(0, 2, 0, 1, 2, 3)},
		{At: 60 * s, Kind: record.Start, Job: 2, Alloc: on(1, 0)},
		{At: 65 * s, Kind: record.Finish, Job: 2},
		{At: 80 * s, Kind: record.Preempt, Job: 0},
		{At: 80 * s, Kind: record.Start, Job: 1, Alloc: on(0, 0, 0, 1)},
		{At: 95 * s, Kind: record.Reject, Job: 4},
		{At: 100 * s, Kind: record.Lost, Job: 1},
		{At: 110 * s, Kind: record.Start, Job: 1, Alloc: on(0, 0, 0, 1)},
		{At: 210 * s, Kind: record.Finish, Job: 1},
		{At: 220 * s, Kind: record.Start, Job: 0, Alloc: on(0, 0, 0, 1, 2, 3)},
		{At: 300 * s, Kind: record.Finish, Job: 0},
	}, 400*s, report.Fault{At: 99 * s, Until: 105 * s, Kind: "host", What: "a", Machines: []int{0}})

	if want := (report.Jobs{Submitted: 5, Finished: 3, Waiting: 1, Never: 1, Rejected: 1, Oldest: 310}); f.Jobs != want {
		t.Errorf("jobs %+v, want %+v", f.Jobs, want)
	}
	equal := func(what string, got, want float64) {
		t.Helper()
		if math.Abs(got-want) > 1e-6 {
			t.Errorf("%s is %v, want %v", what, got, want)
		}
	}
	equal("end", f.End, 400)
	equal("makespan", f.Makespan, 300)
	// Waits: one of 200, two of 60, three of 0.
	if want := (report.Spread{N: 3, Mean: 86.666667, P50: 60, P95: 200, P99: 200, Max: 200}); f.Wait != want {
		t.Errorf("wait %+v, want %+v", f.Wait, want)
	}
	equal("mean completion", f.Completion.Mean, (300.+160+5)/3)
	equal("mean slowdown", f.Slowdown.Mean, (3+1.6+1)/3) // three runs of 5 s of 10 s: 1
	equal("delay", f.Delay.Mean, (0.+30+0)/3)
	used := 4*80 + 2*20 + 2*100 + 4*80.
	equal("use of GPUs", f.Use.GPUs, used/1600)
	equal("use of CPUs", f.Use.CPUs, (80+20+100+80+5)/6400.)
	equal("lost work", f.Again.LostGPU, 40)
	if a := f.Again; a.Preemptions != 1 || a.Lost != 1 || a.Restarts != 2 || a.Recovery.Max != 10 {
		t.Errorf("again: %+v, want 1 preemption, 1 lost, 2 restarts and a recovery of 10", a)
	}
	if want := (report.FaultCost{At: 99, Until: 105, Kind: "host", What: "a", Machines: 1, Hit: 1, Again: 1, Lost: 40, Recovery: 10}); len(f.Faults) != 1 || f.Faults[0] != want {
		t.Errorf("faults: %+v, want 1 of them and [0] %v", f.Faults, want)
	}
	// Users: amy 3, bob (1.6+1)/2; cy has finished nothing.
	equal("fairness", f.Fairness, math.Round((3+1.3)*(3+1.3)/(2*(9+1.69))*1e6)/1e6)
	if f.UserCount != 3 || f.Users[0].Name != "amy" || f.Users[0].GPUSeconds != 640 {
		t.Errorf("users: %+v, want 3, with amy first and 640 GPU-seconds", f.Users)
	}
	if len(f.Classes) != 2 || f.Classes[0].Name != "BE" || f.Classes[0].Jobs != 4 || f.Classes[1].Wait.Max != 200 {
		t.Errorf("classes: %+v, want 2, BE first with 4 jobs", f.Classes)
	}
	var sizes []string
	for _, g := range f.Sizes {
		sizes = append(sizes, g.Name)
	}
	if want := []string{"no GPU", "1 GPU", "2 GPUs", "3-4 GPUs"}; !slices.Equal(sizes, want) {
		t.Errorf("sizes %q, want %q", sizes, want)
	}
	if r := f.Remote; r.Starts != 5 || r.Away != 1 || r.Hops != 0.4 || !slices.Equal(r.ByHops, []int{4, 0, 1}) || r.RemoteDelay != 0 || r.LocalDelay != 15 {
		t.Errorf("remote: %+v, want 5 starts, 1 away, 0.4 hops and a local delay of 15", r)
	}
	if f.Series.Step != 2 || len(f.Series.GPUs) != 200 || f.Series.GPUs[0] != 1 || f.Series.GPUs[45] != 0.5 || f.Series.Waiting[27] != 1 {
		t.Errorf("series: step %v, %d steps, want 2 and 200 with the values by hand", f.Series.Step, len(f.Series.GPUs))
	}
}

// Fragments by the definition of the paper, on one machine.
func TestFragmentsFollowTheDefinition(t *testing.T) {
	l := &load.Load{
		Machines: []load.Machine{{Name: "a", CPUs: 10_000, GPUs: 2, Model: "T4"}},
		Jobs: []load.Job{
			{Runs: time.Minute, Spec: job.Spec{Resources: job.Resources{CPUs: 8000, GPUShare: 0.6}}},
			{Runs: time.Minute, Spec: job.Spec{Resources: job.Resources{CPUs: 1000, GPUs: 2}}},
			{Runs: time.Minute, Spec: job.Spec{Resources: job.Resources{CPUs: 1000}}},
			{Runs: time.Minute, Spec: job.Spec{Resources: job.Resources{CPUs: 1000, GPUs: 1, GPUModel: "A100"}}},
		},
	}
	// Idle, 2 GPUs are lost to the requests without a GPU and for the other model: 2*2/4 = 1 GPU.
	f := tally(t, l, nil, time.Minute)
	if f.Use.Fragments != 0.5 || f.Use.FragmentRatio != 0.5 {
		t.Errorf("idle: %+v, want Fragments 0.5 and FragmentRatio 0.5", f.Use)
	}
	// With 0.6 of a device and 8 CPUs in use, 1.4 are free. The first request lacks CPUs, the second a device, and the
	// other two can use none: all 1.4 are fragments.
	f = tally(t, l, []record.Record{{Kind: record.Start, Alloc: []record.Alloc{{Devices: []int{0}, Milli: 600}}}}, time.Minute)
	if f.Use.Fragments != 0.7 || f.Use.FragmentRatio != 1 {
		t.Errorf("busy: %+v, want Fragments 0.7 and FragmentRatio 1", f.Use)
	}
}

// The figures of random runs are those of a slow count that looks at each moment by itself.
func TestFiguresAgreeWithASlowCount(t *testing.T) {
	for seed := range uint64(25) {
		r := rand.New(rand.NewPCG(seed, 3))
		l := reporttest.Load(r, 8, 50)
		records := reporttest.Run(r, l, 0.15, 0.15)
		end := records[len(records)-1].At
		f := tally(t, l, records, 0)

		type key struct{ job, task int }
		cluster, held := report.ClusterOf(l.Machines), 0.0
		begun, done, lost := map[key]record.Record{}, map[key]time.Duration{}, 0.0
		var waits []float64
		for _, x := range records {
			k := key{x.Job, x.Task}
			if x.Kind == record.Start {
				begun[k] = x
				continue
			}
			spent := (x.At - begun[k].At).Seconds()
			n := 0.0
			for _, a := range begun[k].Alloc {
				n += float64(len(a.Devices)*a.Milli) / gpu.Whole
			}
			held += n * spent
			switch x.Kind {
			case record.Lost:
				lost += n * spent
			case record.Start, record.Preempt, record.Reject:
			case record.Finish:
				done[k] = x.At
				waits = append(waits, (x.At - l.Jobs[x.Job].Submit - l.Jobs[x.Job].Runs).Seconds())
			}
		}
		slices.Sort(waits)
		close := func(what string, got, want float64) {
			t.Helper()
			if math.Abs(got-want) > 1e-5*max(1, math.Abs(want)) {
				t.Errorf("seed %d: %s is %v, want %v", seed, what, got, want)
			}
		}
		span := (end - l.Jobs[0].Submit).Seconds()
		close("use", f.Use.GPUs, held/(span*float64(cluster.GPUs)))
		close("lost", f.Again.LostGPU, lost)
		close("p95", f.Wait.P95, waits[int(math.Ceil(0.95*float64(len(waits))))-1])
		if f.Jobs.Finished != len(done) || f.Jobs.Submitted != len(done) || f.Jobs.Waiting+f.Jobs.Running != 0 {
			t.Errorf("seed %d: %+v, want %d finished and submitted, and none left", seed, f.Jobs, len(done))
		}
		// The queue at some moments, and the area of the series.
		area := 0.0
		for i, v := range f.Series.GPUs {
			from := float64(i) * f.Series.Step
			area += v * (min(end.Seconds(), from+f.Series.Step) - from)
		}
		if want := held / float64(cluster.GPUs); math.Abs(area-want) > 1e-3*want {
			t.Errorf("seed %d: the series has an area of %v, want %v", seed, area, want)
		}
		for _, g := range [][]report.Group{f.Classes, f.Sizes, f.Users} {
			n, used := 0, 0.0
			for _, x := range g {
				n += x.Wait.N
				used += x.GPUSeconds
			}
			close("GPU time of a grouping", used, held)
			if n != len(done) {
				t.Errorf("seed %d: a grouping has %d jobs, want %v", seed, n, len(done))
			}
		}
		if again := tally(t, l, records, 0); !reflect.DeepEqual(f, again) {
			t.Errorf("seed %d: the same run has two results", seed)
		}
	}
}

// A task that a fault ended counts for the latest fault of one of its machines.
func TestLossCountsForTheLatestFault(t *testing.T) {
	l := &load.Load{Machines: []load.Machine{{Name: "a", GPUs: 1}, {Name: "b", GPUs: 1}}, Jobs: []load.Job{{Runs: time.Hour, Spec: gpus(1)}}}
	f := tally(t, l, []record.Record{
		{At: 1, Kind: record.Start, Alloc: []record.Alloc{{Machine: 1, Devices: []int{0}, Milli: 1000}}},
		{At: 10 * time.Second, Kind: record.Lost},
	}, time.Minute,
		report.Fault{At: time.Second, What: "rack", Machines: []int{0, 1}}, report.Fault{At: 2 * time.Second, What: "b", Machines: []int{1}},
		report.Fault{At: 3 * time.Second, What: "a", Machines: []int{0}}, report.Fault{At: 20 * time.Second, What: "b again", Machines: []int{1}})
	var hit []int
	for _, x := range f.Faults {
		hit = append(hit, x.Hit)
	}
	if want := []int{0, 1, 0, 0}; !slices.Equal(hit, want) {
		t.Errorf("hit %v, want %v", hit, want)
	}
}

// Saved work is not lost, and a finish that a fault undoes does not count.
func TestSavedWorkIsNotLost(t *testing.T) {
	l := &load.Load{Machines: []load.Machine{{Name: "a", GPUs: 2}}, Jobs: []load.Job{{Runs: 10 * time.Minute, Spec: gpus(2)}}}
	c, err := report.NewTally(l)
	if err != nil {
		t.Fatal(err)
	}
	c.Checkpoint = 4 * time.Minute
	on := []record.Alloc{{Devices: []int{0, 1}, Milli: 1000}}
	at := func(minutes int, kind record.Kind) {
		r := record.Record{At: time.Duration(minutes) * time.Minute, Kind: kind}
		if kind == record.Start {
			r.Alloc = on
		}
		c.Take(r)
	}
	at(0, record.Start)
	at(9, record.Lost) // 1 minute is lost
	at(9, record.Start)
	at(11, record.Finish)
	at(11, record.Lost)   // of its 10 minutes, 2 were after the last save
	at(12, record.Reject) // it is held, and a person releases it
	at(12, record.Start)
	at(14, record.Finish)
	f := c.Figures(0, nil)
	if f.Jobs != (report.Jobs{Submitted: 1, Finished: 1}) || f.Again.Lost != 2 || f.Again.Restarts != 2 || f.Again.LostGPU != 2*3*60 || f.Again.Recovery.Max != 60 {
		t.Errorf("got %+v, %+v, want 1 finished, 2 lost and restarted, 360 GPU-seconds and a recovery of 60", f.Jobs, f.Again)
	}
	if f.Wait.N != 1 || f.Wait.Max != 240 || f.Makespan != 840 {
		t.Errorf("wait %+v, makespan %v, want N 1, Max 240 and 840", f.Wait, f.Makespan)
	}
}

func TestInvalidArrayIsRefused(t *testing.T) {
	l := &load.Load{Jobs: []load.Job{{Name: "x", Spec: job.Spec{Array: "3-1"}}}}
	if _, err := report.NewTally(l); err == nil {
		t.Error("NewTally accepts it")
	}
	if _, err := report.NewReferee(l, report.Rules{}); err == nil {
		t.Error("NewReferee accepts it")
	}
}

// large is a load of so many jobs, and its records, one machine after the other.
func large(machines, jobs int) (*load.Load, func(report.Tee)) {
	l := &load.Load{}
	for i := range machines {
		l.Machines = append(l.Machines, load.Machine{Name: fmt.Sprintf("n%d", i), CPUs: 96_000, GPUs: 8, Model: "A100"})
	}
	for i := range jobs {
		l.Jobs = append(l.Jobs, load.Job{
			Name: fmt.Sprintf("j%d", i), User: fmt.Sprintf("u%d", i%100), Submit: time.Duration(i) * time.Millisecond, Runs: time.Second,
			Spec: job.Spec{Resources: job.Resources{CPUs: 1000 * (1 + i%30), GPUs: 8}},
		})
	}
	return l, func(sink report.Tee) {
		devices := []int{0, 1, 2, 3, 4, 5, 6, 7}
		for i := range jobs {
			at := l.Jobs[i].Submit
			if i >= machines {
				sink.Take(record.Record{At: at, Kind: record.Finish, Job: i - machines})
			}
			sink.Take(record.Record{At: at, Kind: record.Start, Job: i, Alloc: []record.Alloc{{Machine: i % machines, Devices: devices, Milli: 1000}}})
		}
	}
}

// BenchmarkMillionJobs measures a million jobs on ten thousand hosts: the time of a record, and the bytes of a job.
func BenchmarkMillionJobs(b *testing.B) {
	const machines, jobs = 10_000, 1_000_000
	l, play := large(machines, jobs)
	for b.Loop() {
		runtime.GC()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		t, err := report.NewTally(l)
		if err != nil {
			b.Fatal(err)
		}
		begin := time.Now()
		play(report.Tee{t})
		took := time.Since(begin)
		runtime.GC()
		runtime.ReadMemStats(&after)
		f := t.Figures(0, nil)
		if f.Jobs.Finished != jobs-machines {
			b.Fatalf("got %v, want Finished %v", f.Jobs, jobs-machines)
		}
		b.ReportMetric(float64(took.Nanoseconds())/(2*jobs), "ns/record")
		b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/jobs, "B/job")
	}
}

func BenchmarkLog(b *testing.B) {
	const machines, jobs = 100, 100_000
	l, play := large(machines, jobs)
	for b.Loop() {
		g := report.NewLog(&bytes.Buffer{}, l)
		play(report.Tee{g})
		if err := g.Close(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/(2*jobs), "ns/record")
}
