package runner

// Ending the tasks that hold too much of the disk.

import (
	"time"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker/runner/protocol"
	"github.com/musterhq/muster/worker/runner/scratch"
)

// measurer is the goroutine that measures what tasks hold on the disk. It sleeps while no task runs.
type measurer struct {
	dir   protocol.Dir
	awake bool          // used only by the loop
	wake  chan struct{} // a task runs
}

// need wakes the goroutine.
func (m *measurer) need() {
	if !m.awake {
		m.awake = true
		m.wake <- struct{}{} // does not block: its buffer of one is empty while the goroutine sleeps
	}
}

// bounded lists the running tasks. If there are none, the goroutine goes to sleep.
func (m *measurer) bounded(all map[job.Attempt]*task) []scratch.Bounded {
	var found []scratch.Bounded
	for _, t := range all {
		if t.phase == running || t.phase == lingering {
			b := scratch.Bounded{
				Attempt: t.attempt, User: t.disk.user, Path: m.dir.Scratch(t.attempt), Log: m.dir.Task(t.attempt),
				Bound: t.disk.scratch, UserBound: t.disk.all, Ending: t.watch.cause == causeScratch,
			}
			if t.tmp != nil {
				b.Tmp = t.tmp.Path
			}
			found = append(found, b)
		}
	}
	m.awake = len(found) > 0
	return found
}

// run measures the tasks that bounded lists; members lists the processes of a task. It calls over for each task that has
// to end.
func (m *measurer) run(bounded func() []scratch.Bounded, members func(job.Attempt) []int, over func(scratch.Over)) {
	meter := scratch.Meter{Members: members}
	for range m.wake {
		look := time.NewTimer(scratch.Pause(m.dir.Tasks()))
		for now := range look.C {
			all := bounded()
			if len(all) == 0 {
				break
			}
			found, pause := meter.Measure(m.dir.Tasks(), all, now)
			for _, o := range found {
				over(o)
			}
			look.Reset(pause)
		}
		look.Stop()
	}
}
