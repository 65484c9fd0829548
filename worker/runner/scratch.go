package runner

// Holding the scratch directories of tasks to their bounds.

import (
	"time"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker/runner/proc"
	"github.com/musterhq/muster/worker/runner/scratch"
)

// scratchEvery is how often the disk is asked for its free space while a task with
// a bound runs: one system call for all of them.
const scratchEvery = time.Second

// measure is the goroutine that measures scratch directories. It sleeps while no
// task has a bound.
func (l *loop) measure(wake <-chan struct{}) {
	var meter scratch.Meter
	for range wake {
		tick := time.NewTicker(scratchEvery)
		for now := range tick.C {
			answer := make(chan []scratch.Bounded, 1)
			l.do <- func() { answer <- l.withScratch() }
			all := <-answer
			if len(all) == 0 {
				break
			}
			meter.Measure(l.dir.Tasks(), all, now, func(a job.Attempt, why string) {
				l.do <- func() { l.overScratch(a, why) }
			})
		}
		tick.Stop()
	}
}

// withScratch lists the running tasks whose scratch directory has a bound.
func (l *loop) withScratch() []scratch.Bounded {
	var all []scratch.Bounded
	for _, t := range l.tasks {
		if t.scratch > 0 && t.pid != 0 && t.watch.alive {
			all = append(all, scratch.Bounded{Attempt: t.attempt, Path: l.dir.Scratch(t.attempt), Bound: t.scratch})
		}
	}
	l.measuring = len(all) > 0
	return all
}

func (l *loop) overScratch(a job.Attempt, why string) {
	if t := l.tasks[a]; t != nil {
		t.watch.end(proc.BootTime(), t.watch.grace, causeScratch, why)
		l.look(t)
	}
}
