package main

// The verbs that ask about nodes and their GPUs.

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/musterhq/muster/api"
)

func (e env) nodesCommand() *cli.Command {
	return &cli.Command{
		Name: "nodes", Usage: "list the nodes of the cluster",
		Flags: listFlags(watchFlag("every two seconds")),
		Action: func(c *cli.Context) error {
			if err := wantArgs(c, 0, 0, "no argument"); err != nil {
				return err
			}
			client, err := e.client(c)
			if err != nil {
				return err
			}
			defer client.Close()
			for {
				l, err := client.Nodes(c.Context)
				if err != nil {
					return err
				}
				if err := printList(e, c, l, nodeTable); err != nil || !c.Bool("watch") {
					return err
				}
				if !pause(c.Context, 2*time.Second) {
					return nil
				}
				fmt.Fprintln(e.out)
			}
		},
	}
}

func nodeTable(w io.Writer, nodes []api.Node) {
	fmt.Fprintln(w, "NAME\tSTATE\tCPUS\tMEMORY\tGPUS\tFREE\tLABELS\tREASON\tID")
	for _, n := range nodes {
		free := fmt.Sprintf("%d cpus, %d gpus", n.Free.CPUs, n.Free.GPUs)
		fmt.Fprintf(w, "%s\t%s\t%d\t%s\t%s\t%s\t%s\t%s\t%s\n", n.Name, n.State, n.CPUs, size(n.Memory), gpuSummary(n.GPUs), free, dash(labels(n.Labels, ",")), dash(n.Detail), n.ID)
	}
}

func labels(m map[string]string, sep string) string {
	var all []string
	for k, v := range m {
		all = append(all, k+"="+v)
	}
	slices.Sort(all)
	return strings.Join(all, sep)
}

// gpuSummary counts the GPUs of a node by class: "8 h100-80gb (simulated)".
func gpuSummary(gpus []api.GPU) string {
	counts := map[string]int{}
	var order []string
	for _, g := range gpus {
		name := g.Class
		if g.Simulated {
			name += " (simulated)"
		}
		if counts[name]++; counts[name] == 1 {
			order = append(order, name)
		}
	}
	parts := make([]string, 0, len(order))
	for _, name := range order {
		parts = append(parts, fmt.Sprintf("%d %s", counts[name], name))
	}
	return dash(strings.Join(parts, ", "))
}

func (e env) nodeCommand() *cli.Command {
	return &cli.Command{
		Name: "node", Usage: "show a node, take it out of service, or put it back", ArgsUsage: "show|drain|resume NODE",
		Subcommands: []*cli.Command{
			{
				Name: "show", Usage: "everything about a node", ArgsUsage: "NODE",
				Flags: clientFlags(jsonFlag()),
				Action: func(c *cli.Context) error {
					if err := wantArgs(c, 1, 1, "the name or id of a node"); err != nil {
						return err
					}
					client, err := e.client(c)
					if err != nil {
						return err
					}
					defer client.Close()
					n, err := client.Node(c.Context, c.Args().First())
					if err != nil {
						return asUsage(err)
					}
					if c.Bool("json") {
						return e.printJSON(n)
					}
					return e.showNode(n)
				},
			},
			e.drainCommand(), e.resumeCommand(),
		},
	}
}

func (e env) showNode(n api.Node) error {
	w := tabwriter.NewWriter(e.out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "node\t%s\nid\t%s\nstate\t%s\nversion\t%s\n", n.Name, n.ID, withDetail(string(n.State), n.Detail), n.Version)
	if n.Drain != nil {
		fmt.Fprintf(w, "drained\tby %s at %s\n", dash(n.Drain.By), n.Drain.Since.UTC().Format(time.RFC3339))
	}
	fmt.Fprintf(w, "running\t%d\n", n.Running)
	fmt.Fprintf(w, "labels\t%s\naddresses\t%s\n", dash(labels(n.Labels, ",")), dash(strings.Join(n.Addrs, " ")))
	fmt.Fprintf(w, "runs tasks\t%v (%s)\n", n.Worker, dash(strings.Join(n.Drivers, ", ")))
	fmt.Fprintf(w, "cpus\t%d, %d free\nmemory\t%s, %s free\ndisk\t%s\n", n.CPUs, n.Free.CPUs, size(n.Memory), size(n.Free.Memory), size(n.Disk))
	if err := w.Flush(); err != nil {
		return err
	}
	if len(n.GPUs) == 0 {
		return nil
	}
	w = tabwriter.NewWriter(e.out, 0, 0, 2, ' ', 0)
	gpuTable(w, n.GPUs)
	return w.Flush()
}

func (e env) gpusCommand() *cli.Command {
	return &cli.Command{
		Name: "gpus", Usage: "list the GPUs of the cluster", Flags: listFlags(&cli.BoolFlag{Name: "free", Usage: "only those that are free", DisableDefaultText: true}),
		Action: func(c *cli.Context) error {
			if err := wantArgs(c, 0, 0, "no argument"); err != nil {
				return err
			}
			client, err := e.client(c)
			if err != nil {
				return err
			}
			defer client.Close()
			l, err := client.GPUs(c.Context, c.Bool("free"))
			if err != nil {
				return err
			}
			return printList(e, c, l, gpuTable)
		},
	}
}

func gpuTable(w io.Writer, gpus []api.GPU) {
	fmt.Fprintln(w, "NODE\t#\tMODEL\tMEMORY\tUSED\tUTIL\tHEALTH\tJOB\tUUID")
	for _, g := range gpus {
		model, util := g.Model, "-"
		if g.Simulated && !strings.Contains(strings.ToLower(model), "simulated") {
			model += " (simulated)"
		}
		if g.Utilization >= 0 {
			util = fmt.Sprintf("%d%%", g.Utilization)
		}
		fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", g.Node, g.Index, model, size(g.Memory), size(g.MemoryUsed), util,
			withDetail(string(g.Health), g.Detail), dash(string(g.Job)), g.UUID)
	}
}
