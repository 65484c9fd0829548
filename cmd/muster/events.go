package main

// The verb that prints what happens in the cluster. For the story of one job see story.go.

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/musterhq/muster/api"
	"github.com/musterhq/muster/cmd/muster/table"
	"github.com/musterhq/muster/job"
)

func (v watchVerbs) eventsCommand() *cli.Command {
	return &cli.Command{
		Name: "events", Usage: "print changes of jobs, tasks, nodes, GPUs and members; or the story of a job", ArgsUsage: "[ID]",
		Description: "With ID, or ID.3 for a task, it tells what has happened to the job: its submission, what people asked for, and each\n" +
			"attempt of its tasks: where it was placed, when it started, how it ended. The other flags of choice are for what follows.\n\n" +
			"Without ID: a daemon collects the events of the cluster while somebody looks, and for half a minute longer. Without\n" +
			"--follow you get those that it has. Of a job of more than 8 tasks only changes of the job are told. Measured values,\n" +
			"such as the utilization of a GPU, are in listings.",
		Flags: listFlags(
			&cli.BoolFlag{Name: "follow", Aliases: []string{"f"}, Usage: "go on with each event as it happens", DisableDefaultText: true},
			sinceFlag("only events"),
			&cli.StringFlag{Name: "kind", Usage: "only events of these `KINDS`: job, task, node, gpu, member or gone, separated by commas"},
			&cli.StringFlag{Name: "user", Aliases: []string{"u"}, Usage: "only events of jobs of `USER`"},
			&cli.BoolFlag{Name: "me", Usage: "only events of your own jobs", DisableDefaultText: true},
			&cli.StringFlag{Name: "node", Usage: "only events of the node `N`, and of what runs there"},
			&cli.StringFlag{Name: "job", Usage: "only events of the job `SEL`"}),
		Action: v.events,
	}
}

func (v watchVerbs) events(c *cli.Context) error {
	if err := wantArgs(c, 0, 1, "at most one job id"); err != nil {
		return err
	}
	if c.NArg() > 0 {
		return v.story(c)
	}
	view, err := viewOf(v.streams, c, same(eventColumns()))
	if err != nil {
		return err
	}
	switch follow := c.Bool("follow"); {
	case follow && view.form == formJSON:
		return usagef("--json prints one document at the end, which --follow has not; use --jsonl")
	case follow && view.sort != "":
		return usagef("--sort needs all events, and --follow never has them all")
	}
	client, err := clientOf(c)
	if err != nil {
		return err
	}
	defer client.Close()
	f, err := eventFilter(c, client)
	if err != nil {
		return err
	}
	return v.printEvents(c.Context, view, client.Events(c.Context, f), f.Once)
}

// printEvents prints events as they come. Without columns they are lines of a log.
func (v watchVerbs) printEvents(ctx context.Context, view view[api.Event], events iter.Seq2[api.Event, error], once bool) error {
	p, err := view.printer(nil)
	if err != nil {
		return err
	}
	if view.form == formTable && view.columns == "" && view.sort == "" && view.level != table.Wide {
		p.rows, p.began = v.printLog, true
	}
	inJSON := view.form == formJSON || view.form == formJSONL
	var all []api.Event
	for e, err := range events {
		if ctx.Err() != nil { // the user ended it
			return nil
		}
		switch {
		case err != nil:
			return asUsage(err)
		case !inJSON && v.aside(e):
			continue
		case once:
			all = append(all, e)
			continue
		}
		if more, err := p.add([]api.Event{e}); err != nil || !more {
			return err
		}
	}
	if _, err := p.add(all); err != nil {
		return err
	}
	return p.end(api.Listing[api.Event]{Schema: "muster.events/v1", Partial: []string{}})
}

// eventFilter returns what the flags choose.
func eventFilter(c *cli.Context, client *api.Client) (f api.EventFilter, err error) {
	f = api.EventFilter{User: c.String("user"), Mine: c.Bool("me"), Node: c.String("node"), Once: !c.Bool("follow")}
	if err := onlyMe(c); err != nil {
		return f, err
	}
	for _, k := range list(c.String("kind")) {
		f.Kinds = append(f.Kinds, api.EventKind(k))
	}
	if f.Since, err = sinceOf(c.String("since"), time.Now()); err != nil {
		return f, usagef("--since: %w", err)
	}
	if f.Once && f.Since.IsZero() {
		f.Since = time.Unix(0, 0) // all events that are kept
	}
	if c.String("job") == "" {
		return f, nil
	}
	jobs, err := selectedBy(c.Context, client, c.String("job"))
	if _, partly := errors.AsType[*api.IncompleteError](err); partly && len(jobs) > 0 {
		err = nil // the stream says who is silent
	}
	for _, j := range jobs {
		f.Jobs = append(f.Jobs, j.ID)
	}
	if err == nil && len(f.Kinds) == 0 { // the events as they were, not the present states
		f.Kinds = []api.EventKind{api.EventJob, api.EventTask, api.EventGone}
	}
	return f, err
}

// aside prints an event about the stream itself to stderr. It returns false for any other event.
func (v watchVerbs) aside(e api.Event) bool {
	switch e.Kind {
	case api.EventGap:
		fmt.Fprintln(v.err, "muster: earlier events are not known: a daemon collects them while somebody looks")
	case api.EventSilent:
		fmt.Fprintf(v.err, "muster: %s\n", printable(e.Detail))
	case api.EventOpen:
	case api.EventJob, api.EventTask, api.EventNode, api.EventGPU, api.EventMember, api.EventGone:
		return false
	}
	return true
}

// printLog prints events as lines of a log.
func (v watchVerbs) printLog(events []api.Event) error {
	for _, e := range events {
		if _, err := fmt.Fprintf(v.out, "%s %-6s %s\n", e.At.Local().Format("2006-01-02T15:04:05.000"), e.Kind, printable(eventText(e))); err != nil {
			return err
		}
	}
	return nil
}

// eventColumns returns the columns of an event.
func eventColumns() table.Columns[api.Event] {
	type event = api.Event
	return table.Columns[event]{
		{Name: "time", Help: "when the daemon was told", Cell: func(e event) string { return e.At.Local().Format("2006-01-02T15:04:05.000") }, Order: byTime(func(e event) *time.Time { return &e.At })},
		{Name: "kind", Help: "what it is about: job, task, node, gpu, member or gone", Cell: func(e event) string { return string(e.Kind) }},
		{Name: "id", Help: "the id of the event", Level: table.Chosen, IsKey: true, Cell: func(e event) string { return dash(e.EventID) }},
		{Name: "job", Help: "the id of the job", Level: table.Chosen, Cell: func(e event) string { return dash(string(eventJob(e))) }},
		{Name: "user", Help: "the user of the job", Level: table.Chosen, Least: 4, Cell: func(e event) string {
			if e.Job == nil {
				return "-"
			}
			return e.Job.User
		}},
		{Name: "state", Help: "the state of the job, task, node or member, or the health of the GPU", Level: table.Wide, Cell: func(e event) string { return dash(eventState(e)) }},
		{Name: "node", Help: "the name of the node", Level: table.Wide, Least: 6, Cell: func(e event) string { return dash(eventNode(e)) }},
		{Name: "what", Help: "what happened", Least: 10, Cell: eventText},
	}
}

func eventJob(e api.Event) job.ID {
	switch {
	case e.Job != nil:
		return e.Job.ID
	case e.Task != nil:
		return e.Task.Job
	}
	return e.ID
}

func eventState(e api.Event) string {
	switch {
	case e.Job != nil:
		return string(e.Job.State)
	case e.Task != nil:
		return string(e.Task.State)
	case e.Node != nil:
		return string(e.Node.State)
	case e.GPU != nil:
		return string(e.GPU.Health)
	case e.Member != nil:
		return string(e.Member.State)
	}
	return ""
}

func eventNode(e api.Event) string {
	switch {
	case e.Job != nil:
		return placeOf(*e.Job)
	case e.Task != nil:
		return e.Task.Node
	case e.Node != nil:
		return e.Node.Name
	case e.GPU != nil:
		return e.GPU.Node
	case e.Member != nil:
		return e.Member.Name
	}
	return ""
}

// eventText returns one line that says what happened.
func eventText(e api.Event) string {
	switch {
	case e.Job != nil:
		return fmt.Sprintf("%s %s %s of %s%s", e.Job.ID, e.Job.State, dash(e.Job.Name), e.Job.User, bracketed(reasonOf(*e.Job)))
	case e.Task != nil:
		return fmt.Sprintf("%s.%d %s%s%s", e.Task.Job, e.Task.Task, e.Task.State, at(e.Task.Node), bracketed(e.Task.Reason))
	case e.Node != nil:
		n := e.Node
		return fmt.Sprintf("%s %s, %d tasks, free %d of %d cpus%s", n.Name, n.State, n.RunningOr(0), n.Free.CPUs, n.CPUs, bracketed(n.Detail))
	case e.GPU != nil:
		g := e.GPU
		holder := "free"
		if len(g.Jobs) > 0 {
			ids := make([]string, 0, len(g.Jobs))
			for _, id := range slices.Compact(g.Jobs) {
				ids = append(ids, string(id))
			}
			holder = "held by " + strings.Join(ids, " ")
		}
		return fmt.Sprintf("%s %d %s %s, %s%s", g.Node, g.Index, g.UUID, g.Health, holder, bracketed(g.Detail))
	case e.Member != nil:
		return e.Member.Name + " " + string(e.Member.State)
	}
	return strings.TrimSpace(string(e.ID) + " " + e.Detail)
}

func bracketed(reason string) string {
	if reason == "" {
		return ""
	}
	return " (" + reason + ")"
}

func at(node string) string {
	if node == "" {
		return ""
	}
	return " on " + node
}
