package policy

import (
	"fmt"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler/fleet"
)

// hostOf is a host with so many free CPUs of 64, and devices of a class with these thousandths free.
func hostOf(name string, cpus int, class string, milli ...int) contract.Hello {
	m := contract.Hello{
		Profile: contract.Profile{Name: name, CPUs: 64, Memory: 512 << 30, Worker: true},
		Free:    contract.Free{CPUs: cpus, Memory: 512 << 30},
	}
	for i, x := range milli {
		d := gpu.Device{UUID: fmt.Sprint(name, i), Class: class, Memory: 80 << 30}
		m.Profile.GPUs = append(m.Profile.GPUs, d)
		if x > 0 {
			m.Free.GPUs = append(m.Free.GPUs, contract.FreeGPU{UUID: d.UUID, Memory: d.Memory / 1000 * job.Size(x), Milli: x})
		}
	}
	return m
}

// withMemory is the host with so much free memory.
func withMemory(m contract.Hello, free job.Size) contract.Hello {
	m.Free.Memory = free
	return m
}

// remote is like feasibleOf, but no host is the scheduler's own.
func remote(need job.Resources, hosts ...contract.Hello) []Candidate {
	out := feasibleOf(need, hosts)
	for i := range out {
		out[i].Local = false
	}
	return out
}

func TestFragPrefersTheLeastFragmentation(t *testing.T) {
	whole := func(cpus, gpus int) job.Resources { return job.Resources{CPUs: cpus, GPUs: gpus} }
	share := func(x float64) job.Resources { return job.Resources{CPUs: 1, GPUShare: x} }
	a100 := job.Resources{CPUs: 1, GPUs: 1, GPUModel: "a100"}
	large := job.Resources{CPUs: 1, GPUShare: 0.1, GPUMemory: 60 << 30}
	for _, c := range []struct {
		name          string
		usual         []job.Resources
		need          job.Resources
		better, worse contract.Hello
		device        string // that it chooses there; empty: any
	}{
		{
			"a hole of the right size to the tightest one",
			[]job.Resources{share(0.5), share(0.3)},
			share(0.2),
			hostOf("z", 8, "h100", 500), hostOf("a", 8, "h100", 400), "z0",
		},
		{
			"the same on one host",
			[]job.Resources{share(0.5), share(0.3)},
			share(0.2),
			hostOf("z", 8, "h100", 400, 500, 1000), hostOf("a", 8, "h100", 400), "z1",
		},
		{
			"of devices that cost the same the one that is begun, wherever it is listed",
			[]job.Resources{share(0.5)},
			share(0.5),
			hostOf("z", 8, "h100", 1000, 500, 1000), hostOf("a", 8, "h100", 1000, 1000, 1000), "z1",
		},
		{
			"the same of two hosts, though more devices are free there",
			[]job.Resources{share(0.5)},
			share(0.5),
			hostOf("z", 8, "h100", 1000, 500, 1000), hostOf("a", 8, "h100", 1000), "z1",
		},
		{
			"a host with few CPUs, if few have those of the usual requests",
			[]job.Resources{whole(12, 1), whole(12, 1), whole(12, 1), whole(4, 1)},
			whole(4, 1),
			hostOf("z", 8, "h100", 1000), hostOf("a", 60, "h100", 1000, 1000, 1000, 1000, 1000, 1000, 1000, 1000), "z0",
		},
		{
			"a device without room for a large share, if few devices have it",
			[]job.Resources{share(0.8), share(0.8), share(0.4)},
			share(0.1),
			hostOf("z", 8, "h100", 500), hostOf("a", 8, "h100", 850), "z0",
		},
		{
			"a host with too few CPUs for each request for eight, though no host has those of their mean",
			[]job.Resources{whole(120, 8), whole(64, 8), whole(1, 1)},
			whole(1, 1),
			hostOf("z", 60, "h100", 1000, 1000, 1000, 1000, 1000, 1000, 1000, 1000), hostOf("a", 65, "h100", 1000, 1000, 1000, 1000, 1000, 1000, 1000, 1000), "",
		},
		{
			"a host without room for eight",
			[]job.Resources{whole(1, 8), whole(1, 1)},
			whole(1, 1),
			hostOf("z", 8, "h100", 1000, 1000, 1000, 1000, 1000, 1000, 1000, 0), hostOf("a", 8, "h100", 1000, 1000, 1000, 1000, 1000, 1000, 1000, 1000), "",
		},
		{
			"a host without room for eight, though its GPUs have more CPUs",
			[]job.Resources{whole(8, 1), whole(8, 1), whole(8, 8)},
			whole(1, 1),
			hostOf("z", 60, "h100", 1000, 1000, 1000, 1000, 1000, 1000, 1000, 0), hostOf("a", 40, "h100", 1000, 1000, 1000, 1000, 1000, 1000, 1000, 1000), "",
		},
		{
			"a model that nobody asks for",
			[]job.Resources{a100, whole(1, 1)},
			whole(1, 1),
			hostOf("z", 8, "h100", 1000), hostOf("a", 8, "a100-80gb", 1000), "",
		},
		{
			"few CPUs for a task that needs few",
			[]job.Resources{whole(8, 1)},
			whole(1, 1),
			hostOf("z", 1, "h100", 1000), hostOf("a", 8, "h100", 1000), "",
		},
		{
			"little memory for a task that needs little",
			[]job.Resources{{CPUs: 1, GPUs: 1, Memory: 256 << 30}},
			whole(1, 1),
			withMemory(hostOf("z", 60, "h100", 1000), 8<<30), hostOf("a", 8, "h100", 1000), "",
		},
		{
			"CPUs without GPUs",
			[]job.Resources{whole(8, 1)},
			whole(4, 0),
			hostOf("z", 64, "h100", 0), hostOf("a", 64, "h100", 1000, 1000, 1000, 1000, 1000, 1000, 1000, 1000), "",
		},
		{
			"CPUs that the GPUs do not need",
			[]job.Resources{whole(8, 1)},
			whole(4, 0),
			hostOf("z", 64, "h100", 1000), hostOf("a", 8, "h100", 1000), "",
		},
		{
			"a device without the memory that shares ask for",
			[]job.Resources{large},
			share(0.1),
			hostOf("z", 8, "h100", 500), hostOf("a", 8, "h100", 1000), "",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			typical := &Typical{}
			for _, need := range c.usual {
				typical.Asked(need, 10)
			}
			p := &Frag{}
			got := p.Choose(nil, Ask{Need: c.need, Typical: typical}, remote(c.need, c.worse, c.better), 1)[0]
			if got.Index != 1 || c.device != "" && got.Devices[0] != c.device {
				t.Errorf("chose %v of %s: %s, want the better one", got.Devices, []string{c.worse.Profile.Name, c.better.Profile.Name}[got.Index], got.Why)
			}
		})
	}
}

// A share goes to no device that lacks the memory for it, though that device would be better otherwise.
func TestFragAvoidsDevicesWithTooLittleMemory(t *testing.T) {
	typical := &Typical{}
	typical.Asked(job.Resources{CPUs: 1, GPUs: 1}, 10)
	need := job.Resources{GPUShare: 0.5, GPUMemory: 60 << 30}
	p := &Frag{}
	got := p.Choose(nil, Ask{Need: need, Typical: typical}, remote(need, hostOf("a", 8, "h100", 500, 1000)), 1)[0]
	if got.Devices[0] != "a1" {
		t.Errorf(`it gets %v, want [0] "a1"`, got.Devices)
	}
}

// Without knowledge of the requests, and on hosts without GPUs, frag works like simple. Within a quantum it prefers the
// scheduler's own host.
func TestFragWithoutKnowledgeWorksLikeSimple(t *testing.T) {
	need := job.Resources{CPUs: 1, GPUs: 1}
	gpus := remote(need, hostOf("a", 64, "h100", 1000, 1000), hostOf("b", 3, "h100", 1000, 1000))
	cpus := remote(job.Resources{CPUs: 1}, hostOf("a", 64, ""), hostOf("b", 3, ""))
	typical := &Typical{}
	typical.Asked(job.Resources{CPUs: 1}, 5)
	full := &Typical{}
	full.Asked(need, 5)
	for name, c := range map[string]struct {
		ask      Ask
		feasible []Candidate
		want     string
	}{
		"nothing":     {Ask{Need: need}, gpus, "b: least waste: leaves 1 of 2 GPUs"},
		"no request":  {Ask{Need: need, Typical: &Typical{}}, gpus, "b: least waste: leaves 1 of 2 GPUs"},
		"none of GPU": {Ask{Need: need, Typical: typical}, gpus, "b: least waste: leaves 1 of 2 GPUs"},
		"no GPU":      {Ask{Need: job.Resources{CPUs: 1}, Typical: full}, cpus, "b: least waste: leaves 2 of 64 CPUs"},
		"something":   {Ask{Need: need, Typical: full}, gpus, "b: least fragmentation: leaves 1 of 2 GPUs"},
	} {
		p := &Frag{}
		got := p.Choose(nil, c.ask, c.feasible, 1)[0]
		if text := c.feasible[got.Index].Host.Name() + ": " + got.Why; text != c.want {
			t.Errorf("%s is known: %s, want %s", name, text, c.want)
		}
	}
	gpus[0].Local = true
	p := &Frag{}
	if got := p.Choose(nil, Ask{Need: need, Typical: full}, gpus, 1)[0]; got.Index != 0 {
		t.Errorf("of equal hosts it chooses %s, want the first", gpus[got.Index].Host.Name())
	}
}

// The expected use is between zero and what is free.
func TestExpectedUseIsAtMostWhatIsFree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		typical := drawTypical(t)
		w := typical.workload()
		if w == nil {
			return
		}
		d := gpu.Device{Class: "h100-80gb", Memory: 80 << 30}
		f := w.served(&d).fill
		steps := rapid.Float64Range(0, 300).Draw(t, "steps")
		milli, n := rapid.IntRange(0, 999).Draw(t, "milli"), rapid.IntRange(0, 20).Draw(t, "n")
		for _, x := range []struct {
			expect
			room float64
		}{{f.partly(int32(milli), steps), float64(milli + perLevel/2*levels)}, {f.wholly(n, steps), float64(n*gpu.Whole) * 1.06}} {
			if !(x.milli >= 0 && float64(x.milli) <= x.room && x.steps >= 0) || math.IsInf(float64(x.steps), 0) {
				t.Fatalf("of %v thousandths with %v steps the expected use is %+v, want one within them", x.room, steps, x.expect)
			}
		}
	})
}

// If all requests are the same, the expected use is what fits.
func TestExpectedUseOfEqualRequestsIsWhatFits(t *testing.T) {
	typical := &Typical{}
	typical.Asked(job.Resources{CPUs: 8, GPUs: 2}, 7)
	w := typical.workload()
	d := gpu.Device{Class: "h100-80gb"}
	f := w.served(&d).fill
	for _, c := range []struct{ gpus, cpus, want int }{
		{8, 64, 8000}, {8, 32, 8000}, {8, 31, 6000}, {8, 7, 0}, {7, 64, 6000}, {1, 64, 0}, {0, 64, 0}, {16, 64, 16000}, {16, 32, 8000},
	} {
		if got := f.wholly(c.gpus, w.steps(c.cpus, 0)); math.Abs(float64(got.milli)-float64(c.want)) > 1 {
			t.Errorf("of %d GPUs with %d CPUs %v thousandths are used, want %d", c.gpus, c.cpus, got.milli, c.want)
		}
	}
}

// Free capacity that only rare requests would use counts little.
func TestCapacityForRareRequestsCountsLittle(t *testing.T) {
	typical := &Typical{}
	typical.Asked(job.Resources{CPUs: 1, GPUShare: 0.8}, 200)
	typical.Asked(job.Resources{CPUs: 1, GPUShare: 0.2}, 1)
	w := typical.workload()
	d := gpu.Device{Class: "h100-80gb"}
	got := w.served(&d).fill.partly(200, unlimited).milli
	if want := 200 * (1 - math.Pow(200.0/201, patience)); math.Abs(float64(got)-want) > 0.1 {
		t.Errorf("of 200 thousandths %v are used, want %v", got, want)
	}
}

// BenchmarkFill computes the tables of all kinds of devices. This happens each time that the usual requests have
// changed by an eighth.
func BenchmarkFill(b *testing.B) {
	typical := &Typical{}
	for i := range 100 {
		need := job.Resources{CPUs: 1 + i%12, GPUShare: float64(1+i%99) / 100}
		if i%3 == 0 {
			need.GPUs, need.GPUShare = 1<<(i%4), 0
		}
		typical.Asked(need, 1+i%20)
	}
	for b.Loop() {
		d := gpu.Device{Class: "h100-80gb"}
		newWorkload(typical.kinds).served(&d)
	}
}

// However many kinds of devices hosts report, few tables are computed.
func TestTablesOfExpectedUseAreBounded(t *testing.T) {
	typical := &Typical{}
	for i := range 100 {
		typical.Asked(job.Resources{CPUs: i % 7, GPUShare: float64(1+i) / 101, GPUMemory: job.Size(i) << 30, GPUModel: fmt.Sprint("m", i)}, 1+i%5)
	}
	m := contract.Hello{Profile: contract.Profile{Name: "h", CPUs: 1 << 16, Memory: math.MaxInt64, Worker: true}}
	m.Free = contract.Free{CPUs: 1 << 16, Memory: math.MaxInt64}
	for i := range contract.MaxGPUs {
		d := gpu.Device{UUID: fmt.Sprint(i), Class: fmt.Sprint("m", i), Memory: job.Size(1+i) << 30, NUMA: 1<<16 - 1}
		m.Profile.GPUs = append(m.Profile.GPUs, d)
		m.Free.GPUs = append(m.Free.GPUs, contract.FreeGPU{UUID: d.UUID, Memory: math.MaxInt64, Milli: 1 + i%1000})
	}
	need := job.Resources{GPUShare: 0.001}
	table := fleet.NewTable()
	for i := range 3 {
		for j := range m.Profile.GPUs {
			m.Profile.GPUs[j].Class = fmt.Sprint("m", i*len(m.Profile.GPUs)+j)
		}
		h := table.Add(job.Peer(fmt.Sprint(i)), false)
		table.Hello(h, m, time.Time{})
		for name, p := range Named() {
			if got := p.Choose(nil, Ask{Need: need, Typical: typical}, []Candidate{CandidateOf(h, &h.Free)}, 1); len(got) != 1 {
				t.Errorf("%s chooses %v, want 1 of them", name, got)
			}
			if f, ok := p.(*Frag); ok && len(f.tried) > maxTried {
				t.Errorf("%d devices were tried, want at most maxTried", len(f.tried))
			}
		}
	}
	w := typical.workload()
	if len(w.fills) > maxFills || len(w.byDevice) > maxDevices || len(w.classes) > maxClasses || len(w.groups) > maxGroups {
		t.Errorf("%d fills, %d devices, %d classes, %d groups, want each within its bound", len(w.fills), len(w.byDevice), len(w.classes), len(w.groups))
	}
}
