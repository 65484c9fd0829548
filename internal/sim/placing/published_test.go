package placing

import (
	"math"
	"testing"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/internal/sim/load"
)

// with is a machine with so much left.
func with(cpus int, left ...int) *machine {
	m := &machine{name: "m", cpu: 1000 * cpus, memory: 1 << 40, left: left}
	for _, l := range left {
		m.idle += l
	}
	return m
}

// The scores are those of the published code, in whole numbers.
func TestScoresAreThoseOfThePublishedCode(t *testing.T) {
	share, one, two, none := ask(t, 4, 0.5), ask(t, 4, 1), ask(t, 4, 2), ask(t, 4, 0)
	clustered := func(kinds uint64, left ...int) *machine {
		m := with(64, left...)
		m.kinds = kinds
		return m
	}
	p := &published{}
	for _, c := range []struct {
		name string
		got  int
		want int
	}{
		{"best fit", bestFit(with(68, 1000, 1000, 1000, 1000), two), 62},    // 100 (1 - 0.5·64/128 - 0.5·2/8) = 62.5
		{"dot product", dotProd(with(64, 1000, 1000, 1000, 1000), two), 92}, // 100 (1 - (0.5/32 + 0.5/4)/2) = 92.97
		{"packing: no GPU", p.gpuPacking(with(64, 1000), none), 0},
		{"packing: empty", p.gpuPacking(with(64, 1000, 1000), one), 31},
		{"packing: a free device of a used machine", p.gpuPacking(with(64, 400, 1000, 1000), one), 49},
		{"packing: two of them", p.gpuPacking(with(64, 400, 1000, 1000), two), 48},
		{"packing: a used device", p.gpuPacking(with(64, 400, 600, 1000), share), 94}, // 100 - 60/10
		{"clustering: no GPU", gpuClustering(clustered(1, 500), none), 0},
		{"clustering: only shares", gpuClustering(clustered(1, 500, 1000), share), 95}, // t = 25·6500/8000 = 20
		{"clustering: shares among others", gpuClustering(clustered(3, 500, 1000), share), 70},
		{"clustering: empty", gpuClustering(clustered(0, 1000, 1000), share), 43},
		{"clustering: others only", gpuClustering(clustered(4, 500, 1000), share), 20},
	} {
		if c.got != c.want {
			t.Errorf("%s: %d, want %d", c.name, c.got, c.want)
		}
	}
	scores := []int{40, 50, 47}
	stretch(scores)
	if scores[0] != 0 || scores[1] != 100 || scores[2] != 70 {
		t.Errorf("stretched to %v, want [0] 0, [1] 100 and [2] 70", scores)
	}
	if stretch(scores[:1]); scores[0] != 0 {
		t.Errorf("one score is stretched to %d, want 0", scores[0])
	}
}

func ask(t *testing.T, cpus int, gpus float64) *request {
	t.Helper()
	c, err := newCluster([]load.Machine{{Name: "a", GPUs: 1, Model: "t4"}})
	if err != nil {
		t.Fatal(err)
	}
	rs, err := c.requests([]load.Request{asks("p", cpus, gpus, "")})
	if err != nil {
		t.Fatal(err)
	}
	return rs[0]
}

// The fragmentation of a machine is what the usual requests could not use of it, on average.
func TestFragmentationIsTheMeanOverTheUsualRequests(t *testing.T) {
	c, err := newCluster([]load.Machine{{Name: "a", CPUs: 8000, Memory: 1 << 40, GPUs: 2, Model: "T4"}, {Name: "b"}})
	if err != nil {
		t.Fatal(err)
	}
	table := []load.Request{ // each is a fourth of the requests
		asks("p1", 1, 0.5, ""), asks("p2", 1, 2, ""), asks("p3", 1, 0, ""), asks("p4", 1, 0.5, "A100"),
	}
	rs, err := c.requests(table)
	if err != nil {
		t.Fatal(err)
	}
	target := targetOf(c, rs)
	if len(target.classes) != 4 {
		t.Fatalf("%d classes, want 4", len(target.classes))
	}
	for _, x := range []struct {
		model, cpu int
		left       []int
		want       float64
	}{
		{0, 8000, []int{1000, 1000}, (0 + 0 + 2000 + 2000) / 4.0},
		{0, 8000, []int{300, 1000}, (300 + 1300 + 1300 + 1300) / 4.0}, // two GPUs do not fit
		{0, 500, []int{1000, 1000}, 2000},                             // no CPU
		{0, 8000, []int{0, 0}, 0},
		{-1, 8000, nil, 0},
	} {
		if got := target.fragment(x.model, x.cpu, x.left); math.Abs(got-x.want) > 1e-9 {
			t.Errorf("%v with %d CPUs: %v, want %v", x.left, x.cpu, got, x.want)
		}
	}
}

// The target workload is the most frequent kinds, up to 95 % of the requests.
func TestTargetWorkloadIsTheMostFrequentKinds(t *testing.T) {
	c, err := newCluster([]load.Machine{{Name: "a", GPUs: 8, Model: "T4"}})
	if err != nil {
		t.Fatal(err)
	}
	var table []load.Request
	for i := range 100 {
		switch {
		case i < 60:
			table = append(table, asks("p", 1, 1, ""))
		case i < 95:
			table = append(table, asks("p", 2, 0.5, ""))
		default:
			table = append(table, asks("p", i, 0, ""))
		}
	}
	rs, err := c.requests(table)
	if err != nil {
		t.Fatal(err)
	}
	got := targetOf(c, rs).classes
	if len(got) != 2 || got[0].share != 60.0/95 || got[1].share != 35.0/95 || got[0].gpus != 1 || got[1].cpu != 2000 {
		t.Errorf("%+v, want the two kinds that are 95 of 100", got)
	}
}

// What FGD caches about the machines gives the same choices as if it computed each score again.
func TestFGDChoosesTheSameWithItsCache(t *testing.T) {
	machines, table := someCluster(25, 120, 3)
	arrivals, _, err := Inflate(machines, table, 1, Inflation)
	if err != nil {
		t.Fatal(err)
	}
	c, err := newCluster(machines)
	if err != nil {
		t.Fatal(err)
	}
	rs, err := c.requests(arrivals)
	if err != nil {
		t.Fatal(err)
	}
	cfg := Config{Machines: machines, Policy: FGD}
	one, err := newPublished(&cfg, c, rs)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rs {
		at, devices := one.choose(r)
		if at < 0 {
			continue
		}
		fresh, err := newPublished(&cfg, c, rs)
		if err != nil {
			t.Fatal(err)
		}
		if then, others := fresh.choose(r); then != at || len(others) != len(devices) || len(devices) > 0 && others[0] != devices[0] {
			t.Fatalf("%s: machine %d and devices %v, want %d and %v as computed again", r.name, at, devices, then, others)
		}
		if err := c.machines[at].take(r, devices); err != nil {
			t.Fatal(err)
		}
		one.placed(r, at, devices)
	}
}

// FGD scores a share by the device on which the fragmentation grows the least, the first of equal ones.
func TestFGDChoosesTheDeviceWithTheLeastFragmentation(t *testing.T) {
	machines := []load.Machine{{Name: "a", CPUs: 64000, Memory: 1 << 40, GPUs: 3, Model: "T4"}}
	c, err := newCluster(machines)
	if err != nil {
		t.Fatal(err)
	}
	table := []load.Request{asks("p1", 1, 0.5, ""), asks("p2", 1, 1, "")}
	rs, err := c.requests(table)
	if err != nil {
		t.Fatal(err)
	}
	c.machines[0].left, c.machines[0].idle = []int{gpu.Whole, 700, 500}, 2200
	p, err := newPublished(&Config{Machines: machines, Policy: FGD}, c, rs)
	if err != nil {
		t.Fatal(err)
	}
	if _, devices := p.choose(rs[0]); len(devices) != 1 || devices[0] != 2 {
		t.Errorf("devices %v, want the one with half left", devices)
	}
}
