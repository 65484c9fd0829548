package sim

// The cost of a simulation.

import (
	"context"
	"flag"
	"fmt"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/sim/load"
	"github.com/musterhq/muster/job"
)

var (
	benchHosts  = flag.Int("sim.hosts", 1000, "machines of BenchmarkWorld")
	benchTasks  = flag.Int("sim.tasks", 20_000, "tasks of BenchmarkWorld")
	benchOwners = flag.Int("sim.schedulers", 16, "schedulers of BenchmarkWorld")
	benchArray  = flag.Int("sim.array", 1, "tasks of each job of BenchmarkWorld")
	benchLoad   = flag.Float64("sim.load", 0.8, "part of the GPUs that the jobs of BenchmarkWorld keep busy")
)

// benchJobs are jobs with one GPU for each task, of 1 to 19 minutes, that keep a part of the GPUs busy.
func benchJobs(tasks, array, gpus int, part float64) []load.Job {
	every := time.Duration(float64(10*time.Minute) * float64(array) / (part * float64(gpus)))
	var all []load.Job
	for i := range tasks / array {
		spec := job.DefaultSpec()
		spec.Resources = job.Resources{CPUs: 4000, GPUs: 1, Memory: 16 << 30}
		if array > 1 {
			spec.Array = fmt.Sprintf("0-%d", array-1)
		}
		all = append(all, load.Job{
			Name: fmt.Sprintf("j%d", i), User: fmt.Sprintf("user%d", i%50), Submit: time.Duration(i) * every,
			Runs: time.Minute + time.Duration(i*7919%1080)*time.Second, Spec: spec,
		})
	}
	return all
}

// BenchmarkWorld simulates a cluster of hosts with 8 GPUs each, and tasks for one GPU.
func BenchmarkWorld(b *testing.B) {
	for b.Loop() {
		cfg := Config{
			Seed: 1, Schedulers: *benchOwners,
			Load: load.Load{Machines: machinesOf(*benchHosts), Jobs: benchJobs(*benchTasks, *benchArray, 8**benchHosts, *benchLoad)},
		}
		began, before := time.Now(), cpuTime()
		cfg.Progress = func(p Progress) {
			if testing.Verbose() {
				fmt.Printf("%v real, %+v\n", time.Since(began).Round(time.Millisecond), p)
			}
		}
		w, err := New(cfg)
		if err != nil {
			b.Fatal(err)
		}
		r, err := w.Run(context.Background())
		if err != nil {
			b.Fatal(err)
		}
		took := cpuTime() - before
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		b.ReportMetric(float64(r.Events)/took.Seconds(), "events/s")
		b.ReportMetric(took.Seconds(), "cpu-s")
		b.ReportMetric(float64(took.Microseconds())/float64(*benchTasks), "cpu-µs/task")
		b.ReportMetric(float64(m.Sys)/float64(*benchHosts), "B/host")
		b.ReportMetric(float64(m.Sys)/(1<<20), "MiB")
		if testing.Verbose() {
			fmt.Printf("%+v\n", r)
		}
	}
}

// cpuTime returns the CPU time of the process: other programs do not affect it.
func cpuTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
