package load

import (
	"math"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/job"
	"pgregory.net/rapid"
)

func synthetic(t *testing.T, text string) Synthetic {
	t.Helper()
	s, err := ParseSynthetic("load", text)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// h100s returns 64 machines with 8 GPUs each.
func h100s(t *testing.T) []Machine {
	t.Helper()
	machines, err := ParseMachines("64x8xH100-80GB,64cpu,512GiB")
	if err != nil {
		t.Fatal(err)
	}
	return machines
}

func generate(t *testing.T, text string, seed uint64) []Job {
	t.Helper()
	jobs, err := synthetic(t, text).Jobs(h100s(t), seed)
	if err != nil {
		t.Fatal(err)
	}
	return jobs
}

// A load of each kind has the requested parts, within what 20,000 draws allow.
func TestSyntheticLoadHasItsParts(t *testing.T) {
	const n = 20_000
	jobs := generate(t, `# a mix
jobs: 20000; load = 0.8
arrivals: bursty(size=20)
durations: lognormal(median=10m, sigma=1.5, max=1d)
gpus: 0:0.1,0.5:0.2,1:0.4,8:0.2,16:0.1
models: any:0.5,H100:0.5
cpus: uniform(min=1,max=4)
memory: 8GiB
files: exponential(mean=100MB)
arrays: 10%
array_sizes: 3
priorities: 50:0.9,80:0.1
preemptible: 0.3
users: ann:3,bob:1
limits: 0.5
`, 7)
	if len(jobs) != n {
		t.Fatalf("%d jobs, want %v", len(jobs), n)
	}
	share := func(what string, want, within float64, is func(j Job) bool) {
		t.Helper()
		got := 0.0
		for _, j := range jobs {
			if is(j) {
				got += 1.0 / n
			}
		}
		if math.Abs(got-want) > within {
			t.Errorf("%s: %.3f of the jobs, want %.3f", what, got, want)
		}
	}
	need := func(j Job) job.Resources { return j.Spec.Resources }
	share("no GPU", 0.1, 0.01, func(j Job) bool { return need(j).GPUs == 0 && need(j).GPUShare == 0 && need(j).GPUModel == "" })
	share("half a GPU", 0.2, 0.01, func(j Job) bool { return need(j).GPUShare == 0.5 && need(j).CPUs <= 2000 && need(j).Memory == 4<<30 })
	share("a gang", 0.1, 0.01, func(j Job) bool { return j.Spec.Nodes == 2 && need(j).GPUs == 8 && j.Class == "16 GPUs" })
	share("a model", 0.45, 0.015, func(j Job) bool { return need(j).GPUModel == "h100" })
	share("an array", 0.1, 0.01, func(j Job) bool { return j.Spec.Array == "0-2" })
	share("priority", 0.1, 0.01, func(j Job) bool { return j.Spec.Priority == 80 })
	share("preemptible", 0.3, 0.015, func(j Job) bool { return j.Spec.Preemptible })
	share("ann", 0.75, 0.05, func(j Job) bool { return j.User == "ann" }) // each burst belongs to one user
	share("limits", 0.5, 0.015, func(j Job) bool {
		return j.Spec.TimeLimit.D() >= j.Runs && j.Spec.TimeLimit.D() <= 3*j.Runs+time.Second
	})
	share("shorter than the median", 0.5, 0.015, func(j Job) bool { return j.Runs < 10*time.Minute })
	share("as long as can be", 0.00046, 0.0006, func(j Job) bool { return j.Runs == 24*time.Hour })
	share("files above their mean", 1/math.E, 0.015, func(j Job) bool { return j.Bytes > 100e6 })
	at := map[time.Duration]int{}
	for i, j := range jobs {
		at[j.Submit]++
		if i > 0 && j.Submit < jobs[i-1].Submit {
			t.Fatalf("%s is submitted before the job above it", j.Name)
		}
		if err := j.Spec.Validate(); err != nil && need(j).CPUs <= job.MaxCPUs {
			t.Fatal(err)
		}
	}
	if mean := float64(n) / float64(len(at)); mean < 17 || mean > 23 || jobs[0].Submit != 0 {
		t.Errorf("bursts of %.1f jobs, the first at %s, want at least 17, at most 23 and 0", mean, jobs[0].Submit)
	}
	if got := (Load{Machines: h100s(t), Jobs: jobs}).Offered(); math.Abs(got-0.8) > 1e-6 {
		t.Errorf("the offered load is %v, want 0.8", got)
	}
}

func TestSyntheticLoadHasItsTimes(t *testing.T) {
	poisson := generate(t, "for: 10d; rate: 120/h", 1)
	if n := float64(len(poisson)); math.Abs(n-28_800) > 4*math.Sqrt(28_800) || poisson[len(poisson)-1].Submit > 240*time.Hour {
		t.Errorf("%v jobs until %s, want about 28,800 within 240 h", n, poisson[len(poisson)-1].Submit)
	}
	gaps := make([]float64, 0, len(poisson))
	for i := 1; i < len(poisson); i++ {
		gaps = append(gaps, (poisson[i].Submit - poisson[i-1].Submit).Seconds())
	}
	slices.Sort(gaps)
	if median := gaps[len(gaps)/2]; math.Abs(median-30*math.Ln2) > 1 { // the median of exponential gaps with the mean 30 s
		t.Errorf("the median gap is %.2f s, want 30 ln 2", median)
	}
	loaded := generate(t, "for: 2d; load: 50%; durations: 1h", 1)
	l := Load{Machines: h100s(t), Jobs: loaded}
	if last := loaded[len(loaded)-1].Submit; math.Abs(l.Offered()-0.5) > 1e-6 || math.Abs(last.Hours()-48) > 0.1 {
		t.Errorf("the offered load is %v until %s, want 0.5 until 48 h", l.Offered(), last)
	}
	for _, j := range generate(t, "jobs: 50; arrivals: once", 1) {
		if j.Submit != 0 {
			t.Errorf("%s arrives at %s, want 0", j.Name, j.Submit)
		}
	}
}

// The same seed makes the same jobs, another seed makes others, and a change of one part leaves the other parts as they
// were.
func TestSeedDecidesTheSyntheticLoad(t *testing.T) {
	const text = "jobs: 500; rate: 1/s; arrays: 0.1; limits: 0.5; users: a,b,c; preemptible: 0.5"
	a, b := generate(t, text, 3), generate(t, text, 3)
	if !reflect.DeepEqual(a, b) {
		t.Error("two loads of one seed differ")
	}
	if c := generate(t, text, 4); reflect.DeepEqual(a, c) {
		t.Error("two loads of different seeds are equal")
	}
	c := generate(t, text+"; durations: pareto(min=1m,alpha=1.2); cpus: uniform(min=1,max=2)", 3)
	for i := range a {
		x, y := a[i], c[i]
		if x.Submit != y.Submit || x.User != y.User || x.Spec.Resources.GPUs != y.Spec.Resources.GPUs || x.Spec.Array != y.Spec.Array {
			t.Fatalf("%+v became %+v, want only the changed part to differ", x, y)
		}
	}
}

func TestDistributionsHaveTheirQuantiles(t *testing.T) {
	for text, want := range map[string][3]float64{ // quantiles of 25, 50 and 75 %
		"constant(value=10m)":                  {600, 600, 600},
		"10m":                                  {600, 600, 600},
		"uniform(min=0s,max=100s)":             {25, 50, 75},
		"exponential(mean=100s)":               {28.77, 69.31, 138.63},
		"lognormal(median=10m,sigma=1.5)":      {218.1, 600, 1650.5},
		"pareto(min=60s,alpha=1.5)":            {72.68, 95.24, 151.19},
		"weibull(scale=30m,shape=0.7)":         {303.6, 1066.3, 2868.4},
		" weibull ( scale=30m , shape=0.7 )":   {303.6, 1066.3, 2868.4},
		"lognormal(median=10m,sigma=1,max=9m)": {305.7, 540, 540},
	} {
		d, err := parseDistribution(text, inSeconds, maxRuns.Seconds())
		if err != nil {
			t.Error(err)
			continue
		}
		r := rand.New(rand.NewPCG(1, 2))
		draws := make([]float64, 400_001)
		for i := range draws {
			draws[i] = d.draw(r)
		}
		slices.Sort(draws)
		for i, q := range want {
			if got := draws[(i+1)*100_000]; math.Abs(got-q) > 0.02*q {
				t.Errorf("%s: quantile %d is %.2f, want %.2f", text, i+1, got, q)
			}
		}
	}
}

func TestInvalidSyntheticLoadsAreRefused(t *testing.T) {
	cluster := h100s(t)
	for text, want := range map[string]string{
		"":                                 "load: give either jobs or for",
		"jobs: 5":                          "load: give either load or rate",
		"jobs: 5; load: 1; rate: 1/s":      "load: give either load or rate",
		"jobs: 5; for: 1h; rate: 1/s":      "load: give either jobs or for",
		"jobs: 5; arrivals: once; load: 1": "with arrivals: once all jobs arrive together",
		"jobs 5":                           `load:1: "jobs 5": want NAME: VALUE`,
		"\njobs: many":                     "load:2: jobs: want a number",
		"jobs: 0":                          "load:1: jobs: 0: want a whole number from 1 to 5000000",
		"jobs: 1.5":                        "load:1: jobs: 1.5: want a whole number",
		"jobs: 5; jobs: 6":                 "load:1: jobs is there twice",
		"job: 5":                           `load:1: unknown setting "job"; there are jobs, for, load`,
		"for: 24":                          `load:1: for: duration "24": a number needs a unit`,
		"for: 0s":                          "load:1: for: want more than 0s",
		"load: 0":                          "load:1: load: load 0: want more than 0",
		"load: NaN":                        `load:1: load: load "NaN": want a number`,
		"rate: 5":                          `load:1: rate: "5": want jobs in a time, such as 120/h`,
		"rate: -5/h":                       `load:1: rate: "-5/h"`,
		"arrivals: daily":                  `load:1: arrivals: "daily": want poisson`,
		"arrivals: bursty(size=1)":         `want bursty(size=20), with a size above 1`,
		"arrivals: bursty":                 `want bursty(size=20), with a size above 1`,
		"durations: gauss(mean=1m)":        `load:1: durations: "gauss(mean=1m)": want constant(value=X), uniform`,
		"durations: exponential(mean=-1m)": `mean: duration "-1m"`,
		"durations: exponential(mean=5)":   `a number needs a unit`,
		"durations: exponential()":         `is not one of its parameters`,
		"durations: exponential(mean=1m":   `want constant(value=X)`,
		"durations: lognormal(median=1m)":  `sigma is missing`,
		"durations: lognormal(median=1m,sigma=NaN)": `sigma: "NaN": want 0.01 to 100`,
		"durations: pareto(min=1m,alpha=0)":         `alpha: "0": want 0.01 to 100`,
		"durations: uniform(min=2m,max=1m)":         "max is below min",
		"durations: 9999d":                          "too large",
		"gpus: 1:0":                                 `load:1: gpus: "1:0": want a weight above 0`,
		"gpus: 1.5":                                 `load:1: gpus: "1.5": 1.5: want a whole number of GPUs`,
		"gpus: 1,1":                                 "1 is there twice",
		"gpus: one":                                 `load:1: gpus: "one": want a number`,
		"users: ann:x":                              "want a weight above 0",
		"users: ann,,bob":                           "a choice is empty",
		"models: a||b":                              "the name of a model is empty",
		"preemptible: 101%":                         "want a part from 0 to 1",
		"arrays: NaN":                               "want a part from 0 to 1",
		"priorities: 101":                           "want a whole number from 0 to 100",
		"jobs: 5; rate: 1/s; gpus: 1024":            "load: gpus 1024: the cluster could never run job-0000000: it needs 128 machines, each with 8 GPUs",
		"jobs: 5; rate: 1/s; gpus: 9":               "load: gpus 9: the number does not divide by the 2 nodes that it needs",
		"jobs: 5; rate: 1/s; models: T4":            "load: gpus 1: the cluster could never run job-0000000: it needs 1 machines, each with 1 GPUs of t4",
		"jobs: 5; rate: 1/s; cpus: 65":              "65 CPUs",
		"jobs: 5; load: 1; gpus: 0":                 "load: load: the jobs ask for no GPU time",
		"for: 1h; load: 1; gpus: 0":                 "load: load: the jobs ask for no GPU time",
		"jobs: 1; load: 1":                          "load: load: all jobs are submitted at the same time",
	} {
		s, err := ParseSynthetic("load", text)
		if err == nil {
			_, err = s.Jobs(cluster, 1)
		}
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: error %v, want %q", text, err, want)
		}
	}
}

func TestHelpNamesEachSetting(t *testing.T) {
	help := SyntheticHelp()
	if len(help) != len(settings) || !strings.Contains(help[0], "number of jobs") {
		t.Errorf(`help is %q, want %v of them and [0] "number of jobs" in it`, help, len(settings))
	}
}

// The manual names each setting and column, its defaults are right, and its examples can be read.
func TestManualNamesEachSettingAndColumn(t *testing.T) {
	text, err := os.ReadFile("../../../docs/loads.md")
	if err != nil {
		t.Fatal(err)
	}
	manual := strings.ReplaceAll(string(text), `\|`, "|")
	for _, s := range settings {
		if !strings.Contains(manual, "`"+s.name+"`") || s.otherwise != "" && !strings.Contains(manual, "`"+s.otherwise+"`") {
			t.Errorf("the manual lacks the setting %s or its default %s", s.name, s.otherwise)
		}
	}
	for _, c := range slices.Concat(machineColumns, requestColumns, jobColumns, listColumns) {
		if !strings.Contains(manual, c.name) {
			t.Errorf("the manual lacks the column %s", c.name)
		}
	}
	if !strings.Contains(manual, SacctUse) {
		t.Error("the manual has another command of sacct")
	}
	blocks := strings.Split(manual, "```\n")
	example := slices.IndexFunc(blocks, func(b string) bool { return strings.HasPrefix(b, "jobs: 10000") })
	if jobs := generate(t, blocks[example], 1); len(jobs) != 10_000 {
		t.Errorf("the example makes %d jobs, want 10_000", len(jobs))
	}
	example = slices.IndexFunc(blocks, func(b string) bool { return strings.HasPrefix(b, "512x8x") })
	for line := range strings.Lines(blocks[example]) {
		machines, _, _ := strings.Cut(line, "   ")
		if _, err := ParseMachines(machines); err != nil {
			t.Error(err)
		}
	}
}

func FuzzSynthetic(f *testing.F) {
	f.Add("jobs: 5; load: 0.5")
	f.Add("for: 1h; rate: 1/10m; arrivals: bursty(size=2.5)\ngpus: 0:0.1,0.5:0.2,1:0.4,8:0.2,16:0.1 # none")
	f.Add("jobs=9;arrivals=once;durations=weibull(scale=1s,shape=0.01,max=1h);memory=1MiB;arrays=50%")
	machines, err := ParseMachines("4x8xT4,1000cpu,1TiB")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := ParseSynthetic("load", text)
		if err != nil || s.jobs > 1000 || s.within > 24*time.Hour || s.rate > 1 || s.offered > 0 && s.within > 0 {
			return
		}
		jobs, err := s.Jobs(machines, 1)
		if err != nil {
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("an error of several lines: %q", err)
			}
			return
		}
		for i, j := range jobs {
			if j.Submit < 0 || i > 0 && j.Submit < jobs[i-1].Submit || j.Runs < 0 || j.Bytes < 0 || j.Spec.TimeLimit > 0 && j.Spec.TimeLimit.D() < j.Runs {
				t.Errorf("made %+v, want a valid job in order", j)
			}
			if err := j.Spec.Validate(); err != nil && j.Spec.Resources.CPUs <= job.MaxCPUs {
				t.Errorf("made %+v, which is not valid: %v", j, err)
			}
		}
	})
}

// Written jobs are read back as the same jobs.
func TestWrittenJobsAreReadBack(t *testing.T) {
	machines := h100s(t)
	rapid.Check(t, func(t *rapid.T) {
		s, err := ParseSynthetic("load", "jobs: 30; rate: 1/s; gpus: 0,0.25,1,8,24; memory: uniform(min=1MiB,max=8GiB); arrays: 0.2; limits: 0.5; "+
			"preemptible: 0.5; models: any,H100-80GB; users: a,b; files: uniform(min=0B,max=1GB); cpus: uniform(min=0,max=8)")
		if err != nil {
			t.Fatal(err)
		}
		want, err := s.Jobs(machines, rapid.Uint64().Draw(t, "seed"))
		if err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		if err := WriteJobs(&out, want); err != nil {
			t.Fatal(err)
		}
		got, notes, err := ReadJobs("j.csv", strings.NewReader(out.String()), Options{Cluster: machines})
		if err != nil || len(notes) > 0 {
			t.Fatalf("got %v, %v, want no error and none", err, notes)
		}
		if !reflect.DeepEqual(got, want) {
			for i := range want {
				if !reflect.DeepEqual(got[i], want[i]) {
					t.Fatalf("read back\n%+v, want\n%+v", got[i], want[i])
				}
			}
		}
	})
}

func BenchmarkSynthetic(b *testing.B) {
	machines, err := ParseMachines("10000x8xH100-80GB,64cpu,512GiB")
	if err != nil {
		b.Fatal(err)
	}
	s, err := ParseSynthetic("load", "jobs: 100000; load: 0.8; users: a,b,c")
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := s.Jobs(machines, 1); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkReadJobs(b *testing.B) {
	machines, err := ParseMachines("10000x8xH100-80GB,64cpu,512GiB")
	if err != nil {
		b.Fatal(err)
	}
	s, err := ParseSynthetic("load", "jobs: 100000; load: 0.8; users: a,b,c")
	if err != nil {
		b.Fatal(err)
	}
	jobs, err := s.Jobs(machines, 1)
	if err != nil {
		b.Fatal(err)
	}
	var out strings.Builder
	if err := WriteJobs(&out, jobs); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, _, err := ReadJobs("j.csv", strings.NewReader(out.String()), Options{Cluster: machines}); err != nil {
			b.Fatal(err)
		}
	}
}
