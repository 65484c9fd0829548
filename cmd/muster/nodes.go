package main

// The verbs that show nodes and their GPUs.

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/musterhq/muster/api"
	"github.com/musterhq/muster/cmd/muster/table"
	"github.com/musterhq/muster/internal/contract"
)

func (v clusterVerbs) nodesCommand() *cli.Command {
	return &cli.Command{
		Name: "nodes", Usage: "list the nodes of the cluster",
		Flags: listFlags(watchFlag("redraw on every change; without a terminal, print a line for each node that changes")),
		Action: func(c *cli.Context) error {
			if err := wantArgs(c, 0, 0, "no argument"); err != nil {
				return err
			}
			view, err := viewOf(v.streams, c, nodeColumns)
			if err != nil {
				return err
			}
			client, err := clientOf(c)
			if err != nil {
				return err
			}
			defer client.Close()
			if c.Bool("watch") {
				return watchedNodes(client, view).run(c.Context)
			}
			l, err := client.Nodes(c.Context)
			if err != nil {
				return err
			}
			return view.print(l)
		},
	}
}

// watchedNodes returns the listing of nodes that is updated. When jobs change, what is free on the nodes changes.
func watchedNodes(client *api.Client, v view[api.Node]) watched[api.Node] {
	look := nodeColumns(nil).Shown(table.Wide)
	return watched[api.Node]{
		view: v, key: func(n api.Node) string { return string(n.ID) }, look: look.Text, over: func(api.Node) bool { return false },
		fetch: func(ctx context.Context, _ int) (api.Listing[api.Node], error) { return client.Nodes(ctx) },
		follow: func(ctx context.Context, n news[api.Node]) error {
			for ev, err := range client.Events(ctx, api.EventFilter{Kinds: []api.EventKind{api.EventNode, api.EventGPU, api.EventMember}}) {
				switch {
				case err != nil:
					return err
				case ev.Kind != api.EventSilent:
					n.stale()
				}
			}
			return nil
		},
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

func (v clusterVerbs) nodeCommand() *cli.Command {
	return &cli.Command{
		Name: "node", Usage: "show a node, take it out of service, put it back, or declare it dead", ArgsUsage: "show|drain|resume|declare-dead NODE",
		Subcommands: []*cli.Command{
			{
				Name: "show", Usage: "show everything about a node", ArgsUsage: "NODE",
				Flags: clientFlags(wrapFlag(), jsonFlag()),
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
					return showNode(v.out, v.roomOf(c), n)
				},
			},
			v.drainCommand(), v.resumeCommand(), v.declareDeadCommand(), v.forgetClaimCommand(),
		},
	}
}

func showNode(out io.Writer, room int, n api.Node) error {
	w := new(table.Sheet)
	row(w, "node", n.Name)
	row(w, "id", string(n.ID))
	row(w, "state", withDetail(string(n.State), n.Detail))
	row(w, "version", n.Version)
	if n.Drain != nil {
		row(w, "drained", "by "+dash(n.Drain.By)+" at "+clock(&n.Drain.Since))
	}
	row(w, "running", runningOf(n))
	own := maps.Clone(n.Labels)
	maps.DeleteFunc(own, func(k, _ string) bool { _, signed := n.Signed[k]; return signed })
	if len(n.Signed) > 0 {
		row(w, "signed labels", labels(n.Signed, ","))
	}
	row(w, "own labels", dash(labels(own, ",")))
	row(w, "addresses", dash(strings.Join(n.Addrs, " ")))
	row(w, "runs", waysText(n))
	if n.OnlyUser != "" {
		row(w, "of user", n.OnlyUser+" only")
	}
	if n.NoRoot {
		row(w, "of user", "all but root")
	}
	if n.Worker {
		row(w, "fencing", fencingText(n.Fencing))
	}
	if n.Arch != "" {
		row(w, "platform", n.OS+"/"+n.Arch)
	}
	row(w, "cpus", fmt.Sprintf("%d, %s free", n.CPUs, ifAnswers(n, strconv.Itoa(n.Free.CPUs))))
	row(w, "memory", fmt.Sprintf("%s, %s free", size(n.Memory), ifAnswers(n, size(n.Free.Memory))))
	row(w, "disk", size(n.Disk))
	if n.Usage != nil {
		row(w, "in use", fmt.Sprintf("%s cpus, %s of memory, gpus %s busy", inUse(n, nowCPUs, cpusText), inUse(n, nowMemory, bytesText), inUse(n, nowGPUs, percentText)))
		row(w, "", fmt.Sprintf("disks: %s read and %s written in a second", inUse(n, nowRead, bytesText), inUse(n, nowWrite, bytesText)))
		row(w, "", fmt.Sprintf("network: %s received and %s sent in a second", inUse(n, nowReceived, bytesText), inUse(n, nowSent, bytesText)))
	} else {
		row(w, "in use", dash(""))
	}
	if err := w.Print(out, room); err != nil {
		return err
	}
	if len(n.GPUs) == 0 {
		return nil
	}
	columns := slices.DeleteFunc(gpuColumns(n.GPUs).Shown(table.Usual), func(c table.Column[api.GPU]) bool { return c.Name == "node" })
	gpus := new(table.Sheet)
	columns.Fill(gpus, n.GPUs)
	return gpus.Print(out, room)
}

// fencingText says whether a node certainly ends tasks when their leases expire, and what follows if it does not.
func fencingText(fences string) string {
	const follows = "tasks with --on-partition fence run elsewhere only when this node is back, has rebooted or is declared dead"
	switch fences {
	case "yes":
		return "yes: tasks end with their leases for certain"
	case "no":
		return "no: " + follows
	}
	return "unknown, its version does not say: " + follows
}

// waysText returns the ways in which a node can run tasks.
func waysText(n api.Node) string {
	if !n.Worker {
		return "no tasks"
	}
	var ways []string
	for _, way := range []struct{ driver, name string }{{contract.DriverExec, "processes"}, {contract.DriverDocker, "containers"}} {
		if slices.Contains(n.Drivers, way.driver) {
			ways = append(ways, way.name)
		}
	}
	return dash(strings.Join(ways, ", "))
}

func (v clusterVerbs) gpusCommand() *cli.Command {
	return &cli.Command{
		Name: "gpus", Usage: "list the GPUs of the cluster", Flags: listFlags(&cli.BoolFlag{Name: "free", Usage: "only free GPUs", DisableDefaultText: true}),
		Action: func(c *cli.Context) error {
			if err := wantArgs(c, 0, 0, "no argument"); err != nil {
				return err
			}
			view, err := viewOf(v.streams, c, gpuColumns)
			if err != nil {
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
			return view.print(l)
		},
	}
}
