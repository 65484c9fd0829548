package main

// The verb that shows what users and projects have used, and what their shares are.

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/musterhq/muster/api"
	"github.com/musterhq/muster/cmd/muster/table"
	"github.com/musterhq/muster/job"
)

func (v clusterVerbs) usersCommand() *cli.Command {
	return &cli.Command{
		Name: "users", Usage: "list users and projects with what they have used, the share that they should have, and their limits", ArgsUsage: "[USER...]",
		Description: "SHARE is the part that a user or project should have by the weights in the configuration (shares), among all\n" +
			"that are listed. USED is the part that it has used of what all have used. Of jobs of one priority those go first whose\n" +
			"user and project have used less of their share. Usage decays: by default, what was used a day ago counts half.\n" +
			"Of the projects without a weight those are listed in which a user has used most, ten of each user; - (+N) counts N others.\n" +
			"LIMITS is what a user may hold on one node at a time, and with cluster_ on all nodes together, the highest priority and the longest\n" +
			"time limit of the user's tasks, by the configuration of the nodes (limits). USER... lists these users only, also those who have\n" +
			"run nothing yet; you and the users whom a node names in its limits are always listed.",
		Flags: listFlags(),
		Action: func(c *cli.Context) error {
			view, err := viewOf(v.streams, c, same(userColumns()))
			if err != nil {
				return err
			}
			client, err := clientOf(c)
			if err != nil {
				return err
			}
			defer client.Close()
			l, err := client.Users(c.Context, c.Args().Slice()...)
			if err != nil {
				return err
			}
			return view.print(l)
		},
	}
}

// userColumns returns the columns of a user, or of a project.
func userColumns() table.Columns[api.User] {
	count := func(name, help string, of func(api.User) int) table.Column[api.User] {
		return table.Column[api.User]{Name: name, Help: help, Cell: func(u api.User) string { return strconv.Itoa(of(u)) }, Order: table.By(of)}
	}
	figure := func(name, help string, of func(api.User) float64, text func(float64) string) table.Column[api.User] {
		return table.Column[api.User]{Name: name, Help: help, Cell: func(u api.User) string { return text(of(u)) }, Order: table.By(of)}
	}
	weight := figure("weight", "the weight of the share", func(u api.User) float64 { return u.Weight }, func(w float64) string { return strconv.FormatFloat(w, 'g', -1, 64) })
	weight.Level = table.Wide
	headed := func(head string, c table.Column[api.User]) table.Column[api.User] {
		c.Head = head
		return c
	}
	return table.Columns[api.User]{
		{Name: "project", Help: "the project", Least: 7, Cell: projectText},
		{Name: "user", Help: "the user, or all of the project", Least: 4, IsKey: true, Cell: func(u api.User) string { return cmp.Or(u.User, "(all)") }},
		weight,
		shareColumn(),
		figure("used", "the part that it has used", func(u api.User) float64 { return u.Used }, percent),
		headed("GPU-HOURS", figure("gpu-hours", "its use of GPUs, decayed", func(u api.User) float64 { return u.GPUSeconds }, hours)),
		headed("CPU-HOURS", figure("cpu-hours", "its use of CPUs, decayed", func(u api.User) float64 { return u.CPUSeconds }, hours)),
		count("running", "tasks that run", func(u api.User) int { return u.Running }),
		count("waiting", "tasks that wait", func(u api.User) int { return u.Waiting }),
		{Name: "limits", Help: "what the user may hold on a node", Least: 6, Cell: func(u api.User) string { return dash(limitsText(u.Limits)) }},
	}
}

// shareColumn returns the column with the share of a user or project. A user or project without usage and jobs does not
// count.
func shareColumn() table.Column[api.User] {
	share := func(u api.User) string {
		if u.Idle {
			return dash("")
		}
		return percent(u.Share)
	}
	return table.Column[api.User]{Name: "share", Help: "the part that the user or project should have", Cell: share, Order: table.By(func(u api.User) float64 { return u.Share })}
}

// projectText returns the project, and how many others the line counts.
func projectText(u api.User) string {
	if u.Others > 0 {
		return fmt.Sprintf("- (+%d)", u.Others)
	}
	return dash(u.Project)
}

// limitsText returns what a user may hold on each of some nodes, and on all nodes together.
func limitsText(all []api.NodesLimit) string {
	number := func(n int64) string { return strconv.FormatInt(n, 10) }
	bytes := func(n int64) string { return job.Size(n).String() }
	texts := make([]string, 0, len(all))
	for _, l := range all {
		var each, together []string
		for _, q := range []struct {
			words *[]string
			name  string
			most  *int64
			text  func(int64) string
		}{
			{&each, "priority", l.Priority, number},
			{&each, "max_time", l.MaxTime, func(n int64) string { return job.Duration(time.Duration(n) * time.Second).String() }},
			{&each, "tasks", l.Tasks, number},
			{&each, "gpus", l.GPUs, number},
			{&each, "cpus", l.CPUs, number},
			{&each, "memory", l.Memory, bytes},
			{&together, "cluster_tasks", l.ClusterTasks, number},
			{&together, "cluster_gpus", l.ClusterGPUs, number},
			{&together, "cluster_cpus", l.ClusterCPUs, number},
			{&together, "cluster_memory", l.ClusterMemory, bytes},
		} {
			if q.most != nil {
				*q.words = append(*q.words, q.name+"="+q.text(*q.most))
			}
		}
		if len(each) > 0 {
			texts = append(texts, fmt.Sprintf("%s on each of %d nodes", strings.Join(each, " "), l.Nodes))
		}
		if len(together) > 0 {
			texts = append(texts, fmt.Sprintf("%s on all nodes together, as %d of them say", strings.Join(together, " "), l.Nodes))
		}
	}
	text := strings.ReplaceAll(strings.Join(texts, ", "), "each of 1 nodes", "1 node")
	return strings.ReplaceAll(text, "as 1 of them say", "as 1 of them says")
}

func percent(part float64) string { return fmt.Sprintf("%.1f%%", 100*part) }

func hours(seconds float64) string { return fmt.Sprintf("%.2f", seconds/3600) }
