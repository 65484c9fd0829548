package main

// The memory of a runner with many tasks.

import (
	"context"
	"errors"
	"time"

	"github.com/musterhq/muster/api"
	"github.com/musterhq/muster/job"
)

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
