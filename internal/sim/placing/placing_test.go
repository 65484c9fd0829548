package placing

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/internal/sim/load"
	"github.com/musterhq/muster/job"
)

// asks is a request. A number of GPUs below 1 is a share.
func asks(name string, cpus int, gpus float64, models string) load.Request {
	need := job.Resources{CPUs: 1000 * cpus, Memory: job.Size(cpus) << 30, GPUModel: contract.ModelName(models)}
	if gpus < 1 {
		need.GPUShare = gpus
	} else {
		need.GPUs = int(gpus)
	}
	return load.Request{Name: name, GPUs: gpu.Count(need), Milli: gpu.Milli(need), Models: models, Need: need}
}

// someCluster returns machines of several sizes and models, and a table of requests for them.
func someCluster(machines, requests int, seed uint64) ([]load.Machine, []load.Request) {
	r := rand.New(rand.NewPCG(seed, 7))
	ms := make([]load.Machine, machines)
	for i := range ms {
		n := []int{0, 1, 2, 2, 4, 8, 8, 8, 8}[r.IntN(9)]
		ms[i] = load.Machine{Name: fmt.Sprintf("m%05d", i), CPUs: 1000 * max(8, 12*n), Memory: job.Size(max(8, 12*n)) << 31, GPUs: n}
		if n > 0 {
			ms[i].Model = []string{"T4", "A100", "G2", "G2"}[r.IntN(4)]
		}
	}
	rs := make([]load.Request, requests)
	for i := range rs {
		gpus := []float64{0, 0.1, 0.25, 0.47, 0.47, 0.81, 0.81, 1, 1, 1, 1, 1, 2, 4, 8}[r.IntN(15)]
		models := ""
		if gpus > 0 && r.IntN(5) == 0 {
			models = []string{"T4", "A100|G2"}[r.IntN(2)]
		}
		rs[i] = asks(fmt.Sprintf("p%05d", i), 1+r.IntN(int(8*max(1, gpus))), gpus, models)
	}
	return ms, rs
}

// referee follows a log with its own account.
type referee struct {
	tb       testing.TB
	machines []load.Machine
	cpu      []int
	memory   []job.Size
	left     [][]int
	used     int
}

func newReferee(tb testing.TB, machines []load.Machine) *referee {
	f := &referee{tb: tb, machines: machines}
	for _, m := range machines {
		f.cpu, f.memory = append(f.cpu, m.CPUs), append(f.memory, m.Memory)
		f.left = append(f.left, slices.Repeat([]int{1000}, m.GPUs))
	}
	return f
}

func (f *referee) fits(i int, r load.Request) bool {
	free := 0
	for _, left := range f.left[i] {
		if left >= r.Milli {
			free++
		}
	}
	model := r.Models == "" || slices.Contains(strings.Split(r.Models, "|"), f.machines[i].Model)
	return f.cpu[i] >= r.Need.CPUs && f.memory[i] >= r.Need.Memory && (r.GPUs == 0 || model && free >= r.GPUs)
}

// take checks one line of the log.
func (f *referee) take(r load.Request, l line) {
	f.tb.Helper()
	if l.Pod != r.Name {
		f.tb.Fatalf("the log is about %s, want %s", l.Pod, r.Name)
	}
	if l.Rejected {
		for i := range f.machines {
			if f.fits(i, r) {
				f.tb.Fatalf("%+v is rejected, but fits at %s", r, f.machines[i].Name)
			}
		}
		return
	}
	i := slices.IndexFunc(f.machines, func(m load.Machine) bool { return m.Name == l.Node })
	if i < 0 || !f.fits(i, r) || len(l.GPUs) != r.GPUs || l.Milli != r.Milli {
		f.tb.Fatalf("%+v is not placed legally: %+v", r, l)
	}
	for _, d := range l.GPUs {
		if f.left[i][d] -= r.Milli; f.left[i][d] < 0 {
			f.tb.Fatalf("%+v gets too much of GPU %d: %+v", r, d, l)
		}
	}
	f.cpu[i] -= r.Need.CPUs
	f.memory[i] -= r.Need.Memory
	f.used += r.AllMilli()
}

// Each policy, with each number of candidates, places legally and rejects only what fits nowhere. It writes the same
// bytes for the same seed, and has the figures that its log shows.
func TestEachPolicyPlacesLegally(t *testing.T) {
	machines, table := someCluster(40, 150, 1)
	arrivals, ranks, err := Inflate(machines, table, 5, Inflation)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range Policies() {
		for _, d := range []int{0, 1, 5} {
			t.Run(fmt.Sprint(name, "/", d), func(t *testing.T) {
				cfg := Config{Machines: machines, Arrivals: arrivals, Workload: table, Policy: name, Candidates: d, Seed: 5, Ranks: ranks}
				log, r := logOf(t, cfg)
				again, _ := logOf(t, cfg)
				if !bytes.Equal(log, again) {
					t.Error("the same seed gives another log")
				}
				checkLog(t, cfg, log, r)
			})
		}
	}
}

func logOf(t *testing.T, cfg Config) ([]byte, *Result) {
	t.Helper()
	var log bytes.Buffer
	cfg.Log = LogTo(&log, cfg.Machines)
	r, err := Run(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return log.Bytes(), r
}

// checkLog follows the log with another account than that of the run.
func checkLog(t *testing.T, cfg Config, log []byte, r *Result) {
	t.Helper()
	f := newReferee(t, cfg.Machines)
	asked, sum, n, rejected := 0, 0.0, 0, 0
	lines := bytes.Split(bytes.TrimSpace(log), []byte("\n"))
	if len(lines) != len(cfg.Arrivals) {
		t.Fatalf("%d lines, want %d as arrivals", len(lines), len(cfg.Arrivals))
	}
	for i, text := range lines {
		var l line
		if err := json.Unmarshal(text, &l); err != nil {
			t.Fatal(err)
		}
		f.take(cfg.Arrivals[i], l)
		if l.Rejected {
			rejected++
		}
		asked += cfg.Arrivals[i].AllMilli()
		if x := math.RoundToEven(100 * float64(asked) / float64(r.Milli)); x == 100 {
			sum += math.Round(10_000*float64(f.used)/float64(r.Milli)) / 100
			n++
		}
	}
	b, known := r.At(100)
	if !known || b.Arrivals != n || math.Abs(b.Alloc-sum/float64(n)) > 1e-9 {
		t.Errorf("allocated at 100 %%: %+v, want %.4f in %d arrivals as in the log", b, sum/float64(n), n)
	}
	if r.Used != f.used || r.Rejected != rejected || r.Placed+rejected != len(cfg.Arrivals) {
		t.Errorf("%+v: the log has %d thousandths, %d rejected of %d, want the same", *r, f.used, rejected, len(cfg.Arrivals))
	}
	if b.Frag < 0 || b.Frag > 100-b.Alloc+1e-6 || b.Ratio > 100+1e-6 {
		t.Errorf("fragmentation is more than what is idle: %+v, want Frag at least 0, Frag at most %v and Ratio at most %v", b, 100-b.Alloc+1e-6, 100+1e-6)
	}
}

// The lines of the log have the published form.
func TestLogHasThePublishedForm(t *testing.T) {
	var out strings.Builder
	log := LogTo(&out, []load.Machine{{Name: "n<0>"}})
	for _, d := range []Decision{
		{Request: "a", Devices: []int{0, 3}, Milli: 1000},
		{Request: "b"},
		{Request: "c", Machine: -1},
	} {
		if err := log(d); err != nil {
			t.Fatal(err)
		}
	}
	const want = `{"pod":"a","node":"n<0>","gpus":[0,3],"milli":1000}
{"pod":"b","node":"n<0>"}
{"pod":"c","rejected":true}
`
	if out.String() != want {
		t.Errorf("the log is\n%swant\n%s", &out, want)
	}
}

// fixed is a policy that always makes the same choice.
type fixed struct {
	machine int
	devices []int
}

func (f fixed) choose(*request) (int, []int) { return f.machine, f.devices }

func (fixed) placed(*request, int, []int) {}

// An illegal choice ends the run, whatever policy made it.
func TestIllegalChoiceEndsTheRun(t *testing.T) {
	machines := []load.Machine{{Name: "a", CPUs: 8000, Memory: 8 << 30, GPUs: 2, Model: "T4"}, {Name: "b", CPUs: 1000, Memory: 1 << 30}}
	for _, c := range []struct {
		name string
		ask  load.Request
		by   fixed
		want string
	}{
		{"rejects what fits", asks("p", 1, 1, ""), fixed{machine: -1}, "rejected, but it fits at a"},
		{"too few CPUs", asks("p", 9, 1, ""), fixed{0, []int{0}}, "at a: it does not fit"},
		{"no GPUs", asks("p", 1, 1, ""), fixed{1, []int{0}}, "at b: it does not fit"},
		{"another model", asks("p", 1, 1, "A100"), fixed{0, []int{0}}, "at a: it does not fit"},
		{"one device twice", asks("p", 1, 2, ""), fixed{0, []int{1, 1}}, "at a: the devices [1 1] are not free for it"},
		{"too few devices", asks("p", 1, 2, ""), fixed{0, []int{0}}, "at a: it gets 1 devices instead of 2"},
		{"an unknown device", asks("p", 1, 0.5, ""), fixed{0, []int{2}}, "at a: the devices [2] are not free for it"},
		{"legal", asks("p", 1, 0.5, "T4|A100"), fixed{0, []int{1}}, ""},
		{"legal rejection", asks("p", 1, 3, ""), fixed{machine: -1}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			cl, err := newCluster(machines)
			if err != nil {
				t.Fatal(err)
			}
			rs, err := cl.requests([]load.Request{c.ask})
			if err != nil {
				t.Fatal(err)
			}
			if _, err = cl.decide(c.by, rs[0]); c.want == "" && err != nil || c.want != "" && (err == nil || err.Error() != c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

// An experiment that cannot be run is refused with an error of one line.
func TestInvalidExperimentIsRefused(t *testing.T) {
	machines := []load.Machine{{Name: "a", CPUs: 8000, Memory: 8 << 30, GPUs: 2, Model: "T4"}}
	arrivals := []load.Request{asks("p", 1, 1, "")}
	memory := asks("p", 1, 1, "")
	memory.Need.GPUMemory = 1 << 30
	apart := asks("p", 1, 1, "")
	apart.Milli = 500
	for _, c := range []struct {
		cfg  Config
		want string
	}{
		{Config{Arrivals: arrivals, Policy: "frag"}, "the machines have no GPUs"},
		{Config{Machines: machines, Policy: "frag"}, "no request is listed"},
		{Config{Machines: machines, Arrivals: arrivals, Policy: "best"}, `policy "best": want one of [balanced frag pack simple spread topology Random DotProd GpuClustering GpuPacking BestFit FGD]`},
		{Config{Machines: machines, Arrivals: arrivals, Policy: "FGD", Candidates: -1}, "-1 candidates: want 0 for all, or more"},
		{Config{Machines: machines, Arrivals: arrivals, Policy: "FGD", Ranks: []int{1, 2}}, "2 ranks for 1 machines"},
		{Config{Machines: append(machines, machines[0]), Arrivals: arrivals, Policy: "FGD"}, "machine a: listed twice"},
		{Config{Machines: []load.Machine{{Name: "a", GPUs: 2000}}, Arrivals: arrivals, Policy: "FGD"}, "machine a: 2000 GPUs: want 0 to 1024"},
		{Config{Machines: machines, Arrivals: []load.Request{memory}, Policy: "FGD"}, "request p: the placement experiment knows CPUs, memory, GPUs, shares and models of GPUs only"},
		{Config{Machines: machines, Arrivals: []load.Request{apart}, Policy: "FGD"}, "request p: 500 thousandths of 1 GPUs are not what its need says"},
	} {
		if _, err := Run(t.Context(), c.cfg); err == nil || err.Error() != c.want {
			t.Errorf("%v, want %q", err, c.want)
		}
	}
}

// A run ends with its context, or when its log cannot be written.
func TestRunEndsWithItsContextOrLog(t *testing.T) {
	machines, table := someCluster(10, 50, 1)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	cfg := Config{Machines: machines, Arrivals: table, Policy: "FGD"}
	if _, err := Run(ctx, cfg); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want that it was cancelled", err)
	}
	full := errors.New("the disk is full")
	cfg.Log = func(Decision) error { return full }
	if _, err := Run(t.Context(), cfg); !errors.Is(err, full) {
		t.Errorf("%v, want %v", err, full)
	}
}

// The list of arrivals starts with the whole table, goes on with requests from it, and ends at the wanted load.
func TestArrivalsAreInflatedToTheWantedLoad(t *testing.T) {
	for seed := range int64(20) {
		machines, table := someCluster(20, 60, uint64(seed))
		total := 0
		for i := range machines {
			total += 1000 * machines[i].GPUs
		}
		asked := 0
		for i := range table {
			asked += table[i].AllMilli()
		}
		for _, percent := range []int{100 * asked / total / 2, 100*asked/total + 40} {
			list, ranks, err := Inflate(machines, table, seed, percent)
			if err != nil {
				t.Fatal(err)
			}
			checkInflated(t, table, list, total*percent/100)
			slices.Sort(ranks)
			for i, x := range ranks {
				if i != x {
					t.Fatalf("the ranks are not a permutation: %v", ranks)
				}
			}
		}
	}
}

func checkInflated(t *testing.T, table, list []load.Request, want int) {
	t.Helper()
	have := 0
	names := map[string]int{}
	for _, r := range list {
		have += r.AllMilli()
		name, _, _ := strings.Cut(r.Name, "-tuned-")
		at := slices.IndexFunc(table, func(x load.Request) bool { return x.Name == name })
		if at < 0 || table[at].Need != r.Need {
			t.Fatalf("%s is not in the table", r.Name)
		}
		if names[r.Name]++; names[r.Name] > 1 {
			t.Fatalf("%s comes twice", r.Name)
		}
	}
	if have > want || have < want-8*gpu.Whole { // the last request that is added, or removed, has at most 8 GPUs
		t.Fatalf("%d are asked for, want about %d", have, want)
	}
}

// A table without GPUs would never fill the GPUs.
func TestTableWithoutGPUsIsNotInflated(t *testing.T) {
	machines, _ := someCluster(5, 5, 1)
	if _, _, err := Inflate(machines, []load.Request{asks("p", 1, 0, "")}, 1, Inflation); err == nil {
		t.Error("a table without GPUs is inflated")
	}
}
