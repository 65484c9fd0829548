package main

// The verbs that list jobs, wait for them and change them.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/musterhq/muster/api"
	"github.com/musterhq/muster/job"
)

func (v jobVerbs) jobsCommand() *cli.Command {
	return &cli.Command{
		Name: "jobs", Aliases: []string{"ps", "ls", "list", "queue"}, Usage: "list jobs of the whole cluster",
		Flags: listFlags(
			&cli.BoolFlag{Name: "all", Aliases: []string{"a"}, Usage: "also list jobs that have ended", DisableDefaultText: true},
			&cli.StringFlag{Name: "state", Aliases: []string{"t"}, Usage: "only jobs in `STATES`, such as PD,R"},
			&cli.StringFlag{Name: "user", Aliases: []string{"u"}, Usage: "only jobs of `USER`"},
			&cli.BoolFlag{Name: "me", Usage: "only your own jobs", DisableDefaultText: true},
			&cli.StringFlag{Name: "name", Usage: "only jobs whose name matches `GLOB`"},
			&cli.StringFlag{Name: "since", Usage: "only jobs submitted in the last `D`, such as 2h, or since a time such as 08:00 or 2026-12-01"},
			&cli.IntFlag{Name: "limit", Aliases: []string{"n"}, Usage: "only the newest `N` jobs", DefaultText: "all"},
			&cli.BoolFlag{Name: "quiet", Aliases: []string{"q"}, Usage: "print only ids", DisableDefaultText: true},
			&cli.BoolFlag{Name: "start", Usage: "list waiting jobs, and when each should start at the latest", DisableDefaultText: true},
			&cli.BoolFlag{Name: "wide", Usage: "also when each was submitted, its priority, its time limit and its exit code", DisableDefaultText: true},
			watchFlag("on every change")),
		Action: v.jobs,
	}
}

func (v jobVerbs) jobs(c *cli.Context) error {
	if err := wantArgs(c, 0, 0, "no argument"); err != nil {
		return err
	}
	filter, since, err := jobFilter(c)
	if err != nil {
		return err
	}
	client, err := clientOf(c)
	if err != nil {
		return err
	}
	defer client.Close()
	if !c.Bool("watch") {
		return v.printJobs(c, client, filter, since)
	}
	return v.watchJobs(c.Context, client, func() error { return v.printJobs(c, client, filter, since) })
}

// jobFilter returns what the flags choose.
func jobFilter(c *cli.Context) (filter api.JobFilter, since time.Time, err error) {
	filter = api.JobFilter{User: c.String("user"), Name: c.String("name"), Mine: c.Bool("me")}
	if c.IsSet("limit") && c.Int("limit") < 1 {
		return filter, since, usagef("--limit %d: must be at least 1", c.Int("limit"))
	}
	if c.Bool("me") && c.IsSet("user") {
		return filter, since, usagef("--me: not with --user")
	}
	if since, err = sinceOf(c.String("since"), time.Now()); err != nil {
		return filter, since, usagef("--since: %w", err)
	}
	for _, text := range list(c.String("state")) {
		s, err := job.ParseState(text)
		if err != nil {
			return filter, since, usageError{err}
		}
		filter.States = append(filter.States, s)
	}
	if c.Bool("start") && (c.Bool("all") || len(filter.States) > 0) {
		return filter, since, usagef("--start lists waiting jobs; leave out --all and --state")
	}
	if c.Bool("start") {
		filter.States = []job.State{job.Pending}
	}
	if len(filter.States) == 0 && !c.Bool("all") {
		for _, s := range job.States() {
			if !s.Ended() {
				filter.States = append(filter.States, s)
			}
		}
	}
	return filter, since, nil
}

// watchJobs prints now and whenever a job has changed, until ctx ends.
func (v jobVerbs) watchJobs(ctx context.Context, client *api.Client, show func() error) error {
	const atMost = 200 * time.Millisecond // between two updates of the screen
	changed, ended := make(chan struct{}, 1), make(chan error, 1)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		for ev, err := range client.Events(ctx, api.EventFilter{}) {
			if err != nil {
				ended <- err
				return
			}
			if ev.Kind != api.EventOpen && ev.Kind != api.EventJob {
				continue
			}
			select {
			case changed <- struct{}{}:
			default: // a redraw is pending already
			}
		}
	}()
	for first := true; ; first = false {
		select {
		case err := <-ended:
			return ignoreEnd(ctx, err)
		case <-changed:
		}
		if !first {
			fmt.Fprintln(v.out)
		}
		if err := show(); err != nil || !pause(ctx, atMost) {
			return ignoreEnd(ctx, err)
		}
	}
}

// ignoreEnd returns nil for a watch that the user ended.
func ignoreEnd(ctx context.Context, err error) error {
	select {
	case <-ctx.Done():
		return nil
	default:
		return err
	}
}

func (v jobVerbs) printJobs(c *cli.Context, client *api.Client, filter api.JobFilter, since time.Time) error {
	all, err := client.AllJobs(c.Context, filter)
	if err != nil {
		return asUsage(err)
	}
	all.Items = newest(all.Items, since, c.Int("limit"))
	if c.Bool("quiet") && !c.Bool("json") && !c.Bool("jsonl") {
		return printList(v.streams, c, all, idTable)
	}
	if c.Bool("start") {
		return printList(v.streams, c, all, startTable)
	}
	return printList(v.streams, c, all, func(w io.Writer, jobs []api.Job) { jobTable(w, jobs, c.Bool("wide")) })
}

// startTable lists waiting jobs with their estimated starts; - means that the start is not known, and the reason why.
func startTable(w io.Writer, jobs []api.Job) {
	row(w, "ID", "NAME", "USER", "ST", "START", "GPUS", "REASON")
	for _, j := range jobs {
		row(w, string(j.ID), dash(j.Name), j.User, j.State.Code(), clock(j.Estimated), gpusText(j, j.Resources.GPUs), dash(reasonOf(j)))
	}
}

func jobTable(w io.Writer, jobs []api.Job, wide bool) {
	cells := []string{"ID", "NAME", "USER", "ST", "TIME", "NODE", "GPUS"}
	if wide {
		cells = append(cells, "SUBMITTED", "PRIORITY", "LIMIT", "EXIT")
	}
	row(w, append(cells, "REASON")...)
	for _, j := range jobs {
		node, gpus, took := nodesOf(j), 0, elapsed(j.StartedAt, j.EndedAt)
		for _, t := range j.Tasks {
			gpus += len(t.GPUs)
		}
		if gpus == 0 {
			gpus = j.Resources.GPUs * max(1, j.Nodes, active(j))
		}
		if j.State == job.Pending || j.State == job.Held {
			node, took = "", "-" // they belong to an attempt that is over
		}
		cells := []string{string(j.ID), dash(j.Name), j.User, j.State.Code(), took, dash(node), gpusText(j, gpus)}
		if wide {
			limit, exit := "-", "-"
			if j.TimeLimit > 0 {
				limit = job.Duration(j.TimeLimit * float64(time.Second)).String()
			}
			if j.ExitCode != nil {
				exit = strconv.Itoa(*j.ExitCode)
			}
			cells = append(cells, clock(&j.SubmittedAt), strconv.Itoa(j.Priority), limit, exit)
		}
		row(w, append(cells, dash(reasonOf(j)))...)
	}
}

// gpusText says how many GPUs a job has or asks for, or which share of one each of its tasks.
func gpusText(j api.Job, whole int) string {
	if share := j.Resources.GPUShare; share > 0 {
		return strconv.FormatFloat(share, 'g', -1, 64)
	}
	return strconv.Itoa(whole)
}

// active returns the number of tasks that have resources.
func active(j api.Job) (n int) {
	for s, count := range j.Counts {
		if s.Active() {
			n += count
		}
	}
	return n
}

// progress tells how far a job of several tasks has come.
func progress(j api.Job) string {
	ended, failed := 0, 0
	for s, n := range j.Counts {
		if s.Ended() {
			ended += n
		}
		if s.Ended() && s != job.Succeeded && s != job.Cancelled {
			failed += n
		}
	}
	text := fmt.Sprintf("%d/%d done", ended, j.TaskCount)
	if failed > 0 {
		text += fmt.Sprintf(", %d failed", failed)
	}
	if n := j.Counts[job.Cancelled]; n > 0 {
		text += fmt.Sprintf(", %d cancelled", n)
	}
	return text
}

// reasonOf returns the reason of a job, or the exit code with which it failed. For a job of several tasks it returns how
// far it has come, for a gang only when some of its tasks have ended.
func reasonOf(j api.Job) string {
	reason := j.Reason
	if reason == "" && j.State == job.Failed && j.ExitCode != nil {
		reason = fmt.Sprintf("exit code %d", *j.ExitCode)
	}
	switch several := j.TaskCount > 1 && !isGang(j); {
	case several && (j.Reason == "" || j.Ended()):
		return progress(j)
	case several:
		return progress(j) + ", " + j.Reason
	case isGang(j) && reason == "" && !j.Ended() && j.Counts[job.Succeeded] > 0:
		return progress(j)
	}
	return reason
}

// chosen is a job that an argument names, and some of its tasks; none means all.
type chosen struct {
	api.Job
	tasks []job.Range
}

// selected returns the jobs that the arguments of a verb name.
func selected(c *cli.Context, client *api.Client) ([]chosen, error) {
	if err := wantArgs(c, 1, -1, "a job id, last or all"); err != nil {
		return nil, err
	}
	var all []chosen
	for _, arg := range c.Args().Slice() {
		some, err := selectedBy(c.Context, client, arg)
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
	}
	return all, nil
}

// selectedBy returns the jobs that one argument names.
func selectedBy(ctx context.Context, client *api.Client, arg string) ([]chosen, error) {
	jobs, sel, err := client.Resolve(ctx, arg)
	all := make([]chosen, 0, len(jobs))
	for _, j := range jobs {
		all = append(all, chosen{j, sel.Tasks})
	}
	return all, asUsage(err)
}

func (v jobVerbs) waitCommand() *cli.Command {
	return &cli.Command{
		Name: "wait", Usage: "wait for jobs or tasks to end, and exit with the highest of their codes", ArgsUsage: "SEL...",
		Flags:  clientFlags(&cli.StringFlag{Name: "timeout", Usage: "give up after `D`, such as 90s; the jobs go on"}),
		Action: v.wait,
	}
}

func (v jobVerbs) wait(c *cli.Context) error {
	ctx := c.Context
	if c.IsSet("timeout") {
		d, err := job.ParseDuration(c.String("timeout"))
		if err != nil {
			return usagef("--timeout: %w", err)
		}
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, d.D())
		defer cancel()
	}
	client, err := clientOf(c)
	if err != nil {
		return err
	}
	defer client.Close()
	jobs, err := selected(c, client)
	if err != nil {
		return ours(err)
	}
	return follower{v.streams, client}.waitFor(ctx, jobs)
}

func (v jobVerbs) cancelCommand() *cli.Command {
	return v.changeCommand("cancel", "cancel jobs or tasks", (*api.Client).Cancel,
		[]string{"kill", "stop"}, &cli.StringFlag{Name: "reason", Usage: "the reason, which muster show prints: `TEXT`"})
}

func (v jobVerbs) holdCommand() *cli.Command {
	return v.changeCommand("hold", "keep waiting jobs or tasks from starting", (*api.Client).Hold, nil)
}

func (v jobVerbs) releaseCommand() *cli.Command {
	return v.changeCommand("release", "release held jobs or tasks", (*api.Client).Release, nil)
}

func (v jobVerbs) requeueCommand() *cli.Command {
	return v.changeCommand("requeue", "run jobs or tasks again; those that run end first", (*api.Client).Requeue, nil,
		&cli.BoolFlag{Name: "failed", Usage: "only tasks that have ended without success", DisableDefaultText: true},
		&cli.StringFlag{Name: "reason", Usage: "the reason, for whoever follows a task that ends for it: `TEXT`"})
}

// changeCommand returns a verb that changes each job that it names.
func (v jobVerbs) changeCommand(verb, usage string, change func(*api.Client, context.Context, job.ID, api.Change) (api.Job, error), aliases []string, more ...cli.Flag) *cli.Command {
	return &cli.Command{
		Name: verb, Aliases: aliases, Usage: usage, ArgsUsage: "SEL...", Flags: clientFlags(more...),
		Action: func(c *cli.Context) error {
			client, err := clientOf(c)
			if err != nil {
				return err
			}
			defer client.Close()
			if err := wantArgs(c, 1, -1, "a job id, last or all"); err != nil {
				return err
			}
			var failed []error
			var jobs []chosen
			for _, arg := range c.Args().Slice() { // one that is wrong keeps none of the others
				some, err := selectedBy(c.Context, client, arg)
				if err != nil {
					failed = append(failed, err)
				}
				jobs = append(jobs, some...)
			}
			for _, j := range jobs {
				if _, err := change(client, c.Context, j.ID, api.Change{Tasks: j.tasks, Failed: c.Bool("failed"), Reason: c.String("reason")}); err != nil {
					failed = append(failed, fmt.Errorf("%s %s: %w", verb, j.ID, err))
				}
			}
			return asUsage(errors.Join(failed...))
		},
	}
}
