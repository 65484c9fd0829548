package runner

// Holding the scratch directories of tasks to their bounds.

import (
	"time"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker/runner/protocol"
	"github.com/musterhq/muster/worker/runner/scratch"
)

// scratchEvery is how often the disk is asked for its free space while a task with
// a bound runs: one system call for all of them.
const scratchEvery = time.Second

// measurer is the goroutine that measures scratch directories. It sleeps while no
// task has a bound.
type measurer struct {
	dir   protocol.Dir
	awake bool          // known to the loop alone
	wake  chan struct{} // a task has a scratch directory to measure
}

// need wakes the goroutine.
func (m *measurer) need() {
	if !m.awake {
		m.awake = true
		m.wake <- struct{}{} // the one place in it is free: the goroutine sleeps, or is not yet awake
	}
}

// bounded lists the running tasks whose scratch directory has a bound. Without any
// the goroutine sleeps.
func (m *measurer) bounded(all map[job.Attempt]*task) []scratch.Bounded {
	var found []scratch.Bounded
	for _, t := range all {
		if t.scratch > 0 && (t.phase == running || t.phase == lingering) {
			found = append(found, scratch.Bounded{Attempt: t.attempt, Path: m.dir.Scratch(t.attempt), Bound: t.scratch})
		}
	}
	m.awake = len(found) > 0
	return found
}

// run measures what bounded lists. It calls over for each directory that exceeds its bound.
func (m *measurer) run(bounded func() []scratch.Bounded, over func(a job.Attempt, why string)) {
	var meter scratch.Meter
	for range m.wake {
		tick := time.NewTicker(scratchEvery)
		for now := range tick.C {
			all := bounded()
			if len(all) == 0 {
				break
			}
			meter.Measure(m.dir.Tasks(), all, now, over)
		}
		tick.Stop()
	}
}
