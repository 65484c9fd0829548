package place

// The experiment of the paper "Beware of Fragmentation" (USENIX ATC 2023) on its public traces. Requests arrive one at
// a time and never leave; each is placed at once or rejected. The figure is the part of all GPUs that is allocated when
// the requests so far have asked for 100 % of them.
//
// The traces are read from the directory $MUSTER_TRACES. By default two tables are placed once by each policy.
// All figures of docs/policies.md:
//
//	MUSTER_TRACES=DIR go test ./scheduler/place -run '^$' -bench Openb -benchtime 1x -timeout 6h -openb.seeds 10 \
//	  -openb.tables default,cpu050,cpu100,cpu200,gpushare40,gpushare100,gpuspec10,gpuspec20,multigpu20,multigpu50

import (
	"encoding/csv"
	"flag"
	"fmt"
	"math"
	"math/rand" //nolint:depguard // the arrival lists were published with this generator
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/lease"
	"github.com/musterhq/muster/scheduler/fleet"
	"github.com/musterhq/muster/scheduler/policy"
)

var (
	openbTables = flag.String("openb.tables", "default,gpuspec20", "place these `TABLES` of the openb traces, separated by commas")
	openbSeeds  = flag.Int("openb.seeds", 1, "place each table `N` times, with the seeds from 42 on")
)

// openb is the traces in a directory.
type openb struct {
	machines  [][]string
	milli     int                   // thousandths of all GPUs
	published map[[2]string]float64 // by table and policy of the paper: percent of the GPUs allocated at 100 %
}

func readCSV(tb testing.TB, path ...string) [][]string {
	tb.Helper()
	f, err := os.Open(filepath.Join(path...))
	if err != nil {
		tb.Fatal(err)
	}
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil {
		tb.Fatal(err)
	}
	return rows[1:]
}

func number(tb testing.TB, text string) int {
	tb.Helper()
	n, err := strconv.Atoi(text)
	if err != nil {
		tb.Fatal(err)
	}
	return n
}

func readOpenb(tb testing.TB, dir string) *openb {
	tb.Helper()
	o := &openb{machines: readCSV(tb, dir, "openb_node_list_gpu_node.csv"), published: map[[2]string]float64{}}
	slices.SortFunc(o.machines, func(a, b []string) int { return strings.Compare(a[0], b[0]) })
	for _, m := range o.machines {
		o.milli += gpu.Whole * number(tb, m[3])
	}
	for _, r := range readCSV(tb, dir, "published_results.csv") {
		x, err := strconv.ParseFloat(r[3], 64)
		if err != nil {
			tb.Fatal(err)
		}
		o.published[[2]string{r[0], r[1]}] = x
	}
	return o
}

// pod is a request of the traces.
type pod struct {
	name     string
	need     job.Resources
	perGPU   int // thousandths of each device
	allMilli int
}

// pods reads a table, sorted by name.
func (o *openb) pods(tb testing.TB, dir, table string) []pod {
	tb.Helper()
	var out []pod
	for _, r := range readCSV(tb, dir, "openb_pod_list_"+table+".csv") {
		p := pod{name: r[0], need: job.Resources{CPUs: number(tb, r[1]), Memory: job.Size(number(tb, r[2])) << 20}}
		n, milli := number(tb, r[3]), number(tb, r[4])
		switch {
		case n == 1 && milli < gpu.Whole:
			p.need.GPUShare = float64(milli) / gpu.Whole
		case n > 0:
			p.need.GPUs = n
		}
		if len(r) > 5 && n > 0 {
			p.need.GPUModel = lease.ModelName(r[5])
		}
		p.perGPU, p.allMilli = milli, n*milli
		out = append(out, p)
	}
	slices.SortFunc(out, func(a, b pod) int { return strings.Compare(a.name, b.name) })
	return out
}

// arrivals is the published list of arrivals: all pods in random order, then random pods until 130 % of the GPUs are
// asked for. The last draw that is compared takes the thousandths of one device, not of all, as the published code did.
func (o *openb) arrivals(pods []pod, seed int64) []pod {
	r := rand.New(rand.NewSource(seed))
	r.Int()
	list := slices.Clone(pods)
	r.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	have, want := 0, o.milli*13/10
	for _, p := range list {
		have += p.allMilli
	}
	for have < want {
		p := pods[r.Intn(len(pods))]
		if have+p.perGPU > want {
			return list
		}
		have += p.allMilli
		list = append(list, p)
	}
	for have > want {
		i := r.Intn(len(list))
		have -= list[i].allMilli
		list = slices.Delete(list, i, i+1)
	}
	return list
}

// world is the machines as a table of hosts. A policy chooses from a sample of those with room.
type world struct {
	tb     testing.TB
	fleet  fleet.Table
	placer *Placer
	hosts  []*fleet.Host
	tasks  map[job.Resources]*Task
}

// deviceMemory is the memory of each device. The traces do not tell it, and no request asks for it.
const deviceMemory = job.Size(16 << 30)

func (o *openb) world(tb testing.TB, pods []pod, sample int) *world {
	tb.Helper()
	w := &world{tb: tb, fleet: fleet.NewTable(), tasks: map[job.Resources]*Task{}}
	typical := &policy.Typical{}
	for _, p := range pods {
		typical.Asked(p.need, 1)
	}
	w.placer = New(&w.fleet, typical)
	w.placer.Sample = sample
	for _, r := range o.machines {
		m := lease.Hello{Profile: lease.Profile{
			Name: r[0], CPUs: number(tb, r[1]), Memory: job.Size(number(tb, r[2])) << 20, Worker: true, Drivers: []string{lease.DriverExec},
		}}
		m.Free = lease.Free{CPUs: m.Profile.CPUs, Memory: m.Profile.Memory}
		for i := range number(tb, r[3]) {
			d := gpu.Device{UUID: fmt.Sprint(r[0], "-", i), Class: strings.ToLower(r[4]), Memory: deviceMemory}
			m.Profile.GPUs = append(m.Profile.GPUs, d)
			m.Free.GPUs = append(m.Free.GPUs, lease.FreeGPU{UUID: d.UUID, Memory: d.Memory, Milli: gpu.Whole})
		}
		h := w.fleet.Add(job.Peer(r[0]), false)
		w.fleet.Hello(h, m, now)
		w.hosts = append(w.hosts, h)
	}
	return w
}

// task returns the task that asks for the need with this policy.
func (w *world) task(need job.Resources, p policy.Policy) *Task {
	t := w.tasks[need]
	if t == nil {
		s := job.Spec{Resources: need}
		clauses, err := fleet.ClausesOf(s)
		if err != nil {
			w.tb.Fatal(err)
		}
		t = &Task{Policy: p, Request: fleet.Request{Shape: &fleet.Shape{
			Need: need, Foot: fleet.FootprintOf(need), Pool: w.fleet.JoinPool(fleet.PoolKey(s), clauses),
		}}}
		w.tasks[need] = t
	}
	return t
}

// place places a request for good. It returns false if it is rejected.
func (w *world) place(need job.Resources, p policy.Policy, from int) bool {
	w.fleet.Count(now)
	t := w.task(need, p)
	d := w.placer.Decide(t, from, now)
	if d.Verdict != Fits {
		for _, h := range w.hosts {
			if gpu.Count(need) <= len(h.Free.GPUs) && t.FitsNow(h) {
				w.tb.Fatalf("%+v is rejected, and fits at %s: %+v", need, h.Name(), h.Free)
			}
		}
		return false
	}
	free := d.Host.Free
	free.CPUs -= need.CPUs
	free.Memory -= need.Memory
	free.Tasks++
	free.GPUs = nil
	taken := 0
	for _, g := range d.Host.Free.GPUs {
		if slices.Contains(d.Devices, g.UUID) {
			taken++
			g.Milli -= gpu.Milli(need)
			g.Memory -= gpu.Memory(need, deviceMemory)
			if g.Milli < 0 {
				w.tb.Fatalf("%+v gets more of %s than is free", need, g.UUID)
			}
		}
		if g.Milli > 0 {
			free.GPUs = append(free.GPUs, g)
		}
	}
	if free.CPUs < 0 || free.Memory < 0 || taken != gpu.Count(need) || taken != len(d.Devices) {
		w.tb.Fatalf("%+v does not fit at %s with %v", need, d.Host.Name(), d.Devices)
	}
	d.Host.SetFree(free)
	return true
}

// allocated places all arrivals and returns the part of the GPUs, in percent, that is allocated while the arrivals ask
// for 100 % and for 130 %.
func (o *openb) allocated(tb testing.TB, pods []pod, p policy.Policy, sample int, seed int64) (at100, at130 float64) {
	tb.Helper()
	w := o.world(tb, pods, sample)
	order := rand.New(rand.NewSource(seed))
	asked, used := 0, 0
	var sums, counts [131]float64
	for _, x := range o.arrivals(pods, seed) {
		asked += x.allMilli
		if w.place(x.need, p, order.Intn(len(w.hosts))) {
			used += x.allMilli
		}
		if at := int(math.RoundToEven(100 * float64(asked) / float64(o.milli))); at < len(sums) {
			sums[at] += math.Round(10_000*float64(used)/float64(o.milli)) / 100
			counts[at]++
		}
	}
	return sums[100] / counts[100], sums[130] / counts[130]
}

// least is what a policy must reach, by the figures of the paper.
func (o *openb) least(table, name string) float64 {
	of := func(theirs string) float64 { return o.published[[2]string{table, theirs}] }
	switch name {
	case "frag":
		return of("FGD") - 0.2
	case "pack":
		return min(of("BestFit"), of("GpuPacking")) - 0.3
	}
	return 0
}

// sampleLoss is how many percent of the GPUs a policy may lose that chooses from a sample of the hosts.
const sampleLoss = 0.5

// BenchmarkOpenb places the traces by each policy, which chooses from all hosts and then from samples.
func BenchmarkOpenb(b *testing.B) {
	dir := os.Getenv("MUSTER_TRACES")
	if dir == "" {
		b.Skip("MUSTER_TRACES is not set: it names the directory with the public traces")
	}
	dir = filepath.Join(dir, "openb")
	o := readOpenb(b, dir)
	for table := range strings.SplitSeq(*openbTables, ",") {
		pods := o.pods(b, dir, table)
		for _, name := range policy.Names() {
			least := o.least(table, name)
			for _, sample := range []int{len(o.machines), SampleSize} {
				b.Run(fmt.Sprintf("%s/%s/%d", table, name, sample), func(b *testing.B) {
					at100, at130 := 0.0, 0.0
					for b.Loop() {
						at100, at130 = 0, 0
						for seed := range *openbSeeds {
							x, y := o.allocated(b, pods, policy.Named()[name], sample, int64(42+seed))
							at100 += x / float64(*openbSeeds)
							at130 += y / float64(*openbSeeds)
						}
					}
					b.ReportMetric(at100, "%alloc@100")
					b.ReportMetric(at100-o.published[[2]string{table, "FGD"}], "%over-FGD")
					b.ReportMetric(at130, "%alloc@130")
					if at100 < least {
						b.Errorf("%.3f %% of the GPUs are allocated, want at least %.3f", at100, least)
					}
					least = at100 - sampleLoss
				})
			}
		}
	}
}

// The arrivals of seed 42 are those that were published.
func TestOpenbArrivals(t *testing.T) {
	dir := os.Getenv("MUSTER_TRACES")
	if dir == "" {
		t.Skip("MUSTER_TRACES is not set: it names the directory with the public traces")
	}
	dir = filepath.Join(dir, "openb")
	o := readOpenb(t, dir)
	for _, table := range []string{"default", "gpuspec20"} {
		got, want := o.arrivals(o.pods(t, dir, table), 42), readCSV(t, dir, "arrivals_"+table+"_seed42.csv")
		if len(got) != len(want) {
			t.Fatalf("%s: %d arrivals, want %d", table, len(got), len(want))
		}
		for i, p := range got {
			if name, _, _ := strings.Cut(want[i][0], "-tuned-"); p.name != name {
				t.Fatalf("%s: arrival %d is %s, want %s", table, i, p.name, name)
			}
		}
	}
}
