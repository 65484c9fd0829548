package main

// Whether the memory of a daemon grows with the tasks that it has seen, and the memory of a runner with many tasks.

import (
	"context"
	"errors"
	"time"

	"github.com/musterhq/muster/api"
	"github.com/musterhq/muster/job"
)

const (
	flatFirst = 1_000
	flatLast  = 10_000
	// settle is longer than two minutes. After that time, the Go runtime collects garbage even in a process that
	// allocates nothing, and returns the memory.
	settle = 150 * time.Second
)

// flat measures the memory of one daemon at rest after some tasks and after many.
func (c *cluster) flat(ctx context.Context, r *report) error {
	if err := c.many(ctx, flatFirst); err != nil {
		return err
	}
	before, err := c.atRest(ctx)
	if err != nil {
		return err
	}
	if err := c.many(ctx, flatLast-flatFirst); err != nil {
		return err
	}
	after, err := c.atRest(ctx)
	if err != nil {
		return err
	}
	r.value("flat", "after 1,000", before/1e6)
	r.value("flat", "after 10,000", after/1e6)
	r.value("flat-growth", "", 100*(after/before-1))
	return nil
}

// many runs n jobs through the first daemon.
func (c *cluster) many(ctx context.Context, n int) error {
	return parallel(n, inFlight, func(int) error {
		_, err := finish(ctx, c.clients[0], command("/bin/true"))
		return err
	})
}

// atRest is the resident memory of the daemon, in bytes, when nothing has happened for a while.
func (c *cluster) atRest(ctx context.Context) (float64, error) {
	wait(ctx, settle)
	all, err := c.usage()
	if err != nil {
		return 0, err
	}
	daemons := all.only("daemon")
	if len(daemons) == 0 {
		return 0, errors.Join(ctx.Err(), errors.New("the daemon is gone"))
	}
	return float64(daemons.rss()), nil
}

// heldTasks is the number of tasks that run at once while the runner is measured.
const heldTasks = 100

// runner measures the memory of one runner that holds tasks.
func (c *cluster) runner(ctx context.Context, r *report) error {
	client := c.clients[0]
	spec := command("/bin/sleep", "1000")
	spec.Resources.CPUs = 0
	for range heldTasks {
		if _, err := client.Submit(ctx, spec, ""); err != nil {
			return err
		}
	}
	for running := 0; running < heldTasks && ctx.Err() == nil; wait(ctx, 100*time.Millisecond) {
		jobs, err := client.Jobs(ctx, api.JobFilter{States: []job.State{job.Running}, Limit: heldTasks})
		if err != nil {
			return err
		}
		running = len(jobs.Items)
	}
	all, err := c.usage()
	if err != nil {
		return err
	}
	runners := all.only("runner")
	if len(runners) == 0 {
		return errors.New("no runner is running")
	}
	r.value("runner-memory", "", float64(runners[0].rss)/1e6)
	return nil
}
