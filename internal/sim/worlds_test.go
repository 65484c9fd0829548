package sim

// Random worlds: the cores are held against properties over time.
//
// A world has hosts with GPUs, owners, the sessions between them, jobs of several users, and whatever goes wrong. Sessions
// break, and each side finds out in its own time. Daemons die and come back from their disks, hosts die with their tasks and
// come back with another boot, with an empty disk or never. Wall clocks are wrong and are set.
//
// The properties:
//
//	P1  Nothing starves: a job that is first in line at an idle host starts soon.
//	P2  Nobody is asked in a hot loop: offers of a task to a host are bounded.
//	P3  No list grows without end: drained cores hold as much as before.
//	P4  No healthy task ends for lack of a session.
//	P5  Nothing runs twice at once, and no device has two holders.
//	P6  Work for an event stays flat: steps and effects of a job are counted.
//	P7  Every accepted job ends once all is healthy, or is held with a reason.
//	P8  Nothing is set aside for an offer for longer than it has waited, but for a configured time.
//	P9  A start that a host has shown for the first job in line is never delayed, unless another host has booked the job since.
//	P10 Where a host has booked a job, no other host keeps anything for it.
//	P11 No task of a lower priority starts on what a waiting job of a higher one could have had sooner at that host.
//	P12 A job does not return to a host where it failed while another one is idle.
//
// TestRandomWorlds runs many small worlds for an hour each; -sim.seeds says how many. A world that failed is run again, with
// all that happens in it, by
//
//	go test ./internal/sim -run TestRandomWorlds -sim.seed=N -v
//
// The scenes are larger worlds of one kind each.

import (
	"flag"
	"fmt"
	"slices"
	"testing"
	"time"
)

var (
	seeds   = flag.Int("sim.seeds", 100, "how many random worlds TestRandomWorlds runs")
	oneSeed = flag.Uint64("sim.seed", 0, "run this random world alone, and log all that happens in it")
)

// The parts of a random world's time.
const (
	busyFor  = time.Hour        // things break
	calmFor  = 4 * time.Hour    // nothing breaks any more; all jobs must end within
	quietFor = 15 * time.Minute // nothing is left to do
)

func TestRandomWorlds(t *testing.T) {
	if *oneSeed != 0 {
		sum := &total{}
		runSeed(t, *oneSeed, sum)
		t.Log(sum.sum.String())
		return
	}
	n := *seeds
	if testing.Short() {
		n = min(n, 40)
	}
	all := worldSeeds(n)
	sum := &total{}
	t.Run("seeds", func(t *testing.T) {
		for _, seed := range all {
			t.Run(fmt.Sprint(seed), func(t *testing.T) {
				t.Parallel()
				runSeed(t, seed, sum)
			})
		}
	})
	t.Logf("%d worlds\n%s; most offers a start in one world %.1f", len(all), sum.sum.String(), sum.worst)
	if len(sum.failed) > 0 {
		slices.Sort(sum.failed)
		t.Errorf("%d of %d worlds failed; -sim.seed=N runs one again: %v", len(sum.failed), len(all), sum.failed)
	}
}

// runSeed runs one random world.
func runSeed(t *testing.T, seed uint64, sum *total) {
	w := randomWorld(t, seed)
	if *oneSeed != 0 {
		w.trace = t.Logf
	}
	w.runRandom()
	sum.add(seed, &w.stats, len(w.defects) > 0)
	w.report()
}

// runRandom runs a world through its hour, heals it, and checks that all jobs end and that nothing is left of them.
func (w *world) runRandom() {
	w.start()
	if !w.run(busyFor) {
		return
	}
	w.heal()
	if !w.runUntil(busyFor+calmFor, w.done) {
		w.failUnsettled()
		return
	}
	w.checkOffers()
	if w.run(w.now + quietFor) {
		w.checkSizes()
	}
}

// TestSameSeedGivesTheSameWorld proves that nothing in a world, nor in the cores, depends on chance other than by the seed.
func TestSameSeedGivesTheSameWorld(t *testing.T) {
	for _, seed := range worldSeeds(8) {
		var first string
		for run := range 2 {
			w := randomWorld(t, seed)
			w.start()
			w.runAll(20 * time.Minute)
			got := fmt.Sprintf("%d events, %s", w.ran, &w.stats)
			if run == 0 {
				first = got
			} else if got != first {
				t.Errorf("seed %d went one way:\n%s\nand then another:\n%s", seed, first, got)
			}
		}
	}
}

// failUnsettled reports which jobs have not ended (P7).
func (w *world) failUnsettled() {
	if len(w.defects) > 0 {
		return
	}
	for _, j := range w.works {
		if !j.settled() {
			w.fail("P7: %s has not ended: accepted %v, %s %s, attempt %d at %q (assigned %v), cancelled %v",
				j, j.accepted, j.state, j.reason, j.attempt, j.node, j.assigned, j.cancelled)
		}
	}
}

// TestClocksOfAWorldReadLikeRealOnes proves that the clocks of a world are read like real ones.
func TestClocksOfAWorldReadLikeRealOnes(t *testing.T) {
	a := moment(time.Minute, 0)
	b := moment(2*time.Minute, -time.Hour)
	if got := b.Sub(a); got != time.Minute {
		t.Errorf("a minute passed by the monotonic clock, Sub says %v, want %v", got, time.Minute)
	}
	if got := b.Round(0).Sub(a.Round(0)); got != time.Minute-time.Hour {
		t.Errorf("by the wall clock Sub says %v, want %v", got, time.Minute-time.Hour)
	}
	if want := time.Date(2026, 1, 1, 0, 1, 0, 0, time.UTC); !a.Round(0).Equal(want) || a.UTC().Format(time.RFC3339) != "2026-01-01T00:01:00Z" {
		t.Errorf("the wall clock reads %v, want %v", a, want)
	}
	if !b.After(a) || a.Add(time.Hour).Sub(a) != time.Hour {
		t.Errorf("%v is not after %v", b, a)
	}
	c := hostClock{bootAt: time.Hour, ppm: -150}
	for _, d := range []time.Duration{0, 1, time.Second, 100 * time.Hour} {
		at := c.read(time.Hour + d)
		if when := c.when(at); c.read(when) < at || when > time.Hour+d {
			t.Errorf("the clock reads %v after %v, but is predicted to at %v", at, d, when-time.Hour)
		}
	}
}
