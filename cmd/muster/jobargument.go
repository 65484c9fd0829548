package main

// Which job, and which of its tasks, an argument names.

import (
	"context"

	"github.com/urfave/cli/v2"

	"github.com/musterhq/muster/api"
	"github.com/musterhq/muster/job"
)

// oneJob returns the single job that a verb's argument names, and the numbers of the tasks that it names, or --task;
// none means all.
func oneJob(c *cli.Context, client *api.Client) (api.Job, []job.Range, error) {
	if err := wantArgs(c, 1, 1, "one job id"); err != nil {
		return api.Job{}, nil, err
	}
	arg := c.Args().First()
	if t := c.String("task"); t != "" {
		arg += "." + t
	}
	jobs, sel, err := client.Resolve(c.Context, arg)
	if err != nil {
		return api.Job{}, nil, asUsage(err)
	}
	if len(jobs) != 1 {
		return api.Job{}, nil, usagef("%s: %q means %d jobs; name one", c.Command.Name, arg, len(jobs))
	}
	return jobs[0], sel.Tasks, nil
}

// taskNamed returns the task that ID or ID.T names.
func taskNamed(ctx context.Context, client *api.Client, verb, name string) (api.Job, int, error) {
	jobs, sel, err := client.Resolve(ctx, name)
	if err != nil {
		return api.Job{}, 0, asUsage(err)
	}
	if len(jobs) != 1 {
		return api.Job{}, 0, usagef("%s: %q means %d jobs; name one", verb, name, len(jobs))
	}
	j := jobs[0]
	switch {
	case len(sel.Tasks) == 1 && sel.Tasks[0].First == sel.Tasks[0].Last:
		return j, sel.Tasks[0].First, nil
	case len(sel.Tasks) > 0 || j.TaskCount > 1:
		return j, 0, usagef("%s: %.60q: name one task, such as %s.%s", verb, name, j.ID, taskName(j, firstTask(j)))
	}
	return j, firstTask(j), nil
}

// firstTask returns the number of the first task, or of the only one.
func firstTask(j api.Job) int {
	l, err := j.Layout()
	if err != nil {
		return 0
	}
	return l.Number(0)
}
