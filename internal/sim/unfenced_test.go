package sim

// Worlds with hosts that do not fence their tasks.

import (
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"
)

// TestTasksOfUnfencedHostsNeverRunTwice runs random worlds in which some hosts lose their daemon and their runner at
// once, and their tasks go on without a lease. No task runs twice (P5), and once nothing fails any more each job ends
// (P7).
func TestTasksOfUnfencedHostsNeverRunTwice(t *testing.T) {
	n := 40
	if testing.Short() {
		n = 20
	}
	var died atomic.Int64
	t.Run("seeds", func(t *testing.T) {
		for _, seed := range worldSeeds(n) {
			t.Run(fmt.Sprint(seed), func(t *testing.T) {
				t.Parallel()
				w := randomWorld(t, seed)
				r := rand.New(rand.NewPCG(seed, 2))
				for i, h := range w.hosts {
					if h.unfenced = i%2 == 0; h.unfenced {
						w.each(r, 2, func() {
							if h.up {
								died.Add(int64(len(h.running())))
							}
							runnerDies(h)
							life := h.life
							w.after(between(r, time.Second, 15*time.Minute), func() {
								if h.life == life && !h.up && h.power {
									h.boot()
								}
							})
						})
					}
				}
				w.runRandom()
				w.report()
			})
		}
	})
	if died := died.Load(); died < int64(n) {
		t.Errorf("%d tasks have lost their runner, want at least %v", died, int64(n))
	}
}
