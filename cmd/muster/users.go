package main

// The verb that shows what users and projects have used, and what they should.

import (
	"fmt"
	"io"
	"strconv"

	"github.com/urfave/cli/v2"

	"github.com/musterhq/muster/api"
)

func (v clusterVerbs) usersCommand() *cli.Command {
	return &cli.Command{
		Name: "users", Usage: "list users and projects with what they have used, and the share that they should have",
		Description: "SHARE is the part that a user or project should have by the weights in the configuration (shares), among all\n" +
			"that are listed. USED is the part that it has used of what all have used. Of jobs of one priority those go first whose\n" +
			"user and project have used less of their share. Usage decays: by default, what was used a day ago counts half.",
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
	row(w, "PROJECT", "USER", "WEIGHT", "SHARE", "USED", "GPU-HOURS", "CPU-HOURS", "RUNNING", "WAITING")
	for _, u := range users {
		name := u.User
		if name == "" {
			name = "(all)"
		}
		row(w, dash(u.Project), name, strconv.FormatFloat(u.Weight, 'g', -1, 64), percent(u.Share), percent(u.Used),
			hours(u.GPUSeconds), hours(u.CPUSeconds), strconv.Itoa(u.Running), strconv.Itoa(u.Waiting))
	}
}

func percent(part float64) string { return fmt.Sprintf("%.1f%%", 100*part) }

func hours(seconds float64) string { return fmt.Sprintf("%.2f", seconds/3600) }
