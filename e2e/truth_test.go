//go:build e2e

package e2e

// The simulator against real daemons: one load, a host that dies, the same placements and the same figures.
//
// Two real runs never agree job by job, because chance decides the order of events within a millisecond. So figures are
// compared with the mean of many simulations, and a placement only if the job starts in the same situation in both: the
// same submissions, the same running tasks, the same waiting jobs. Costs are measured on this cluster while the load
// runs, not fitted; costs that were measured when the machine had less to do made simulated waits 6 % too short. Gangs
// have the policy pack, because topology depends on round trips, which are noise on loopback. The load begins when
// sessions are as old as in a simulation, because their age decides when leases are renewed.

import (
	"flag"
	"fmt"
	"math"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/sim"
	"github.com/musterhq/muster/internal/sim/load"
	"github.com/musterhq/muster/internal/sim/record"
	"github.com/musterhq/muster/internal/sim/report"
)

var truthSeed = flag.Uint64("truth.seed", 1, "seed of the load of TestSimulatorIsTrue")

const (
	// truthWorlds is how often a load is simulated. A run depends on chance: which of two events within a millisecond
	// comes first decides what runs where from then on. So the daemons are compared with the mean of many simulations.
	truthWorlds = 20
	// truthBound is by how much the daemons may differ from that mean.
	truthBound = 0.10
	// truthStale is the number of jobs of which one may be placed differently: on a busy machine a daemon may stand
	// still for so long that another one decides before it has learnt what is free.
	truthStale = 8
)

// truthSize returns the number of jobs and of daemons.
func truthSize() (jobs, hosts int) {
	if os.Getenv("MUSTER_E2E_FULL") != "" {
		return 300, 8
	}
	return 60, 4
}

// A load with gangs, shares, priorities and preemption, and a host that dies, has the same makespan and the same mean
// wait on real daemons and in a simulation, and its jobs are placed in the same way.
func TestSimulatorIsTrue(t *testing.T) {
	n, hosts := truthSize()
	l := newTruthLoad(*truthSeed, n, hosts)
	c := newDevCluster(t, hosts)
	var owners []int // every second daemon accepts jobs
	for i := range hosts / 2 {
		owners = append(owners, 2*i)
	}
	const victim = 1
	jobs, begun, death, notices := c.replay(&l, owners, victim)
	docs := c.untilEnded(jobs, 5*time.Minute)
	log := c.records(jobs, docs, begun, victim, death)
	costs, longer := c.measure(&l, jobs, docs, owners)
	costs.Notice = sim.Range{Least: slices.Min(notices), Most: slices.Max(notices)}

	// The simulation gets the machines and the jobs as they were, because a busy machine submits late.
	died := death.Sub(begun)
	given := load.Load{Machines: c.machines(), Jobs: slices.Clone(l.jobs)}
	for i := range given.Jobs {
		x := &given.Jobs[i]
		x.Submit, x.Spec.Resources.CPUs = jobs[i].at.Sub(begun), 1000*x.Spec.Resources.CPUs
	}
	daemons := figuresOf(t, &given, log)
	t.Logf("%-10s %s", "daemons", inWords(daemons))
	for i := range given.Jobs {
		given.Jobs[i].Runs += longer
	}
	real := starts(&given, log, died)
	var makespans, delays []float64
	all := comparison{jobs: map[int]bool{}, jobsDiffer: map[int]bool{}}
	for seed := range uint64(truthWorlds) {
		log := simulate(t, sim.Config{
			Seed: seed, Load: given, Schedulers: len(owners), Costs: costs,
			Faults: []sim.Fault{{At: died, Kind: sim.Crash, Machine: victim}},
		})
		f := figuresOf(t, &given, log)
		makespans, delays = append(makespans, f.Makespan), append(delays, f.Wait.Mean)
		all.add(&given, real, starts(&given, log, died))
		t.Logf("%-10s %s", fmt.Sprint("seed ", seed), inWords(f))
	}
	all.check(t, truthWorlds*l.first/2)
	compareMean(t, "makespan", daemons.Makespan, makespans)
	compareMean(t, "mean wait", daemons.Wait.Mean, delays)
}

// check checks that jobs that started in the same situation, while no other job waited, were placed in the same way,
// and that there were enough of them. If other jobs wait, hosts keep capacity for some of them, which is not part of a
// situation as it is seen from outside. So some may differ there, and they differ between simulations too.
func (c *comparison) check(t *testing.T, least int) {
	t.Helper()
	t.Logf("started in the same situation: %d while no other job waited, %d placed differently; %d while others waited, %d placed differently %q",
		c.alone, len(c.aloneDiffer), c.among, len(c.amongDiffer), c.amongDiffer)
	if c.alone < least {
		t.Errorf("got %d starts while no other job waited, want at least %d", c.alone, least)
	}
	differ := 0
	for _, d := range c.jobsDiffer {
		if d {
			differ++
		}
	}
	if differ*truthStale > len(c.jobs) {
		t.Errorf("%d of %d jobs were placed differently while no other job waited, want at most one in truthStale: %q", differ, len(c.jobs), c.aloneDiffer)
	}
}

// simulate runs a world and returns what happened in it.
func simulate(t *testing.T, cfg sim.Config) (log record.Log) {
	t.Helper()
	cfg.Sink = &log
	w, err := sim.New(cfg)
	if err == nil {
		_, err = w.Run(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	return log
}

func figuresOf(t *testing.T, l *load.Load, log record.Log) *report.Figures {
	t.Helper()
	tally, err := report.NewTally(l)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range log {
		tally.Take(r)
	}
	return tally.Figures(0, nil)
}

func inWords(f *report.Figures) string {
	return fmt.Sprintf("%d jobs in %.1f s, wait mean %.2f p50 %.2f p95 %.2f max %.2f s, %.1f %% of the GPUs used, %d preempted, %d lost, again after %.1f s",
		f.Jobs.Finished, f.Makespan, f.Wait.Mean, f.Wait.P50, f.Wait.P95, f.Wait.Max, 100*f.Use.GPUs, f.Again.Preemptions, f.Again.Lost, f.Again.Recovery.Mean)
}

// compareMean compares a figure of the daemons with the mean of the simulations.
func compareMean(t *testing.T, what string, real float64, simulated []float64) {
	t.Helper()
	mean := 0.0
	for _, x := range simulated {
		mean += x / float64(len(simulated))
	}
	by := real/mean - 1
	t.Logf("%s: daemons %.2f s, simulated %.2f s (%.2f to %.2f s): %+.1f %%", what, real, mean, slices.Min(simulated), slices.Max(simulated), 100*by)
	if math.Abs(by) > truthBound {
		t.Errorf("%s: the daemons differ by %.1f %%, want at most %.0f %%", what, 100*by, 100*truthBound)
	}
}
