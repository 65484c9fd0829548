package main

// The story of one job: what has happened to it and to its tasks.

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/musterhq/muster/api"
	"github.com/musterhq/muster/cmd/muster/table"
	"github.com/musterhq/muster/job"
)

// story prints the story of the job that the argument names, page by page.
func (v watchVerbs) story(c *cli.Context) error {
	for _, flag := range []string{"follow", "since", "kind", "user", "node", "job"} {
		if c.IsSet(flag) {
			return usagef("--%s is for the events of the cluster, and %q is a job; give one of them", flag, c.Args().First())
		}
	}
	view, err := viewOf(v.streams, c, same(storyColumns(job.Layout{})))
	if err != nil {
		return err
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
	layout, _ := j.Layout() // without one, tasks have their numbers
	view.all = same(storyColumns(layout))
	p, err := view.printer(nil)
	if err != nil {
		return err
	}
	filter := api.TaskFilter{Tasks: tasks}
	for {
		l, err := client.Story(c.Context, j.ID, filter)
		if err != nil {
			return asUsage(err)
		}
		more, err := p.add(l.Items)
		if err != nil {
			return err
		}
		if filter.Cursor = l.Next; filter.Cursor == "" || !more {
			return p.end(api.Listing[api.JobEvent]{Schema: api.SchemaJobEvents, Partial: []string{}})
		}
	}
}

// storyColumns returns the columns of an event of a job with these tasks.
func storyColumns(l job.Layout) table.Columns[api.JobEvent] {
	type event = api.JobEvent
	task := func(e event) string {
		if e.Task == nil {
			return "-"
		}
		return l.Name(*e.Task)
	}
	return table.Columns[event]{
		{Name: "time", Help: "when it was", Cell: storyTime, Order: byTime(func(e event) *time.Time { return e.At })},
		{Name: "task", Help: "the number of the task", IsKey: true, Cell: task, Order: table.By(taskOrder)},
		{Name: "attempt", Help: "the number of the attempt", Cell: storyAttempt, Order: table.By(func(e event) int { return e.Attempt })},
		{Name: "event", Help: "submitted, placed, started, ended, held, released, cancelled, requeued, or omitted: not known any more", Cell: func(e event) string { return string(e.Kind) }},
		{Name: "state", Help: "how the attempt or the job has ended", Level: table.Chosen, Cell: func(e event) string { return dash(string(e.State)) }},
		{Name: "node", Help: "where it was placed", Level: table.Chosen, Least: 6, Cell: func(e event) string { return dash(e.Node) }},
		{Name: "exit", Help: "the exit code of the process", Level: table.Chosen, Cell: storyExit},
		{Name: "what", Help: "where, by whom, or how it ended, and why", Least: 10, Cell: func(e event) string { return dash(storyText(e)) }},
	}
}

func taskOrder(e api.JobEvent) int {
	if e.Task == nil {
		return -1
	}
	return *e.Task
}

func storyTime(e api.JobEvent) string {
	if e.At == nil {
		return "-"
	}
	return e.At.Local().Format("2006-01-02 15:04:05.000")
}

func storyAttempt(e api.JobEvent) string {
	if e.Attempt == 0 {
		return "-"
	}
	return strconv.Itoa(e.Attempt)
}

func storyExit(e api.JobEvent) string {
	if e.ExitCode == nil {
		return "-"
	}
	return strconv.Itoa(*e.ExitCode)
}

// storyText returns what the other columns do not say.
func storyText(e api.JobEvent) string {
	var parts []string
	add := func(given bool, text string) {
		if given {
			parts = append(parts, text)
		}
	}
	add(e.User != "", "by "+e.User)
	add(e.Count > 0, strconv.Itoa(e.Count))
	add(e.Kind == api.StoryEnded, string(e.State))
	add(e.Node != "" && e.Kind != api.StoryEnded, "on "+e.Node)
	add(e.Node != "" && e.Kind == api.StoryEnded && e.State == job.NodeFail, "on "+e.Node)
	add(e.Tasks != "", "tasks "+e.Tasks)
	switch {
	case e.Signal > 0:
		parts = append(parts, fmt.Sprintf("signal %d", e.Signal))
	case e.ExitCode != nil && *e.ExitCode != 0:
		parts = append(parts, fmt.Sprintf("exit code %d", *e.ExitCode))
	}
	add(e.Reason != "", e.Reason)
	return strings.Join(parts, ", ")
}
