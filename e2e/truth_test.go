//go:build e2e

package e2e

// The simulator against real daemons: one load, a host that dies, and the same figures.

import (
	"flag"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/musterhq/muster/sim"
	"github.com/musterhq/muster/sim/load"
	"github.com/musterhq/muster/sim/record"
	"github.com/musterhq/muster/sim/report"
)

var (
	truthSeed   = flag.Uint64("truth.seed", 1, "seed of the load of TestSimulatorIsTrue")
	truthJobs   = flag.Int("truth.jobs", 60, "number of its jobs")
	truthHosts  = flag.Int("truth.hosts", 4, "number of its daemons")
	truthWorlds = flag.Int("truth.worlds", 20, "how often it is simulated")
)

func TestSimulatorIsTrue(t *testing.T) {
	l := newTruthLoad(*truthSeed, *truthJobs, *truthHosts)
	c := newDevCluster(t, *truthHosts)
	var owners []int
	for i := range (*truthHosts + 1) / 2 {
		owners = append(owners, 2*i)
	}
	victim := 1
	jobs, begun, died := c.replay(&l, owners, victim)
	docs := c.untilEnded(jobs, 5*time.Minute)
	real := c.records(jobs, docs, begun, victim, died)
	costs, longer := c.measure(owners)

	given := load.Load{Machines: c.machines(), Jobs: slices.Clone(l.jobs)}
	for i := range given.Jobs {
		x := &given.Jobs[i]
		x.Submit, x.Spec.Resources.CPUs = jobs[i].at.Sub(begun), 1000*x.Spec.Resources.CPUs
	}
	was := figures(t, &given, real, victim, died.Sub(begun))
	t.Logf("%-10s %s", "daemons", row(was))
	for i := range given.Jobs {
		given.Jobs[i].Runs += longer
	}
	for seed := range *truthWorlds {
		var log record.Log
		w, err := sim.New(sim.Config{
			Seed: uint64(seed), Load: given, Schedulers: len(owners), Costs: costs, Sink: &log, //nolint:gosec // small
			Faults: []sim.Fault{{At: died.Sub(begun), Kind: sim.Crash, Machine: victim}},
		})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		same, differ := sameOrder(order(&given, real, died.Sub(begun)), order(&given, log, died.Sub(begun)))
		t.Logf("%-10s %s; %d %q", fmt.Sprint("seed ", seed), row(figures(t, &given, log, victim, died.Sub(begun))), same, differ)
	}
}

func figures(t *testing.T, l *load.Load, log record.Log, victim int, died time.Duration) *report.Figures {
	t.Helper()
	tally, err := report.NewTally(l)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range log {
		tally.Take(r)
	}
	return tally.Figures(0, []report.Fault{{At: died, Kind: "host", Machines: []int{victim}}})
}

func row(f *report.Figures) string {
	return fmt.Sprintf("finished %d, makespan %.2f, wait %.3f p50 %.3f p95 %.3f max %.3f, delay %.3f, preempted %d, lost %d, recovery %.2f, local %.2f away %d, GPUs %.3f",
		f.Jobs.Finished, f.Makespan, f.Wait.Mean, f.Wait.P50, f.Wait.P95, f.Wait.Max, f.Delay.Mean, f.Again.Preemptions, f.Again.Lost, f.Again.Recovery.Mean, f.Remote.LocalDelay, f.Remote.Away, f.Use.GPUs)
}
