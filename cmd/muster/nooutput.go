package main

// What logs says of tasks that have no output because no process of theirs has started.

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/musterhq/muster/api"
	"github.com/musterhq/muster/job"
)

// copied counts what is written. It is for one writer at a time.
type copied struct {
	w io.Writer
	n int64
}

func (c *copied) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}

// explained returns the error of logs for what was copied of a job, or of these tasks of it. If there was nothing to
// copy because nothing has started, it is an error that says why, and what to do.
func explained(ctx context.Context, client *api.Client, j api.Job, tasks []job.Range, copied int64, err error) error {
	if copied > 0 || err != nil && !errors.Is(err, api.ErrConflict) {
		return asUsage(err)
	}
	why, failed := unstarted(ctx, client, j, tasks)
	switch {
	case why != nil:
		return why
	case err == nil:
		return failed
	}
	return asUsage(err)
}

// unstarted returns why a job, or these tasks of it, have no output; nil if one of them has started.
func unstarted(ctx context.Context, client *api.Client, j api.Job, tasks []job.Range) (why, failed error) {
	if len(tasks) == 0 {
		now, err := client.Job(ctx, j.ID)
		if err != nil || now.StartedAt != nil {
			return nil, asUsage(err)
		}
		return noOutput("job "+string(j.ID), string(j.ID), now.State, withDetail(now.Reason, now.ReasonDetail)), nil
	}
	for t, err := range client.AllTasks(ctx, j.ID, api.TaskFilter{Tasks: tasks}) {
		if err != nil || t.StartedAt != nil {
			return nil, asUsage(err)
		}
		if why == nil {
			who, name := "job "+string(j.ID), string(j.ID)
			if j.TaskCount > 1 {
				name += "." + taskName(j, t.Task)
				who = "task " + name
			}
			if why = noOutput(who, name, t.State, withDetail(t.Reason, t.ReasonDetail)); why == nil {
				return nil, nil
			}
		}
	}
	return why, nil
}

// noOutput says why something in this state, of which no start is known, has no output; nil if it may have started.
func noOutput(who, name string, state job.State, reason string) error {
	advice := ""
	switch state {
	case job.Pending, job.Reserved, job.Starting:
		advice = fmt.Sprintf("; why: muster why %s; to wait for its output: muster logs -f %s", name, name)
	case job.Held:
		advice = "; to let it start: muster release " + name
	case job.Running, job.Unreachable, job.Completing, job.Succeeded:
		return nil
	case job.Cancelled:
		advice = "; it had not started"
	case job.Failed, job.Timeout, job.OutOfMemory, job.NodeFail, job.Preempted:
		advice = "; more: muster show " + name
	}
	if reason != "" {
		reason = " (" + reason + ")"
	}
	return fmt.Errorf("%s has no output: it is %s%s%s", who, state, reason, advice)
}
