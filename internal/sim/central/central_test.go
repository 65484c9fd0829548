package central

import (
	"encoding/csv"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/internal/sim/load"
	"github.com/musterhq/muster/internal/sim/record"
	"github.com/musterhq/muster/job"
)

func rows(t *testing.T, path string) [][]string {
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	all, err := csv.NewReader(f).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	return all[1:]
}

func num(s string) float64 { x, _ := strconv.ParseFloat(s, 64); return x }

func read(t *testing.T, name string) *load.Load {
	dir := os.Getenv("MUSTER_TRACES")
	if dir == "" {
		t.Skip("MUSTER_TRACES is not set: it names the directory with the public traces")
	}
	dir = filepath.Join(dir, "openb")
	l := &load.Load{}
	width := 0
	for _, r := range rows(t, filepath.Join(dir, "queue_"+name+"_nodes.csv")) {
		l.Machines = append(l.Machines, load.Machine{Name: r[0], CPUs: int(num(r[1])), Memory: job.Size(num(r[2])) << 20, GPUs: int(num(r[3])), Model: r[4], Labels: map[string]string{"rack": r[5]}})
		width = max(width, int(num(r[3])))
	}
	for _, r := range rows(t, filepath.Join(dir, "queue_"+name+"_jobs.csv")) {
		j := load.Job{Name: r[0], Submit: time.Duration(num(r[1]) * 1e9), Runs: time.Duration(num(r[2]) * 1e9), Class: r[8]}
		n, milli := int(num(r[3])), int(num(r[4]))
		res := job.Resources{CPUs: int(num(r[5])), Memory: job.Size(num(r[6])) << 20}
		switch {
		case n > width:
			j.Spec.Nodes = (n + width - 1) / width
			res.CPUs /= j.Spec.Nodes
			res.Memory /= job.Size(j.Spec.Nodes)
			res.GPUs = width
		case n == 1 && milli < 1000:
			res.GPUShare = float64(milli) / 1000
		default:
			res.GPUs = n
		}
		if n > 0 {
			res.GPUModel = r[7]
		}
		j.Spec.Resources = res
		j.Spec.Priority = int(num(r[9]))
		l.Jobs = append(l.Jobs, j)
	}
	return l
}

// mean returns the mean completion time in seconds.
func mean(l *load.Load, log record.Log) (completion float64) {
	n := 0
	for _, r := range log {
		if r.Kind == record.Finish {
			n++
			completion += (r.At - l.Jobs[r.Job].Submit).Seconds()
		}
	}
	return math.Round(completion / float64(n))
}

// published are the mean completion times, in seconds, of the simple schedulers that come with the traces.
var published = map[string]map[Order]float64{
	"openb":    {FIFO: 100229, Greedy: 4988, EASY: 7138, Shortest: 4016, Preemptive: 4669, LeastAttained: 3891, Remaining: 3882},
	"philly_a": {FIFO: 991215, Greedy: 480913, EASY: 421204, Shortest: 241108, Preemptive: 415398, LeastAttained: 422048, Remaining: 172483},
	"philly_b": {FIFO: 1389755, Greedy: 1026890, EASY: 1116086, Shortest: 316714, Preemptive: 848038, LeastAttained: 322366, Remaining: 210861},
}

// The yardsticks are as good as the schedulers whose results come with the traces. They are equal if all machines are
// alike and nothing is undetermined.
func TestYardsticksReachThePublishedResults(t *testing.T) {
	for name, orders := range published {
		l := read(t, name)
		for _, o := range Orders {
			var log record.Log
			if err := Run(t.Context(), l, Options{Order: o, Restart: time.Minute}, &log); err != nil {
				t.Fatal(err)
			}
			checkLegal(t, l, log)
			got := mean(l, log)
			want, known := orders[o]
			same := name != "openb" && (o == FIFO || o == Greedy || o == Shortest)
			switch {
			case !known:
			case same && got != want:
				t.Errorf("%s, %s: mean completion time %v s, want %v", name, o, got, want)
			case got > 1.02*want || got < 0.8*want:
				t.Errorf("%s, %s: mean completion time %v s, want about %v", name, o, got, want)
			}
		}
	}
}

// checkLegal checks the rules that each scheduler must keep.
func checkLegal(t *testing.T, l *load.Load, log record.Log) {
	t.Helper()
	type run struct {
		since, left time.Duration
		started     bool
		alloc       []record.Alloc
	}
	tasks := map[[2]int]*run{}
	cpus := make([]int, len(l.Machines))
	milli := make([][]int, len(l.Machines))
	for i, m := range l.Machines {
		cpus[i], milli[i] = m.CPUs, make([]int, m.GPUs)
	}
	for n, r := range log {
		j := &l.Jobs[r.Job]
		x := tasks[[2]int{r.Job, r.Task}]
		if x == nil {
			x = &run{left: j.Runs}
			tasks[[2]int{r.Job, r.Task}] = x
		}
		if n > 0 && r.At < log[n-1].At || r.At < j.Submit {
			t.Fatalf("record %d comes before its time", n)
		}
		sign := -1
		if r.Kind == record.Start {
			if x.alloc != nil || x.left <= 0 || len(r.Alloc) != max(1, j.Spec.Nodes) {
				t.Fatalf("%s starts again, or not as a gang", j.Name)
			}
			if x.started {
				x.left += time.Minute
			}
			sign, x.since, x.started, x.alloc = 1, r.At, true, r.Alloc
		} else {
			if x.alloc == nil {
				t.Fatalf("%s ends without a start", j.Name)
			}
			x.left -= r.At - x.since
			if (r.Kind == record.Finish) != (x.left == 0) {
				t.Fatalf("%s: %s with %v left, want a finish exactly if nothing is left", j.Name, r.Kind, x.left)
			}
		}
		for _, a := range x.alloc {
			if len(a.Devices) != gpu.Count(j.Spec.Resources) {
				t.Fatalf("%s gets %d devices, want %v", j.Name, len(a.Devices), gpu.Count(j.Spec.Resources))
			}
			cpus[a.Machine] -= sign * j.Spec.Resources.CPUs
			for _, d := range a.Devices {
				milli[a.Machine][d] += sign * a.Milli
				if milli[a.Machine][d] > gpu.Whole {
					t.Fatalf("%s gets a device without enough capacity", j.Name)
				}
			}
			if cpus[a.Machine] < 0 {
				t.Fatalf("%s gets CPUs that are not free", j.Name)
			}
		}
		if sign < 0 {
			x.alloc = nil
		}
	}
	all := 0
	for i := range l.Jobs {
		layout, err := l.Jobs[i].Spec.Layout()
		if err != nil {
			t.Fatal(err)
		}
		all += layout.Tasks() / layout.Size()
	}
	if len(tasks) != all {
		t.Fatalf("%d tasks and gangs have started, want %d", len(tasks), all)
	}
	for k, x := range tasks {
		if x.left != 0 {
			t.Fatalf("%s has not ended", l.Jobs[k[0]].Name)
		}
	}
}

// random is a small cluster with a lot of work.
func random(r *rand.Rand) *load.Load {
	l := &load.Load{}
	for i := range 6 {
		l.Machines = append(l.Machines, load.Machine{Name: fmt.Sprintf("n%d", i), CPUs: 32000, GPUs: 2 + 2*(i%2)*3, Model: []string{"A100", "T4"}[i%2]})
	}
	at := time.Duration(0)
	for i := range 300 {
		at += time.Duration(r.IntN(100)) * time.Second
		j := load.Job{Name: fmt.Sprintf("job-%d", i), Submit: at, Runs: time.Duration(1+r.IntN(2000)) * time.Second}
		j.Spec.Resources = job.Resources{CPUs: 1000 * (1 + r.IntN(8)), GPUs: []int{0, 1, 1, 2}[r.IntN(4)]}
		j.Spec.Priority, j.Spec.Preemptible = r.IntN(3), r.IntN(2) == 0
		switch r.IntN(8) {
		case 0:
			j.Spec.Nodes = 2
		case 1:
			j.Spec.Array = "0-9"
		case 2:
			j.Spec.Resources.GPUs, j.Spec.Resources.GPUShare = 0, 0.3
		case 3:
			j.Spec.Resources.GPUModel = "A100|H100"
		}
		l.Jobs = append(l.Jobs, j)
	}
	return l
}

// Each order with each placement is legal, ends all jobs, and does the same in a second run.
func TestRandomLoadsRunLegally(t *testing.T) {
	for seed := range uint64(3) {
		l := random(rand.New(rand.NewPCG(seed, 0)))
		for _, o := range Orders {
			for _, p := range []Place{BestFit, Random, "frag", "topology"} {
				var log, again record.Log
				options := Options{Order: o, Place: p, Restart: time.Minute, Seed: seed}
				if err := errors.Join(Run(t.Context(), l, options, &log), Run(t.Context(), l, options, &again)); err != nil {
					t.Fatal(err)
				}
				checkLegal(t, l, log)
				if !reflect.DeepEqual(log, again) {
					t.Errorf("%s, %s: a second run differs", o, p)
				}
				if o == FIFO {
					checkFIFO(t, l, log)
				}
			}
		}
	}
}

// checkFIFO checks that tasks start in the order of their submission.
func checkFIFO(t *testing.T, l *load.Load, log record.Log) {
	t.Helper()
	last := 0
	for _, r := range log {
		if r.Kind == record.Start {
			if r.Job < last {
				t.Fatalf("%s starts after %s, which was submitted later", l.Jobs[r.Job].Name, l.Jobs[last].Name)
			}
			last = r.Job
		}
	}
}

func TestInvalidRunsAreRefused(t *testing.T) {
	l := random(rand.New(rand.NewPCG(1, 0)))
	l.Jobs[7].Spec.Nodes = 7
	for want, o := range map[string]Options{
		"job job-7: 7 machines": {Order: EASY}, `no order is called "best"`: {Order: "best"},
	} {
		if err := Run(t.Context(), l, o, &record.Log{}); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// BenchmarkYardsticks runs 10,000 jobs on 100 machines under each order.
func BenchmarkYardsticks(b *testing.B) {
	l := &load.Load{}
	for i := range 100 {
		l.Machines = append(l.Machines, load.Machine{Name: fmt.Sprintf("n%d", i), CPUs: 64000, GPUs: 8, Model: "A100"})
	}
	r := rand.New(rand.NewPCG(1, 0))
	for i := range 10_000 {
		j := load.Job{Name: fmt.Sprintf("job-%d", i), Submit: time.Duration(i) * 5 * time.Second, Runs: time.Duration(1+r.IntN(4000)) * time.Second}
		j.Spec.Resources = job.Resources{CPUs: 4000, GPUs: []int{1, 1, 1, 1, 2, 4, 8}[r.IntN(7)]}
		j.Spec.Priority = r.IntN(3)
		l.Jobs = append(l.Jobs, j)
	}
	for _, o := range Orders {
		b.Run(string(o), func(b *testing.B) {
			for b.Loop() {
				var log record.Log
				if err := Run(b.Context(), l, Options{Order: o, Restart: time.Minute}, &log); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
