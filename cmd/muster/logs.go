package main

// The verb logs: the output of a job, and messages about tasks that have no output because none of their processes has
// started.

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/urfave/cli/v2"

	"github.com/musterhq/muster/api"
	"github.com/musterhq/muster/job"
)

func (v taskVerbs) logsCommand() *cli.Command {
	return &cli.Command{
		Name: "logs", Aliases: []string{"tail"}, Usage: "print the output of a job", ArgsUsage: "ID[.T]",
		Description: "Of an array, without --all, only that of the first task. Of a gang that of all its tasks, each line after the rank of its task, such as 3|.",
		Flags: clientFlags(
			&cli.BoolFlag{Name: "follow", Aliases: []string{"f"}, Usage: "follow the output until the job ends", DisableDefaultText: true},
			&cli.IntFlag{Name: "lines", Aliases: []string{"n", "tail"}, Usage: "only the last `N` lines", DefaultText: "all"},
			&cli.BoolFlag{Name: "stdout", Usage: "only the standard output", DisableDefaultText: true},
			&cli.BoolFlag{Name: "stderr", Usage: "only the standard error", DisableDefaultText: true},
			&cli.StringFlag{Name: "task", Usage: "the task: `T`, as in ID.T"},
			&cli.IntFlag{Name: "attempt", Usage: "the output of attempt `N`; default: the newest"},
			&cli.BoolFlag{Name: "all", Usage: "the output of all tasks; each line begins with the number of its task, such as 3|", DisableDefaultText: true}),
		Action: v.logs,
	}
}

func (v taskVerbs) logs(c *cli.Context) error {
	switch {
	case c.Bool("all") && (c.IsSet("lines") || c.IsSet("task")):
		return usagef("--all: goes neither with --lines nor with --task; name tasks like ID.0-9")
	case c.Bool("all") && c.IsSet("attempt"):
		return usagef("--attempt: name one task, such as ID.3")
	case c.IsSet("attempt") && c.Int("attempt") < 1:
		return usagef("--attempt %d: attempts are numbered from 1", c.Int("attempt"))
	case c.Int("lines") < 0:
		return usagef("--lines %d: must be at least 0", c.Int("lines"))
	}
	client, err := clientOf(c)
	if err != nil {
		return err
	}
	defer client.Close()
	j, tasks, err := oneJob(c, client)
	if err != nil {
		return err
	}
	if c.Bool("all") {
		return v.allLogs(c, client, j, tasks)
	}
	task, gang, err := oneLog(c, j, tasks)
	switch {
	case err != nil:
		return err
	case gang != nil && (c.IsSet("lines") || c.IsSet("attempt")):
		return usagef("logs: --lines and --attempt: name one task, such as %s.%s", j.ID, taskName(j, gang[0].First))
	case gang != nil:
		return v.allLogs(c, client, j, gang)
	}
	r := api.LogRequest{Job: j.ID, Task: task, Stream: streamOf(c), Attempt: c.Int("attempt"), Exact: c.IsSet("attempt"), Follow: c.Bool("follow")}
	out := &copied{w: v.out}
	if c.IsSet("lines") {
		err = v.lastLines(c.Context, client, &r, c.Int("lines"), out)
	}
	if err == nil && (r.Follow || !c.IsSet("lines")) {
		_, err = client.Logs(c.Context, r, out)
	}
	if c.Err() != nil {
		return exitError{code: exitCtrlC} // the user has seen enough
	}
	if err == nil && c.IsSet("lines") && c.Int("lines") == 0 {
		return nil // nothing was asked for
	}
	return explained(c.Context, client, j, []job.Range{{First: task, Last: task}}, out.n, err)
}

// streamOf returns the stream that the flags choose; empty means both.
func streamOf(c *cli.Context) string {
	switch out, errs := c.Bool("stdout"), c.Bool("stderr"); {
	case out && !errs:
		return "stdout"
	case errs && !out:
		return "stderr"
	}
	return ""
}

func (v taskVerbs) allLogs(c *cli.Context, client *api.Client, j api.Job, tasks []job.Range) error {
	layout, _ := j.Layout() // without one, tasks have their numbers
	l := allLogs{client: client, job: j.ID, layout: layout, tasks: tasks, stream: streamOf(c), follow: c.Bool("follow")}
	out := &copied{w: v.out}
	err := l.copy(c.Context, new(sync.Mutex), out)
	if c.Err() != nil {
		return exitError{code: exitCtrlC}
	}
	return explained(c.Context, client, j, tasks, out.n, err)
}

// oneLog returns the task whose output is printed, or the tasks of a gang.
func oneLog(c *cli.Context, j api.Job, tasks []job.Range) (task int, gang []job.Range, err error) {
	l, err := j.Layout()
	if err != nil {
		return 0, nil, err
	}
	if len(tasks) == 0 {
		first := l.Element(0)
		tasks = []job.Range{{First: l.Number(first.First), Last: l.Number(first.Last)}}
	}
	if len(tasks) == 1 && tasks[0].First == tasks[0].Last {
		return tasks[0].First, nil, nil
	}
	chosen := l.Select(tasks)
	if l.Size() > 1 && l.Element(chosen[0].First) == l.Element(chosen[len(chosen)-1].Last) {
		return 0, tasks, nil
	}
	return 0, nil, usagef("logs: %.60q: name one task, or use --all", c.Args().First())
}

// tailBytes are the sizes of the tail of a log that is searched for the last lines; the next size is tried if the lines
// are not all in it.
var tailBytes = []int64{64 << 10, 8 << 20}

// lastLines prints the last n lines that exist now, and sets r to continue after them.
func (v taskVerbs) lastLines(ctx context.Context, client *api.Client, r *api.LogRequest, n int, out io.Writer) error {
	var text bytes.Buffer
	for _, part := range tailBytes {
		once := *r
		once.Follow, once.Offset = false, -part
		text.Reset()
		end, err := client.Logs(ctx, once, &text)
		if r.Follow && errors.Is(err, api.ErrConflict) {
			return nil // it has not started: all its output is still to come
		}
		if err != nil {
			return err
		}
		r.Attempt, r.Offset = end.Attempt, end.Next
		if int64(text.Len()) >= end.Next || bytes.Count(text.Bytes(), []byte{'\n'}) > n {
			break // the log is no longer than this, or enough lines were found
		}
	}
	_, err := out.Write(tail(text.Bytes(), n))
	return err
}

// tail returns the last n lines of text; the last may be incomplete.
func tail(text []byte, n int) []byte {
	from := len(text)
	for range n {
		if from == 0 {
			break
		}
		from = bytes.LastIndexByte(text[:from-1], '\n') + 1
	}
	return text[from:]
}

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

// noOutput returns why a job or task in this state, without a known start, has no output; nil if it may have started.
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
