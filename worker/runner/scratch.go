package runner

// Enforcing the size limits of tasks' scratch directories.

import (
	"time"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker/runner/protocol"
	"github.com/musterhq/muster/worker/runner/scratch"
)

// scratchEvery is how often the free space of the disk is read while a task with a limit runs. One system call serves
// all tasks.
const scratchEvery = time.Second

// measurer is the goroutine that measures scratch directories. It sleeps while no task has a limit.
type measurer struct {
	dir   protocol.Dir
	awake bool          // used only by the loop
	wake  chan struct{} // a task has a scratch directory to measure
}

// need wakes the goroutine.
func (m *measurer) need() {
	if !m.awake {
		m.awake = true
		m.wake <- struct{}{} // does not block: its buffer of one is empty while the goroutine sleeps
	}
}

// bounded lists the running tasks whose scratch directory has a limit. If there are none, the goroutine goes to
// sleep.
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

// run measures the directories that bounded lists. It calls over for each directory that exceeds its limit.
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
