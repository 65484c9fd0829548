package main

// The verbs that take a node out of service and put it back.

import (
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/musterhq/muster/api"
	"github.com/musterhq/muster/job"
)

func (v clusterVerbs) drainCommand() *cli.Command {
	return &cli.Command{
		Name: "drain", Usage: "start nothing new on a node; running tasks go on", ArgsUsage: "NODE",
		Flags: clientFlags(
			jsonFlag(),
			&cli.StringFlag{Name: "deadline", Usage: "end tasks that still run after `DURATION`, and run them elsewhere unless --no-requeue"},
			&cli.StringFlag{Name: "reason", Usage: "the reason, shown with the node: `TEXT`"}),
		Action: func(c *cli.Context) error {
			r := api.DrainRequest{Reason: c.String("reason")}
			if c.IsSet("deadline") {
				d, err := job.ParseDuration(c.String("deadline"))
				if err != nil {
					return usagef("--deadline: %w", err)
				}
				seconds := d.D().Seconds()
				r.Deadline = &seconds
			}
			return v.changeNode(c, func(client *api.Client, node string) (api.Node, error) {
				return client.Drain(c.Context, node, r)
			})
		},
	}
}

func (v clusterVerbs) resumeCommand() *cli.Command {
	return &cli.Command{
		Name: "resume", Usage: "end the drain of a node, and the quarantine of its GPUs", ArgsUsage: "NODE",
		Flags: clientFlags(jsonFlag()),
		Action: func(c *cli.Context) error {
			return v.changeNode(c, func(client *api.Client, node string) (api.Node, error) {
				return client.Resume(c.Context, node)
			})
		},
	}
}

// changeNode changes the node that the command line names, and prints its new state on stderr.
func (v clusterVerbs) changeNode(c *cli.Context, change func(*api.Client, string) (api.Node, error)) error {
	if err := wantArgs(c, 1, 1, "the name or id of a node"); err != nil {
		return err
	}
	client, err := clientOf(c)
	if err != nil {
		return err
	}
	defer client.Close()
	n, err := change(client, c.Args().First())
	if err != nil {
		return asUsage(err)
	}
	if c.Bool("json") {
		return v.printJSON(n)
	}
	fmt.Fprintf(v.err, "node %s: %s, %s\n", printable(n.Name), n.State, runningText(n))
	return nil
}

// runningText returns a text such as "2 tasks run on until 2026-01-02 15:04:05 UTC".
func runningText(n api.Node) string {
	running := n.RunningOr(0) // it has just answered
	text := fmt.Sprintf("%d tasks run", running)
	if running == 1 {
		text = "1 task runs"
	}
	switch {
	case running == 0:
		return "nothing runs there"
	case n.Drain != nil && n.Drain.Deadline != nil:
		return text + " on until " + clock(n.Drain.Deadline)
	case n.Drain != nil:
		return text + " on"
	}
	return text
}
