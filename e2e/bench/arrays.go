package main

// Arrays on daemons, and a long queue of single jobs.

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/musterhq/muster/api"
	"github.com/musterhq/muster/job"
)

const (
	arrayTasks  = 10_000
	largeArrays = 5 // of a million tasks
	queuedJobs  = 20_000
)

// inTurn measures with one function after the other.
func inTurn(all ...func(context.Context, string, *report) error) func(context.Context, string, *report) error {
	return func(ctx context.Context, program string, r *report) error {
		for _, measure := range all {
			if err := measure(ctx, program, r); err != nil {
				return err
			}
		}
		return nil
	}
}

// array measures an array of short tasks, from its submission to the end of the last task, and a loop that only forks,
// executes and waits.
func array(label string) func(*cluster, context.Context, *report) error {
	return func(c *cluster, ctx context.Context, r *report) error {
		bare, bareUsed, err := c.timed(func() error {
			return parallel(arrayTasks, inFlight, func(int) error { return exec.CommandContext(ctx, "/bin/true").Run() })
		})
		if err != nil {
			return err
		}
		spec := command("/bin/true")
		spec.Array = fmt.Sprintf("0-%d", arrayTasks-1)
		took, used, err := c.timed(func() error { _, err := finish(ctx, c.clients[0], spec); return err })
		if err != nil {
			return err
		}
		rate, cpu := bare.Seconds()/took.Seconds(), ms(used.cpu())/ms(bareUsed.cpu())
		r.value("array", label, arrayTasks/took.Seconds())
		r.raw("array", "fork-exec-wait", arrayTasks/bare.Seconds())
		r.value("array-share", label, 100*rate)
		r.value("array-cpu", label, ms(used.cpu())/arrayTasks)
		r.value("array-cpu", label+", daemons", ms(used.only("daemon").cpu())/arrayTasks)
		r.value("array-cpu", label+", runners and tasks", ms(used.only("runner").cpu())/arrayTasks)
		r.raw("array-cpu", "fork-exec-wait", ms(bareUsed.cpu())/arrayTasks)
		r.value("array-cpu-times", label, cpu)
		return nil
	}
}

// largeArray measures how fast an array of a million tasks is accepted. The tasks are held.
func (c *cluster) largeArray(ctx context.Context, r *report) error {
	spec := command("/bin/true")
	spec.Array, spec.Hold = fmt.Sprintf("0-%d", job.MaxTasks-1), true
	var took []time.Duration
	for range largeArrays {
		start := time.Now()
		j, err := c.clients[0].Submit(ctx, spec, "")
		if err != nil {
			return err
		}
		took = append(took, time.Since(start))
		if _, err := c.clients[0].Cancel(ctx, j.ID, api.Change{}); err != nil {
			return err
		}
	}
	times(r.value, "array-accept", took, 0.5, 1)
	return nil
}

// queue measures listings of many single jobs that wait for a GPU.
func (c *cluster) queue(ctx context.Context, r *report) error {
	client := c.clients[0]
	spec := command("/bin/sleep", "1000")
	spec.Resources.GPUs = 1
	if _, err := client.Submit(ctx, spec, ""); err != nil { // it has the only GPU
		return err
	}
	if err := parallel(queuedJobs, inFlight, func(int) error { _, err := client.Submit(ctx, spec, ""); return err }); err != nil {
		return err
	}
	var first []time.Duration
	for range 20 {
		start := time.Now()
		if l, err := client.Jobs(ctx, api.JobFilter{}); err != nil || len(l.Items) == 0 {
			return errors.Join(err, errors.New("the listing is empty"))
		}
		first = append(first, time.Since(start))
	}
	times(r.value, "queue-page", first, 0.5, 1)
	var all []time.Duration
	for range 3 {
		start := time.Now()
		if err := exec.CommandContext(ctx, c.program, "jobs", "--socket", filepath.Join(c.dir, "dev1.sock")).Run(); err != nil {
			return err
		}
		all = append(all, time.Since(start))
	}
	times(r.value, "queue-list", all, 0.5, 1)
	return nil
}
