package placing

import (
	"flag"
	"strings"
	"testing"
	"time"
)

var (
	tTables   = flag.String("t.tables", "default", "")
	tPolicies = flag.String("t.policies", "frag,FGD", "")
	tSeeds    = flag.Int("t.seeds", 2, "")
)

func TestTry(t *testing.T) {
	dir := traces(t)
	ms := machinesOf(t, dir)
	pub := map[[2]string]float64{}
	for _, r := range readCSV(t, dir, "published_results.csv") {
		x := 0.0
		for _, c := range []string{r[3]} {
			var err error
			x, err = parse(c)
			if err != nil {
				t.Fatal(err)
			}
		}
		pub[[2]string{r[0], r[1]}] = x
	}
	for _, table := range strings.Split(*tTables, ",") {
		tab := tableOf(t, dir, "openb_pod_list_"+table+".csv")
		for _, p := range strings.Split(*tPolicies, ",") {
			a100, a130, frag := 0.0, 0.0, 0.0
			begin := time.Now()
			for s := range *tSeeds {
				arr, ranks, err := Inflate(ms, tab, int64(42+s), Inflation)
				if err != nil {
					t.Fatal(err)
				}
				r, err := Run(t.Context(), Config{Machines: ms, Arrivals: arr, Workload: tab, Policy: p, Seed: int64(42 + s), Ranks: ranks})
				if err != nil {
					t.Fatal(err)
				}
				n := float64(*tSeeds)
				a100 += r.Bins[100].Alloc / n
				a130 += r.Bins[130].Alloc / n
				frag += r.Bins[100].Frag / n
			}
			t.Logf("%s %s: %.2f (pub %.2f, FGD %.2f) @130 %.2f frag %.2f  %s", table, p, a100, pub[[2]string{table, p}], pub[[2]string{table, "FGD"}], a130, frag, time.Since(begin))
		}
	}
}
