package sim

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/sim/load"
	"github.com/musterhq/muster/sim/record"
)

// machinesOf are so many machines with 8 GPUs each.
func machinesOf(n int) []load.Machine {
	all := make([]load.Machine, n)
	for i := range all {
		all[i] = load.Machine{Name: fmt.Sprintf("n%05d", i), CPUs: 64_000, Memory: 512 << 30, GPUs: 8, Model: "H100", DeviceMemory: 80 << 30}
	}
	return all
}

func someJobs(n int, every time.Duration) []load.Job {
	all := make([]load.Job, n)
	for i := range all {
		spec := job.DefaultSpec()
		spec.Resources = job.Resources{CPUs: 1000, GPUs: []int{1, 1, 1, 2, 4, 8}[i%6]}
		all[i] = load.Job{
			Name: fmt.Sprintf("job-%05d", i), User: fmt.Sprintf("user%d", i%5), Submit: time.Duration(i) * every,
			Runs: time.Duration(1+i%7) * time.Minute, Spec: spec,
		}
	}
	return all
}

func run(t *testing.T, cfg Config) (Result, record.Log) {
	t.Helper()
	var log record.Log
	cfg.Sink = &log
	w, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	r, err := w.Run(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return r, log
}

func TestSmoke(t *testing.T) {
	r, log := run(t, Config{Seed: 1, Load: load.Load{Machines: machinesOf(10), Jobs: someJobs(200, 5*time.Second)}, Schedulers: 3})
	t.Logf("%+v, %d records", r, len(log))
}
