package placing

import (
	"flag"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/sim/load"
)

var (
	tTables   = flag.String("t.tables", "default", "")
	tPolicies = flag.String("t.policies", "frag,FGD", "")
	tSeeds    = flag.Int("t.seeds", 2, "")
	tFirst    = flag.Int("t.first", 42, "")
	tD        = flag.String("t.d", "0", "")
	tWorlds   = flag.String("t.worlds", "as", "")
)

func worldOf(t *testing.T, dir, name string, ms []load.Machine, tab []load.Request, seed uint64) ([]load.Machine, []load.Request) {
	for _, w := range strings.Split(name, "+") {
		switch w {
		case "as":
		case "half":
			ms = Some(ms, 0.5, seed)
		case "tenth":
			ms = Some(ms, 0.1, seed)
		case "mix":
			ms = OtherMix(ms, seed)
		case "all8":
			ms = AllOfSize(ms, 8)
		case "all4":
			ms = AllOfSize(ms, 4)
		case "all2":
			ms = AllOfSize(ms, 2)
		case "all1":
			ms = AllOfSize(ms, 1)
		case "cpu+", "cpu150":
			ms = TimesCPUs(ms, 1.5)
		case "cpu300":
			ms = TimesCPUs(ms, 3)
		case "cpu75":
			ms = TimesCPUs(ms, 0.75)
		case "boot":
			tab = Resample(tab, seed)
		case "pin":
			tab = Pin(tab, tableOf(t, dir, "openb_pod_list_gpuspec20.csv"), 1.0/3, seed)
		default:
			t.Fatal(w)
		}
	}
	return ms, tab
}

func TestTry(t *testing.T) {
	dir := traces(t)
	ms := machinesOf(t, dir)
	for _, world := range strings.Split(*tWorlds, ",") {
		for _, table := range strings.Split(*tTables, ",") {
			tab := tableOf(t, dir, "openb_pod_list_"+table+".csv")
			line := fmt.Sprintf("%-10s %-12s", world, table)
			for _, d := range strings.Split(*tD, ",") {
				for _, p := range strings.Split(*tPolicies, ",") {
					a100, a130 := 0.0, 0.0
					begin := time.Now()
					for s := range *tSeeds {
						seed := int64(*tFirst + s)
						ms, tab := worldOf(t, dir, world, ms, tab, uint64(seed))
						arr, ranks, err := Inflate(ms, tab, seed, Inflation)
						if err != nil {
							t.Fatal(err)
						}
						n := 0
						fmt.Sscan(d, &n)
						r, err := Run(t.Context(), Config{Machines: ms, Arrivals: arr, Workload: tab, Policy: p, Seed: seed, Ranks: ranks, Candidates: n})
						if err != nil {
							t.Fatal(err)
						}
						n = *tSeeds
						a100 += r.Bins[100].Alloc / float64(n)
						a130 += r.Bins[130].Alloc / float64(n)
					}
					line += fmt.Sprintf(" %s/%s %.2f %.2f (%.1fs)", p, d, a100, a130, time.Since(begin).Seconds())
				}
			}
			fmt.Println(line)
		}
	}
}
