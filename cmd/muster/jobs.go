package main

// The verbs that ask about jobs and end them.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/musterhq/muster/api"
	"github.com/musterhq/muster/job"
)

func (e env) jobsCommand() *cli.Command {
	return &cli.Command{
		Name: "jobs", Aliases: []string{"ps", "ls", "list", "queue"}, Usage: "list jobs of the whole cluster",
		Flags: listFlags(
			&cli.BoolFlag{Name: "all", Usage: "also those that have ended"},
			&cli.StringFlag{Name: "state", Usage: "only these `STATES`, such as PD,R"},
			&cli.StringFlag{Name: "user", Usage: "only those of `USER`"},
			&cli.StringFlag{Name: "name", Usage: "only those whose name matches `GLOB`"},
			&cli.BoolFlag{Name: "watch", Aliases: []string{"w"}, Usage: "print again on every change"}),
		Action: e.jobs,
	}
}

func (e env) jobs(c *cli.Context) error {
	if err := wantArgs(c, 0, 0, "no argument"); err != nil {
		return err
	}
	filter := api.JobFilter{User: c.String("user"), Name: c.String("name")}
	for _, text := range list(c.String("state")) {
		s, err := job.ParseState(text)
		if err != nil {
			return usageError{err}
		}
		filter.States = append(filter.States, s)
	}
	if len(filter.States) == 0 && !c.Bool("all") {
		for _, s := range job.States() {
			if !s.Ended() {
				filter.States = append(filter.States, s)
			}
		}
	}
	client, err := e.client(c)
	if err != nil {
		return err
	}
	defer client.Close()
	if !c.Bool("watch") {
		return e.printJobs(c, client, filter)
	}
	const atMost = 200 * time.Millisecond // between two screens
	for ev, err := range client.Events(c.Context, api.EventFilter{}) {
		if err != nil {
			return err
		}
		if ev.Kind != api.EventOpen && ev.Kind != api.EventJob {
			continue
		}
		if err := e.printJobs(c, client, filter); err != nil {
			return err
		}
		fmt.Fprintln(e.out)
		pause(c.Context, atMost)
	}
	return nil
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

func (e env) printJobs(c *cli.Context, client *api.Client, filter api.JobFilter) error {
	all, err := client.Jobs(c.Context, filter)
	if err != nil {
		return asUsage(err)
	}
	for next := all.Next; next != ""; {
		filter.Cursor = next
		more, err := client.Jobs(c.Context, filter)
		if err != nil {
			return err
		}
		all.Items, next = append(all.Items, more.Items...), more.Next
	}
	all.Next = ""
	return printList(e, c, all, func(w io.Writer, jobs []api.Job) {
		fmt.Fprintln(w, "ID\tNAME\tUSER\tST\tTIME\tNODE\tGPUS\tREASON")
		for _, j := range jobs {
			node, gpus := "", 0
			for _, t := range j.Tasks {
				node, gpus = t.Node, gpus+len(t.GPUs)
			}
			if gpus == 0 {
				gpus = j.Resources.GPUs
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%d\t%s\n", j.ID, dash(j.Name), j.User, j.State.Code(), elapsed(j.StartedAt, j.EndedAt), dash(node), gpus, dash(j.Reason))
		}
	})
}

func (e env) showCommand() *cli.Command {
	return &cli.Command{
		Name: "show", Aliases: []string{"info", "describe", "inspect"}, Usage: "everything about a job", ArgsUsage: "ID",
		Flags: clientFlags(&cli.BoolFlag{Name: "json", Usage: "one JSON document"}),
		Action: func(c *cli.Context) error {
			j, err := e.one(c)
			if err != nil {
				return err
			}
			if c.Bool("json") {
				return e.printJSON(j)
			}
			return e.show(j)
		},
	}
}

// one is the single job that a verb's argument names.
func (e env) one(c *cli.Context) (api.Job, error) {
	if err := wantArgs(c, 1, 1, "one job id"); err != nil {
		return api.Job{}, err
	}
	client, err := e.client(c)
	if err != nil {
		return api.Job{}, err
	}
	defer client.Close()
	jobs, _, err := client.Resolve(c.Context, c.Args().First())
	if err != nil {
		return api.Job{}, asUsage(err)
	}
	if len(jobs) != 1 {
		return api.Job{}, usagef("%s: %q means %d jobs; name one", c.Command.Name, c.Args().First(), len(jobs))
	}
	return jobs[0], nil
}

func (e env) show(j api.Job) error {
	w := tabwriter.NewWriter(e.out, 0, 0, 2, ' ', 0)
	row := func(k, v string) { fmt.Fprintf(w, "%s\t%s\n", k, v) }
	row("job", string(j.ID))
	row("name", dash(j.Name))
	row("user", j.User)
	state := string(j.State)
	if j.Reason != "" {
		state += " (" + withDetail(j.Reason, j.ReasonDetail) + ")"
	}
	row("state", state)
	if j.ExitCode != nil {
		row("exit code", fmt.Sprint(*j.ExitCode))
	}
	row("command", commandOf(j.Spec))
	row("asks for", needOf(j))
	row("priority", fmt.Sprint(j.Priority))
	row("submitted", clock(&j.SubmittedAt))
	row("started", clock(j.StartedAt))
	row("ended", clock(j.EndedAt))
	row("elapsed", elapsed(j.StartedAt, j.EndedAt))
	row("owner", fmt.Sprintf("%s, kept in %d %s", j.Owner, j.Copies, plural(j.Copies, "copy", "copies")))
	for _, t := range j.Tasks {
		if t.Attempt == 0 {
			continue
		}
		row(fmt.Sprintf("task %d", t.Task), fmt.Sprintf("attempt %d on %s (%s), pid %d", t.Attempt, dash(t.Node), t.NodeID, t.PID))
		for _, g := range t.GPUs {
			row("", "gpu "+g)
		}
		if t.StderrTail != "" && j.State.Ended() && j.State != job.Succeeded {
			for _, line := range strings.Split(strings.TrimRight(t.StderrTail, "\n"), "\n") {
				row("", "stderr: "+printable(line))
			}
		}
	}
	return w.Flush()
}

// printable takes what could steer a terminal out of a task's words.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 {
			return '·'
		}
		return r
	}, s)
}

func plural(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}

func commandOf(s job.Spec) string {
	if s.Script != "" {
		return fmt.Sprintf("a script of %d lines", strings.Count(s.Script, "\n")+1)
	}
	return printable(strings.Join(s.Command, " "))
}

func needOf(j api.Job) string {
	r := j.Resources
	parts := []string{fmt.Sprintf("%d %s", r.CPUs, plural(r.CPUs, "cpu", "cpus"))}
	if r.Memory > 0 {
		parts = append(parts, size(r.Memory)+" memory")
	}
	if r.GPUs > 0 {
		parts = append(parts, strings.TrimSpace(fmt.Sprintf("%d %s %s", r.GPUs, r.GPUModel, plural(r.GPUs, "gpu", "gpus"))))
	}
	if r.GPUShare > 0 {
		parts = append(parts, fmt.Sprintf("%g of a gpu", r.GPUShare))
	}
	if r.GPUMemory > 0 {
		parts = append(parts, size(r.GPUMemory)+" on each")
	}
	if j.TimeLimit > 0 {
		parts = append(parts, "at most "+time.Duration(j.TimeLimit*float64(time.Second)).String())
	}
	return strings.Join(parts, ", ")
}

func (e env) whyCommand() *cli.Command {
	return &cli.Command{
		Name: "why", Usage: "what stands between a job and its start", ArgsUsage: "ID",
		Flags: clientFlags(&cli.BoolFlag{Name: "json", Usage: "one JSON document"}),
		Action: func(c *cli.Context) error {
			j, err := e.one(c)
			if err != nil {
				return err
			}
			client, err := e.client(c)
			if err != nil {
				return err
			}
			defer client.Close()
			x, err := client.Why(c.Context, j.ID)
			if err != nil {
				return err
			}
			if c.Bool("json") {
				return e.printJSON(x)
			}
			return e.explain(x)
		},
	}
}

// selected is the jobs that the arguments of a verb name.
func (e env) selected(c *cli.Context, client *api.Client) ([]api.Job, error) {
	if err := wantArgs(c, 1, -1, "a job id, last or all"); err != nil {
		return nil, err
	}
	var all []api.Job
	for _, arg := range c.Args().Slice() {
		jobs, _, err := client.Resolve(c.Context, arg)
		if err != nil {
			return nil, asUsage(err)
		}
		all = append(all, jobs...)
	}
	return all, nil
}

func (e env) waitCommand() *cli.Command {
	return &cli.Command{
		Name: "wait", Usage: "wait for jobs to end; exits with the highest of their codes", ArgsUsage: "SEL...",
		Flags: clientFlags(&cli.StringFlag{Name: "timeout", Usage: "give up after `D`"}),
		Action: func(c *cli.Context) error {
			ctx := c.Context
			if text := c.String("timeout"); text != "" {
				d, err := job.ParseDuration(text)
				if err != nil {
					return usagef("--timeout: %w", err)
				}
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, d.D())
				defer cancel()
			}
			client, err := e.client(c)
			if err != nil {
				return err
			}
			defer client.Close()
			jobs, err := e.selected(c, client)
			if err != nil {
				return ours(err)
			}
			ids := make([]job.ID, 0, len(jobs))
			for _, j := range jobs {
				ids = append(ids, j.ID)
			}
			return e.waitFor(ctx, client, ids)
		},
	}
}

func (e env) cancelCommand() *cli.Command {
	return &cli.Command{
		Name: "cancel", Aliases: []string{"kill", "stop"}, Usage: "end jobs", ArgsUsage: "SEL...",
		Flags: clientFlags(&cli.StringFlag{Name: "reason", Usage: "why, for those who look later"}),
		Action: func(c *cli.Context) error {
			client, err := e.client(c)
			if err != nil {
				return err
			}
			defer client.Close()
			jobs, err := e.selected(c, client)
			if err != nil {
				return err
			}
			var failed []error
			for _, j := range jobs {
				if _, err := client.Cancel(c.Context, j.ID, c.String("reason")); err != nil {
					failed = append(failed, fmt.Errorf("cancel %s: %w", j.ID, err))
				}
			}
			return errors.Join(failed...)
		},
	}
}

func (e env) logsCommand() *cli.Command {
	return &cli.Command{
		Name: "logs", Aliases: []string{"tail"}, Usage: "the output of a job", ArgsUsage: "ID",
		Flags: clientFlags(
			&cli.BoolFlag{Name: "follow", Aliases: []string{"f"}, Usage: "until it ends"},
			&cli.IntFlag{Name: "lines", Aliases: []string{"n"}, Usage: "only the last `N` lines", Value: -1},
			&cli.BoolFlag{Name: "stderr", Usage: "its errors instead"},
			&cli.IntFlag{Name: "task", Usage: "of task `T`"},
			&cli.BoolFlag{Name: "all", Usage: "of all tasks, each line with its task in front (not yet in this version)"}),
		Action: e.logs,
	}
}

func (e env) logs(c *cli.Context) error {
	if c.Bool("all") {
		return usagef("--all: %w", job.ErrNotYet)
	}
	j, err := e.one(c)
	if err != nil {
		return err
	}
	client, err := e.client(c)
	if err != nil {
		return err
	}
	defer client.Close()
	r := api.LogRequest{Job: j.ID, Task: c.Int("task"), Follow: c.Bool("follow")}
	if c.Bool("stderr") {
		r.Stream = "stderr"
	}
	if n := c.Int("lines"); n >= 0 {
		if err := e.lastLines(c.Context, client, &r, n); err != nil || !r.Follow {
			return err
		}
	}
	_, err = client.Logs(c.Context, r, e.out)
	if errors.Is(err, context.Canceled) {
		return exitError{code: exitSignal + 2}
	}
	return asUsage(err)
}

// tailBytes bounds the end of a log in which the last lines are looked for.
const tailBytes = 8 << 20

// lastLines prints the last n lines that are there now, and leaves in r where
// they end.
func (e env) lastLines(ctx context.Context, client *api.Client, r *api.LogRequest, n int) error {
	once := *r
	once.Follow, once.Offset = false, -tailBytes
	var text strings.Builder
	end, err := client.Logs(ctx, once, &text)
	if err != nil {
		return err
	}
	r.Attempt, r.Offset = end.Attempt, end.Next
	s := text.String()
	from := len(s)
	for i := 0; i <= n && from > 0; i++ {
		if i == n {
			break
		}
		cut := strings.LastIndexByte(strings.TrimSuffix(s[:from], "\n"), '\n')
		from = cut + 1
	}
	_, err = io.WriteString(e.out, s[from:])
	return err
}
