package placing

// The public traces, which are read from the directory $MUSTER_TRACES. By default one table is placed with four seeds: of two,
// a policy whose figures vary by 0.3 points from seed to seed can lose half a point by chance.
// All figures and gates of docs/policies.md:
//
//	MUSTER_TRACES=DIR go test ./internal/sim/placing -run Study -v -timeout 6h -placing.seeds 10 -placing.tables all
//
// With -placing.policies and -placing.candidates fewer policies and other samples are placed, with
// -placing.world the tables are placed on machines, or in versions, that nobody has published.

import (
	"encoding/csv"
	"flag"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/musterhq/muster/internal/sim/load"
	"github.com/musterhq/muster/scheduler/policy"
)

var (
	someTables     = flag.String("placing.tables", "default", "place these `TABLES`, separated by commas; all: the handed ones, and two of which a third is pinned")
	someSeeds      = flag.Int("placing.seeds", 4, "place each table `N` times")
	firstSeed      = flag.Int64("placing.first", 42, "with the seeds from `N` on")
	somePolicies   = flag.String("placing.policies", "", "by these `POLICIES`; empty: all of muster, and three published ones")
	someCandidates = flag.String("placing.candidates", "0,64", "which choose from these `NUMBERS` of machines; 0: all")
	someWorld      = flag.String("placing.world", "", "on such machines, or with such tables, as the function world lists them; several are joined by +")
)

// allTables are those that the traces have, and those that are made from them.
const allTables = "default,cpu050,cpu100,cpu200,gpushare40,gpushare100,gpuspec10,gpuspec20,multigpu20,multigpu50,default-pinned,gpuspec20-pinned"

// trace is the directory of the traces.
type trace struct {
	tb       testing.TB
	dir      string
	machines []load.Machine
}

func openTraces(tb testing.TB) *trace {
	tb.Helper()
	dir := os.Getenv("MUSTER_TRACES")
	if dir == "" {
		tb.Skip("MUSTER_TRACES is not set: it names the directory with the public traces")
	}
	t := &trace{tb: tb, dir: filepath.Join(dir, "openb")}
	var err error
	if t.machines, err = load.ReadMachines("machines", t.open("openb_node_list_gpu_node.csv")); err != nil {
		tb.Fatal(err)
	}
	return t
}

func (t *trace) open(name string) *os.File {
	t.tb.Helper()
	f, err := os.Open(filepath.Join(t.dir, name))
	if err != nil {
		t.tb.Fatal(err)
	}
	t.tb.Cleanup(func() { f.Close() })
	return f
}

func (t *trace) requests(file string) []load.Request {
	t.tb.Helper()
	all, err := load.ReadRequests(file, t.open(file))
	if err != nil {
		t.tb.Fatal(err)
	}
	return all
}

// table reads a table, or makes one.
func (t *trace) table(name string) Table {
	t.tb.Helper()
	plain, pinned := strings.CutSuffix(name, "-pinned")
	x := Table{Name: name, Machines: t.machines, Requests: t.requests("openb_pod_list_" + plain + ".csv"), Pinned: pinned}
	if pinned {
		x.Requests = Pin(x.Requests, t.requests("openb_pod_list_gpuspec20.csv"), 1.0/3, 1)
	}
	return x
}

// world changes the machines, or the table.
func (t *trace) world(x Table, seed uint64) Table {
	t.tb.Helper()
	for w := range strings.SplitSeq(*someWorld, "+") {
		switch w {
		case "":
			continue
		case "half":
			x.Machines = Some(x.Machines, 0.5, seed)
		case "tenth":
			x.Machines = Some(x.Machines, 0.1, seed)
		case "mix":
			x.Machines = OtherMix(x.Machines, seed)
		case "8x", "4x", "2x", "1x":
			n, _ := strconv.Atoi(w[:1])
			x.Machines = AllOfSize(x.Machines, n)
		case "cpus150":
			x.Machines = TimesCPUs(x.Machines, 1.5)
		case "cpus75":
			x.Machines = TimesCPUs(x.Machines, 0.75)
		case "resampled":
			x.Requests = Resample(x.Requests, seed)
		case "pinned":
			x.Requests = Pin(x.Requests, t.requests("openb_pod_list_gpuspec20.csv"), 1.0/3, seed)
		default:
			t.tb.Fatalf("-placing.world: unknown world %q", w)
		}
		x.Name += "+" + w
	}
	return x
}

// published reads the published figures, by table and policy.
func (t *trace) published() map[[2]string]float64 {
	t.tb.Helper()
	rows, err := csv.NewReader(t.open("published_results.csv")).ReadAll()
	if err != nil {
		t.tb.Fatal(err)
	}
	out := map[[2]string]float64{}
	for _, r := range rows[1:] {
		if out[[2]string{r[0], r[1]}], err = strconv.ParseFloat(r[3], 64); err != nil {
			t.tb.Fatal(err)
		}
	}
	return out
}

// study places the tables of the flags.
func (t *trace) study(policies []string, candidates []int) []Figure {
	t.tb.Helper()
	if *someTables == "all" {
		*someTables = allTables
	}
	s := Study{Policies: policies, Candidates: candidates, Workers: runtime.GOMAXPROCS(0)}
	for name := range strings.SplitSeq(*someTables, ",") {
		s.Tables = append(s.Tables, t.world(t.table(name), uint64(*firstSeed)))
	}
	for i := range *someSeeds {
		s.Seeds = append(s.Seeds, *firstSeed+int64(i))
	}
	figures, err := s.Run(t.tb.Context())
	if err != nil {
		t.tb.Fatal(err)
	}
	return figures
}

func (t *trace) report(figures []Figure, gates []Gate) {
	t.tb.Helper()
	var out strings.Builder
	if err := WriteTable(&out, figures); err != nil {
		t.tb.Fatal(err)
	}
	out.WriteString("\n")
	if err := WriteGates(&out, gates); err != nil {
		t.tb.Fatal(err)
	}
	t.tb.Log("\n" + out.String())
	for _, g := range gates {
		if !g.Met {
			t.tb.Errorf("gate %q is missed: %+.3f points on %q", g.Name, g.Got, g.Where)
		}
	}
}

// The published policies allocate what was published.
func TestPublishedPoliciesAllocateWhatWasPublished(tt *testing.T) {
	t := openTraces(tt)
	figures := t.study(Published(), []int{0})
	if g, known := Reproduced(figures, t.published()); known {
		t.report(figures, []Gate{g})
	}
}

// The policies of muster meet the gates.
func TestStudy(tt *testing.T) {
	t := openTraces(tt)
	policies := append(policy.Names(), FGD, BestFit, GpuPacking)
	if *somePolicies != "" && *somePolicies != "all" {
		policies = strings.Split(*somePolicies, ",")
	}
	var candidates []int
	for text := range strings.SplitSeq(*someCandidates, ",") {
		n, err := strconv.Atoi(text)
		if err != nil {
			tt.Fatal(err)
		}
		candidates = append(candidates, n)
	}
	figures := t.study(policies, candidates)
	t.report(figures, Gates(figures))
}

// The arrivals of seed 42 are the published ones.
func TestArrivalsOfSeed42AreThePublishedOnes(tt *testing.T) {
	t := openTraces(tt)
	for _, name := range []string{"default", "gpuspec20"} {
		got, _, err := Inflate(t.machines, t.table(name).Requests, 42, Inflation)
		if err != nil {
			tt.Fatal(err)
		}
		want := t.requests("arrivals_" + name + "_seed42.csv")
		if len(got) != len(want) {
			tt.Fatalf("%s: %d arrivals, want %d", name, len(got), len(want))
		}
		for i := range want {
			if got[i].Name != want[i].Name || got[i].Need != want[i].Need {
				tt.Fatalf("%s: arrival %d is %+v, want %+v", name, i, got[i], want[i])
			}
		}
	}
}
