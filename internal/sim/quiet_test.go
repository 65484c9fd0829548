package sim

import (
	"testing"
	"time"

	"github.com/musterhq/muster/internal/sim/load"
	"github.com/musterhq/muster/internal/sim/record"
	"github.com/musterhq/muster/job"
)

// Quiet time is skipped, and the result is as if it were not: jobs start at the same times, and so does one that has
// lost its host, which the owner notices while nothing else happens.
func TestSkippedQuietTimeDoesNotChangeTheResult(t *testing.T) {
	day := 24 * time.Hour
	spec := func(gpus int) job.Spec {
		s := job.DefaultSpec()
		s.Resources = job.Resources{CPUs: 4000, GPUs: gpus, Memory: 16 << 30}
		s.Partition = job.PartitionFence
		return s
	}
	var jobs []load.Job
	for i := range 30 {
		at := time.Duration(i) * day
		jobs = append(jobs,
			load.Job{Name: "first", User: "ann", Submit: at, Runs: 30 * time.Minute, Spec: spec(8)},
			load.Job{Name: "second", User: "ben", Submit: at + time.Minute, Runs: 10 * time.Minute, Spec: spec(8)},
			load.Job{Name: "third", User: "ann", Submit: at + 2*time.Minute, Runs: 10 * time.Minute, Spec: spec(8)})
	}
	faults := []Fault{
		{Kind: Crash, Machine: 1, At: 3*day + 5*time.Minute, For: 3 * time.Hour},
		{Kind: Crash, Machine: 0, At: 7*day + 5*time.Minute, For: 3 * time.Hour},
		{Kind: Kill, Machine: 1, At: 9*day - time.Minute, For: 2 * time.Minute},
		{Kind: Leave, Machine: 1, At: 12*day - 6*time.Hour, For: 6*time.Hour + 20*time.Minute},
	}
	run := func(ticks bool) (Result, []time.Duration) {
		var log record.Log
		w, err := New(Config{Seed: 1, Schedulers: 1, Load: load.Load{Machines: machinesOf(2), Jobs: jobs}, Faults: faults, Sink: &log})
		if err != nil {
			t.Fatal(err)
		}
		w.ticks = ticks
		r, err := w.Run(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var starts []time.Duration
		for _, x := range log {
			if x.Kind == record.Start {
				starts = append(starts, x.At)
			}
		}
		return r, starts
	}
	all, want := run(true)
	some, got := run(false)
	if all.Skipped != 0 || some.Skipped < 28*23*time.Hour-6*time.Hour || some.Events > all.Events/10 {
		t.Errorf("%v skipped, %d events in place of %d, want most of the 28 days and a tenth of the events", some.Skipped, some.Events, all.Events)
	}
	if len(got) != len(want) || len(want) <= len(jobs) {
		t.Fatalf("%d starts, want %d", len(got), len(want))
	}
	const drawn = 10 * time.Second // the most by which random pauses and latencies differ
	for i := range want {
		if d := got[i] - want[i]; d < -drawn || d > drawn {
			t.Errorf("start %d at %v, want %v", i, got[i], want[i])
		}
	}
}
