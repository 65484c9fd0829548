package main

// The verbs that show nodes and their GPUs.

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/musterhq/muster/api"
	"github.com/musterhq/muster/job"
)

func (v clusterVerbs) nodesCommand() *cli.Command {
	return &cli.Command{
		Name: "nodes", Usage: "list the nodes of the cluster",
		Flags: listFlags(watchFlag("every two seconds")),
		Action: func(c *cli.Context) error {
			if err := wantArgs(c, 0, 0, "no argument"); err != nil {
				return err
			}
			client, err := clientOf(c)
			if err != nil {
				return err
			}
			defer client.Close()
			for {
				l, err := client.Nodes(c.Context)
				if err != nil {
					return err
				}
				if err := printList(v.streams, c, l, nodeTable); err != nil || !c.Bool("watch") {
					return err
				}
				if !pause(c.Context, 2*time.Second) {
					return nil
				}
				fmt.Fprintln(v.out)
			}
		},
	}
}

func nodeTable(w io.Writer, nodes []api.Node) {
	row(w, "NAME", "STATE", "CPUS", "MEMORY", "GPUS", "FREE", "LABELS", "REASON", "ID")
	called := namesOf(nodes, func(n api.Node) (string, job.Peer) { return n.Name, n.ID })
	for _, n := range nodes {
		free := fmt.Sprintf("%d cpus, %d gpus", n.Free.CPUs, n.Free.GPUs)
		row(w, called(n.Name, n.ID), string(n.State), strconv.Itoa(n.CPUs), size(n.Memory), gpuSummary(n.GPUs), free, dash(labels(marked(n), ",")), dash(n.Detail), string(n.ID))
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

// marked returns the labels of a node, with a mark at those that are signed.
func marked(n api.Node) map[string]string {
	all := maps.Clone(n.Labels)
	for k, v := range n.Signed {
		all[k] = v + " (signed)"
	}
	return all
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

func (v clusterVerbs) nodeCommand() *cli.Command {
	return &cli.Command{
		Name: "node", Usage: "show a node, take it out of service, put it back, or declare it dead", ArgsUsage: "show|drain|resume|declare-dead NODE",
		Subcommands: []*cli.Command{
			{
				Name: "show", Usage: "show everything about a node", ArgsUsage: "NODE",
				Flags: clientFlags(jsonFlag()),
				Action: func(c *cli.Context) error {
					if err := wantArgs(c, 1, 1, "the name or id of a node"); err != nil {
						return err
					}
					client, err := clientOf(c)
					if err != nil {
						return err
					}
					defer client.Close()
					n, err := client.Node(c.Context, c.Args().First())
					if err != nil {
						return asUsage(err)
					}
					if c.Bool("json") {
						return v.printJSON(n)
					}
					return showNode(v.out, n)
				},
			},
			v.drainCommand(), v.resumeCommand(), v.declareDeadCommand(), v.forgetClaimCommand(),
		},
	}
}

func showNode(out io.Writer, n api.Node) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	row(w, "node", n.Name)
	row(w, "id", string(n.ID))
	row(w, "state", withDetail(string(n.State), n.Detail))
	row(w, "version", n.Version)
	if n.Drain != nil {
		row(w, "drained", "by "+dash(n.Drain.By)+" at "+n.Drain.Since.UTC().Format(time.RFC3339))
	}
	row(w, "running", strconv.Itoa(n.Running))
	own := maps.Clone(n.Labels)
	maps.DeleteFunc(own, func(k, _ string) bool { _, signed := n.Signed[k]; return signed })
	if len(n.Signed) > 0 {
		row(w, "signed labels", labels(n.Signed, ","))
	}
	row(w, "own labels", dash(labels(own, ",")))
	row(w, "addresses", dash(strings.Join(n.Addrs, " ")))
	row(w, "runs tasks", fmt.Sprintf("%v (%s)", n.Worker, dash(strings.Join(n.Drivers, ", "))))
	if n.OnlyUser != "" {
		row(w, "of user", n.OnlyUser+" only")
	}
	if n.Arch != "" {
		row(w, "platform", n.OS+"/"+n.Arch)
	}
	row(w, "cpus", fmt.Sprintf("%d, %d free", n.CPUs, n.Free.CPUs))
	row(w, "memory", fmt.Sprintf("%s, %s free", size(n.Memory), size(n.Free.Memory)))
	row(w, "disk", size(n.Disk))
	if err := w.Flush(); err != nil {
		return err
	}
	if len(n.GPUs) == 0 {
		return nil
	}
	w = tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	gpuTable(w, n.GPUs)
	return w.Flush()
}

func (v clusterVerbs) gpusCommand() *cli.Command {
	return &cli.Command{
		Name: "gpus", Usage: "list the GPUs of the cluster", Flags: listFlags(&cli.BoolFlag{Name: "free", Usage: "only free GPUs", DisableDefaultText: true}),
		Action: func(c *cli.Context) error {
			if err := wantArgs(c, 0, 0, "no argument"); err != nil {
				return err
			}
			client, err := clientOf(c)
			if err != nil {
				return err
			}
			defer client.Close()
			l, err := client.GPUs(c.Context, c.Bool("free"))
			if err != nil {
				return err
			}
			return printList(v.streams, c, l, gpuTable)
		},
	}
}

func gpuTable(w io.Writer, gpus []api.GPU) {
	row(w, "NODE", "#", "MODEL", "MEMORY", "USED", "UTIL", "HEALTH", "JOB", "UUID")
	called := namesOf(gpus, func(g api.GPU) (string, job.Peer) { return g.Node, g.NodeID })
	for _, g := range gpus {
		model, util, used := g.Model, "-", "-"
		if g.Simulated && !strings.Contains(strings.ToLower(model), "simulated") {
			model += " (simulated)"
		}
		if g.Utilization >= 0 {
			util = fmt.Sprintf("%d%%", g.Utilization)
		}
		if g.MemoryUsed >= 0 {
			used = size(g.MemoryUsed)
		}
		row(w, called(g.Node, g.NodeID), strconv.Itoa(g.Index), model, size(g.Memory), used, util, withDetail(string(g.Health), g.Detail), dash(string(g.Job)), g.UUID)
	}
}
