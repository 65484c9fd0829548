package main

// The verb that shows what users and projects have used, and what they should.

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/musterhq/muster/api"
	"github.com/musterhq/muster/job"
)

func (v clusterVerbs) usersCommand() *cli.Command {
	return &cli.Command{
		Name: "users", Usage: "list users and projects with what they have used, the share that they should have, and their limits",
		Description: "SHARE is the part that a user or project should have by the weights in the configuration (shares), among all\n" +
			"that are listed. USED is the part that it has used of what all have used. Of jobs of one priority those go first whose\n" +
			"user and project have used less of their share. Usage decays: by default, what was used a day ago counts half.\n" +
			"LIMITS is what a user may hold on one node at a time, by the configuration of the nodes (limits).",
		Flags: listFlags(),
		Action: func(c *cli.Context) error {
			if err := wantArgs(c, 0, 0, "no argument"); err != nil {
				return err
			}
			client, err := clientOf(c)
			if err != nil {
				return err
			}
			defer client.Close()
			l, err := client.Users(c.Context)
			if err != nil {
				return err
			}
			return printList(v.streams, c, l, userTable)
		},
	}
}

func userTable(w io.Writer, users []api.User) {
	row(w, "PROJECT", "USER", "WEIGHT", "SHARE", "USED", "GPU-HOURS", "CPU-HOURS", "RUNNING", "WAITING", "LIMITS")
	for _, u := range users {
		name := u.User
		if name == "" {
			name = "(all)"
		}
		row(w, dash(u.Project), name, strconv.FormatFloat(u.Weight, 'g', -1, 64), percent(u.Share), percent(u.Used),
			hours(u.GPUSeconds), hours(u.CPUSeconds), strconv.Itoa(u.Running), strconv.Itoa(u.Waiting), dash(limitsText(u.Limits)))
	}
}

// limitsText says what a user may hold on a node, and on how many nodes that holds.
func limitsText(all []api.NodesLimit) string {
	texts := make([]string, 0, len(all))
	for _, l := range all {
		var words []string
		for _, q := range []struct {
			name string
			most *int64
		}{{"tasks", l.Tasks}, {"gpus", l.GPUs}, {"cpus", l.CPUs}} {
			if q.most != nil {
				words = append(words, fmt.Sprintf("%s=%d", q.name, *q.most))
			}
		}
		if l.Memory != nil {
			words = append(words, "memory="+job.Size(*l.Memory).String())
		}
		texts = append(texts, fmt.Sprintf("%s on each of %d nodes", strings.Join(words, " "), l.Nodes))
	}
	return strings.ReplaceAll(strings.Join(texts, ", "), "each of 1 nodes", "1 node")
}

func percent(part float64) string { return fmt.Sprintf("%.1f%%", 100*part) }

func hours(seconds float64) string { return fmt.Sprintf("%.2f", seconds/3600) }
