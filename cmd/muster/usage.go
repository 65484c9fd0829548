package main

// The verb that shows what jobs have held, and how much of it they have used.

import (
	"cmp"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/musterhq/muster/api"
	"github.com/musterhq/muster/cmd/muster/table"
)

// usageAtOnce is how many jobs are asked about at a time.
const usageAtOnce = 8

func (v watchVerbs) usageCommand() *cli.Command {
	return &cli.Command{
		Name: "usage", Usage: "show what jobs have held, and how much of it they have used",
		Description: "Jobs that were submitted in the last day, or since --since, and have run. CPU and GPU are the part of the CPUs and GPUs\n" +
			"held that was used, as far as it is known: it is not of tasks that run, or that ended before they were measured.\n" +
			"Of a task that ran several times the newest attempt counts. A day is that of the end of a job, or today.",
		Flags: listFlags(
			&cli.StringFlag{Name: "by", Usage: "one row for each `GROUP`: job, user, project or day", Value: "job"},
			&cli.StringFlag{Name: "user", Aliases: []string{"u"}, Usage: "only jobs of `USER`"},
			&cli.BoolFlag{Name: "me", Usage: "only your own jobs", DisableDefaultText: true},
			&cli.StringFlag{Name: "project", Usage: "only jobs of `PROJECT`"},
			&cli.StringFlag{Name: "since", Usage: "only jobs submitted in the last `D`, such as 7d, or since a time such as 08:00 or 2026-12-01", Value: "24h"},
			&cli.BoolFlag{Name: "csv", Usage: "print the columns as CSV; what is not known is empty, and what would be a formula has an apostrophe before it", DisableDefaultText: true}),
		Action: v.usage,
	}
}

// usageRow is a row of the listing.
type usageRow struct {
	Schema string `json:"schema"`
	Group  string `json:"group"`
	Jobs   int    `json:"jobs"`
	Name   string `json:"name,omitempty"` // of a job, as the next
	User   string `json:"user,omitempty"`
	api.Sums
}

// usageGroups are the groups of --by: how each is called for a job.
var usageGroups = map[string]func(u *api.JobUsage) string{
	"job":     func(u *api.JobUsage) string { return string(u.Job) },
	"user":    func(u *api.JobUsage) string { return u.User },
	"project": func(u *api.JobUsage) string { return dash(u.Project) },
	"day": func(u *api.JobUsage) string {
		end := time.Now()
		if u.EndedAt != nil {
			end = *u.EndedAt
		}
		return end.Local().Format(time.DateOnly)
	},
}

func (v watchVerbs) usage(c *cli.Context) error {
	if err := wantArgs(c, 0, 0, "no argument"); err != nil {
		return err
	}
	by := c.String("by")
	group := usageGroups[by]
	if group == nil {
		return usagef("--by %q: want job, user, project or day", by)
	}
	if c.Bool("me") && c.IsSet("user") {
		return usagef("--me: not with --user")
	}
	if c.Bool("csv") && (c.Bool("json") || c.Bool("jsonl") || c.Bool("quiet") || c.IsSet("format")) {
		return usagef("--csv: not with another form")
	}
	since, err := sinceOf(c.String("since"), time.Now())
	if err != nil {
		return usagef("--since: %w", err)
	}
	view, err := viewOf(v.streams, c, same(usageColumns(by)))
	if err != nil {
		return err
	}
	client, err := clientOf(c)
	if err != nil {
		return err
	}
	defer client.Close()
	chosen := jobChoice{JobFilter: api.JobFilter{User: c.String("user"), Mine: c.Bool("me")}, since: since}
	all, partial, err := usageOf(c.Context, client, chosen)
	if err != nil {
		return asUsage(err)
	}
	if c.IsSet("project") {
		all = slices.DeleteFunc(all, func(u api.JobUsage) bool { return u.Project != c.String("project") })
	}
	l := api.Listing[usageRow]{Schema: "muster.usages/v1", Items: grouped(all, by, group), Partial: partial}
	if c.Bool("csv") {
		return printCSV(view, l)
	}
	return view.print(l)
}

// usageOf returns what the chosen jobs have held and used, the newest first, and the nodes that did not answer. Jobs
// that never ran are left out.
func usageOf(ctx context.Context, client *api.Client, chosen jobChoice) (all []api.JobUsage, partial []string, err error) {
	a := usageAsker{client: client, silent: map[string]bool{}}
	for l, err := range chosen.pages(ctx, client, 0) {
		if err != nil {
			return nil, nil, err
		}
		for _, name := range l.Partial { // the listing has the last known state of its jobs
			a.setSilent(name)
		}
		ran := slices.DeleteFunc(l.Items, func(j api.Job) bool { return j.StartedAt == nil })
		page, err := a.ask(ctx, ran)
		if err != nil {
			return nil, nil, err
		}
		all = append(all, page...)
	}
	partial = slices.AppendSeq([]string{}, maps.Keys(a.silent))
	slices.Sort(partial)
	return all, partial, nil
}

// usageAsker asks for the usage of jobs. If an owner does not answer, it is not asked for its other jobs, because each
// would wait as long.
type usageAsker struct {
	client *api.Client

	mu     sync.Mutex
	silent map[string]bool // guarded by mu: names of owners
}

// ask returns, in order, the usage of the jobs whose owners answer.
func (a *usageAsker) ask(ctx context.Context, jobs []api.Job) (all []api.JobUsage, err error) {
	answers, errs := make([]*api.JobUsage, len(jobs)), make([]error, len(jobs))
	slots := make(chan struct{}, usageAtOnce)
	var wg sync.WaitGroup
	for i := range jobs {
		slots <- struct{}{}
		wg.Go(func() {
			answers[i], errs[i] = a.one(ctx, &jobs[i])
			<-slots
		})
	}
	wg.Wait()
	for i, u := range answers {
		if errs[i] != nil {
			return nil, errs[i]
		}
		if u != nil {
			all = append(all, *u)
		}
	}
	return all, nil
}

// one returns the usage of a job; nil: its owner is silent, or it was deleted meanwhile.
func (a *usageAsker) one(ctx context.Context, j *api.Job) (*api.JobUsage, error) {
	owner := ownerOf(*j)
	if a.isSilent(owner) {
		return nil, nil //nolint:nilnil // as said above
	}
	u, err := a.client.JobUsage(ctx, j.ID)
	switch {
	case err == nil:
		return &u, nil
	case errors.Is(err, api.ErrNotFound):
	case errors.Is(err, api.ErrUnavailable):
		a.setSilent(owner)
	default:
		return nil, fmt.Errorf("usage of job %s: %w", j.ID, err)
	}
	return nil, nil //nolint:nilnil // as said above
}

func (a *usageAsker) isSilent(owner string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.silent[owner]
}

func (a *usageAsker) setSilent(owner string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.silent[owner] = true
}

// grouped adds up jobs. Groups other than jobs come in the order of their names.
func grouped(all []api.JobUsage, by string, group func(u *api.JobUsage) string) []usageRow {
	rows, at := []usageRow{}, map[string]int{}
	for i := range all {
		u := &all[i]
		name := group(u)
		k, there := at[name]
		if !there {
			k = len(rows)
			at[name] = k
			rows = append(rows, usageRow{Schema: "muster.usage/v1", Group: name})
		}
		rows[k].Jobs++
		rows[k].Sums = rows[k].Plus(u.Sums)
		if by == "job" {
			rows[k].Name, rows[k].User = u.Name, u.User
		}
	}
	if by != "job" {
		slices.SortFunc(rows, func(a, b usageRow) int { return cmp.Compare(a.Group, b.Group) })
	}
	return rows
}

// usageColumns returns the columns of a listing with a row for each group.
func usageColumns(by string) table.Columns[usageRow] {
	figure := func(name, help string, level table.Level, of func(usageRow) *float64, text func(float64) string) table.Column[usageRow] {
		return table.Column[usageRow]{Name: name, Help: help, Level: level, Cell: func(u usageRow) string {
			if x := of(u); x != nil {
				return text(*x)
			}
			return "-"
		}, Order: table.By(func(u usageRow) float64 {
			if x := of(u); x != nil {
				return *x
			}
			return -1
		})}
	}
	always := func(of func(usageRow) float64) func(usageRow) *float64 {
		return func(u usageRow) *float64 { x := of(u); return &x }
	}
	count := func(n float64) string { return strconv.Itoa(int(n)) }
	headed := func(head string, c table.Column[usageRow]) table.Column[usageRow] {
		c.Head = head
		return c
	}
	ofJob, ofGroup := table.Usual, table.Chosen
	if by != "job" {
		ofJob, ofGroup = table.Chosen, table.Usual
	}
	return table.Columns[usageRow]{
		{Name: by, Help: "the " + by, IsKey: true, Cell: func(u usageRow) string { return u.Group }},
		{Name: "name", Help: "the name of the job", Level: ofJob, Least: 6, Cell: func(u usageRow) string { return dash(u.Name) }},
		{Name: "owner", Head: "USER", Help: "who submitted the job", Level: ofJob, Least: 4, Cell: func(u usageRow) string { return dash(u.User) }},
		figure("jobs", "how many jobs", ofGroup, always(func(u usageRow) float64 { return float64(u.Jobs) }), count),
		figure("tasks", "how many of their tasks have run", min(ofGroup, table.Wide), always(func(u usageRow) float64 { return float64(u.Tasks) }), count),
		figure("measured", "of how many of these tasks the use is known", table.Wide, always(func(u usageRow) float64 { return float64(u.Measured) }), count),
		headed("CPU-H", figure("cpu-hours", "CPUs held, times hours", 0, always(func(u usageRow) float64 { return u.HeldCPU }), hours)),
		figure("cpu", "the part of them that was used", 0, func(u usageRow) *float64 { return part(u.UsedCPU, u.KnownCPU) }, percent),
		figure("memory", "the greatest use of memory by one task", 0, func(u usageRow) *float64 { return u.MemoryPeak }, bytesText),
		headed("GPU-H", figure("gpu-hours", "GPUs held, times hours", 0, always(func(u usageRow) float64 { return u.HeldGPU }), hours)),
		figure("gpu", "the part of them that was used", 0, func(u usageRow) *float64 { return part(u.UsedGPU, u.KnownGPU) }, percent),
		figure("read", "bytes read from disks", table.Wide, func(u usageRow) *float64 { return u.Read }, bytesText),
		figure("written", "bytes written to disks", table.Wide, func(u usageRow) *float64 { return u.Written }, bytesText),
	}
}

// part returns which part of what was held was used; nil: not known.
func part(used *float64, held float64) *float64 {
	if used == nil || held <= 0 {
		return nil
	}
	x := *used / held
	return &x
}

// csvCell returns a cell of a table for CSV. An unknown value is empty, and no cell looks like a formula that a
// spreadsheet would compute.
func csvCell(cell string) string {
	switch {
	case cell == "-":
		return ""
	case strings.IndexAny(cell, "=+-@") == 0:
		return "'" + cell
	}
	return cell
}

// printCSV prints the chosen columns as CSV.
func printCSV(v view[usageRow], l api.Listing[usageRow]) error {
	columns, err := v.shown(v.all(nil))
	if err != nil {
		return err
	}
	if v.sort != "" {
		order, err := v.all(nil).Sorter(v.sort)
		if err != nil {
			return err
		}
		slices.SortStableFunc(l.Items, order)
	}
	if v.limit > 0 {
		l.Items = l.Items[:min(v.limit, len(l.Items))]
	}
	w := csv.NewWriter(v.out)
	line := make([]string, len(columns))
	for i, c := range columns {
		line[i] = c.Name
	}
	lines := [][]string{slices.Clone(line)}
	for _, u := range l.Items {
		for i, c := range columns {
			line[i] = csvCell(printable(c.Cell(u)))
		}
		lines = append(lines, slices.Clone(line))
	}
	if err := w.WriteAll(lines); err != nil {
		return err
	}
	if len(l.Partial) > 0 {
		fmt.Fprintf(v.err, "muster: no answer from %s: their jobs are missing\n", strings.Join(l.Partial, ", "))
	}
	return nil
}
