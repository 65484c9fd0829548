package main

// The verb that lists jobs, and the line about waiting times that goes with the list of waiting jobs.

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/musterhq/muster/api"
	"github.com/musterhq/muster/job"
)

func (v jobVerbs) jobsCommand() *cli.Command {
	return &cli.Command{
		Name: "jobs", Aliases: []string{"ps", "ls", "list", "queue"}, Usage: "list jobs of the whole cluster, the newest first",
		Flags: listFlags(
			&cli.BoolFlag{Name: "all", Aliases: []string{"a"}, Usage: "also list jobs that have ended", DisableDefaultText: true},
			&cli.StringFlag{Name: "state", Aliases: []string{"t"}, Usage: "only jobs in `STATES`, such as PD,R"},
			&cli.StringFlag{Name: "user", Aliases: []string{"u"}, Usage: "only jobs of `USER`"},
			&cli.BoolFlag{Name: "me", Usage: "only your own jobs", DisableDefaultText: true},
			&cli.StringFlag{Name: "name", Usage: "only jobs whose name matches `GLOB`"},
			sinceFlag("only jobs that were submitted"),
			&cli.BoolFlag{Name: "start", Usage: "list waiting jobs, and when each should start; on stderr, how long the jobs waited that started in the last hour", DisableDefaultText: true},
			watchFlag("redraw on every change; without a terminal, print a line for each job that changes")),
		Action: v.jobs,
	}
}

func (v jobVerbs) jobs(c *cli.Context) error {
	if err := wantArgs(c, 0, 0, "no argument"); err != nil {
		return err
	}
	view, err := viewOf(v.streams, c, same(jobColumns(c.Bool("start"))))
	if err != nil {
		return err
	}
	chosen, err := jobFilter(c)
	if err != nil {
		return err
	}
	client, err := clientOf(c)
	if err != nil {
		return err
	}
	defer client.Close()
	if !c.Bool("watch") {
		err := asUsage(chosen.list(c.Context, client, view))
		if err == nil && c.Bool("start") && view.form == formTable {
			if text := waited(c.Context, client); text != "" {
				fmt.Fprintln(v.err, printable(text))
			}
		}
		return err
	}
	clocks := &ownerClocks{}
	return asUsage(watched[api.Job]{
		view: view, key: func(j api.Job) string { return string(j.ID) }, look: lookOfJob,
		fetch: func(ctx context.Context, rows int) (api.Listing[api.Job], error) {
			l, err := chosen.fetch(ctx, client, rows)
			clocks.learn(l.Items)
			return l, err
		},
		again: func(ctx context.Context, id string) (api.Job, bool) {
			j, err := client.Job(ctx, job.ID(id))
			return j, err == nil
		},
		over:   api.Job.Ended,
		follow: func(ctx context.Context, n news[api.Job]) error { return chosen.follow(ctx, client, n, clocks) },
	}.run(c.Context))
}

// jobChoice is which jobs the flags choose.
type jobChoice struct {
	api.JobFilter

	since time.Time
	any   bool // changes of jobs in any state are reported, unless --state names some
}

// jobFilter returns what the flags choose.
func jobFilter(c *cli.Context) (f jobChoice, err error) {
	f.JobFilter = api.JobFilter{User: c.String("user"), Name: c.String("name"), Mine: c.Bool("me")}
	if err := onlyMe(c); err != nil {
		return f, err
	}
	if f.since, err = sinceOf(c.String("since"), time.Now()); err != nil {
		return f, usagef("--since: %w", err)
	}
	for _, text := range list(c.String("state")) {
		s, err := job.ParseState(text)
		if err != nil {
			return f, usageError{err}
		}
		f.States = append(f.States, s)
	}
	if c.Bool("start") && (c.Bool("all") || len(f.States) > 0) {
		return f, usagef("--start lists waiting jobs; leave out --all and --state")
	}
	if c.Bool("start") {
		f.States = []job.State{job.Pending}
	}
	if f.any = len(f.States) == 0; f.any && !c.Bool("all") {
		for _, s := range job.States() {
			if !s.Ended() {
				f.States = append(f.States, s)
			}
		}
	}
	return f, nil
}

// list prints the jobs page by page, so that the first rows come at once.
func (f jobChoice) list(ctx context.Context, client *api.Client, v view[api.Job]) error {
	p, err := v.printer(nil)
	if err != nil {
		return err
	}
	rows := v.limit
	if v.sort != "" {
		rows = 0 // the first rows are known only when all jobs are
	}
	whole := api.Listing[api.Job]{Schema: api.SchemaJobs, Items: []api.Job{}, Partial: []string{}}
	for l, err := range f.pages(ctx, client, rows) {
		if err != nil {
			return err
		}
		whole.Partial = append(whole.Partial, l.Partial...)
		if more, err := p.add(l.Items); err != nil {
			return err
		} else if !more {
			break
		}
	}
	slices.Sort(whole.Partial)
	whole.Partial = slices.Compact(whole.Partial)
	return p.end(whole)
}

// pages yields the chosen jobs, the newest first; rows is how many are needed, or 0.
func (f jobChoice) pages(ctx context.Context, client *api.Client, rows int) func(func(api.Listing[api.Job], error) bool) {
	filter := f.JobFilter
	if rows > 0 && rows < largestPage {
		filter.Limit = rows
	}
	return func(yield func(api.Listing[api.Job], error) bool) {
		for l, err := range client.JobPages(ctx, filter) {
			n := len(l.Items)
			l.Items = slices.DeleteFunc(l.Items, func(j api.Job) bool { return f.before(j) })
			if !yield(l, err) || n > 0 && len(l.Items) == 0 { // all further pages are older
				return
			}
		}
	}
}

// largestPage is how many jobs a daemon sends at a time.
const largestPage = 1000

// fetch returns the newest of the chosen jobs: at least this number of rows, if there are as many; 0: all.
func (f jobChoice) fetch(ctx context.Context, client *api.Client, rows int) (all api.Listing[api.Job], err error) {
	for l, err := range f.pages(ctx, client, rows) {
		if err != nil {
			return all, err
		}
		all.Items, all.Partial, all.Next = append(all.Items, l.Items...), append(all.Partial, l.Partial...), l.Next
		if rows > 0 && len(all.Items) >= rows {
			break
		}
	}
	slices.Sort(all.Partial)
	all.Partial = slices.Compact(all.Partial)
	return all, nil
}

// follow reports changes of the chosen jobs, including their ends.
func (f jobChoice) follow(ctx context.Context, client *api.Client, n news[api.Job], clocks *ownerClocks) error {
	for ev, err := range client.Events(ctx, api.EventFilter{Mine: f.Mine}) {
		switch {
		case err != nil:
			return err
		case ev.Kind == api.EventOpen:
			n.stale()
		case ev.Kind == api.EventJob && ev.Job != nil:
			if j := clocks.told(*ev.Job); f.includes(j) {
				n.item(ctx, j)
			}
		}
	}
	return nil
}

// before reports whether a job was submitted before those that the flags choose.
func (f jobChoice) before(j api.Job) bool { return j.SubmittedAt.Add(-j.Ahead()).Before(f.since) }

// includes reports whether the flags choose a job. The job may have changed since it was listed.
func (f jobChoice) includes(j api.Job) bool {
	named, err := path.Match(f.Name, j.Name)
	return (f.User == "" || j.User == f.User) && (f.Name == "" || err == nil && named) && !f.before(j) &&
		(f.any || slices.Contains(f.States, j.State))
}

// lookOfJob returns the part of a job whose change is worth a line.
func lookOfJob(j api.Job) string {
	return string(j.State) + " " + reasonOf(j) + " " + placeOf(j) + " " + jobGPUs(j)
}

// waited returns how long the jobs that started in the last hour had waited. It is empty if that is not known, because
// the listing does not need it.
func waited(ctx context.Context, client *api.Client) string {
	s, err := client.Stats(ctx)
	if err != nil || s.Waits == nil {
		return ""
	}
	w := s.Waits
	if w.Started == 0 || w.P50 == nil || w.P95 == nil || w.Longest == nil {
		return "muster: no job has started in the last hour"
	}
	text := fmt.Sprintf("muster: the jobs that started in the last hour (%d) waited %s (median), %s (95th percentile), at most %s",
		w.Started, waitText(*w.P50), waitText(*w.P95), waitText(*w.Longest))
	if left := append(append([]string{}, s.Partial...), w.Partial...); len(left) > 0 {
		text += fmt.Sprintf("; not counting those of %s", strings.Join(left, ", "))
	}
	return text
}

// waitText writes a wait. The figures of daemons may be up to a tenth too high.
func waitText(seconds float64) string {
	d := time.Duration(min(max(seconds, 0), (100*365*24*time.Hour).Seconds()) * float64(time.Second))
	if d < time.Second {
		return "less than 1s"
	}
	return job.Duration(d.Round(time.Second)).String()
}

// ownerClocks remembers how far the clocks of the owners of jobs are ahead: listings report that, but events do not. Its methods are safe for concurrent use.
type ownerClocks struct {
	mu    sync.Mutex
	ahead map[job.Group]float64 // guarded by mu; in seconds, by the group of the jobs
}

func (o *ownerClocks) learn(listed []api.Job) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ahead == nil {
		o.ahead = map[job.Group]float64{}
	}
	for _, j := range listed {
		o.ahead[j.ID.Group()] = j.ClockAhead
	}
}

// told returns the job of an event, with ClockAhead filled in from earlier listings.
func (o *ownerClocks) told(j api.Job) api.Job {
	o.mu.Lock()
	defer o.mu.Unlock()
	j.ClockAhead = o.ahead[j.ID.Group()]
	return j
}
