package main

// What the runner of a host with many tasks takes.

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/musterhq/muster/api"
	"github.com/musterhq/muster/job"
)

// heldTasks live at once while the runner is measured.
const heldTasks = 100

// runner: the memory of one runner that holds tasks.
func (c *cluster) runner(ctx context.Context) error {
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
	for _, p := range all {
		if p.what == "runner" {
			fmt.Printf("## a runner with %d tasks\n   RSS %.1f MB\n\n", heldTasks, float64(p.rss)/1e6)
			return nil
		}
	}
	return errors.New("no runner lives")
}
