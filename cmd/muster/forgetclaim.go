package main

// The verb with which an operator makes a host obey an owner that was restored from a backup.

import (
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/musterhq/muster/job"
)

func (v clusterVerbs) forgetClaimCommand() *cli.Command {
	return &cli.Command{
		Name: "forget-claim", Usage: "have this host obey the restored owner of a job", ArgsUsage: "JOB",
		Description: "For this host only, and for jobs whose daemon was restored from a backup. Such a daemon counts on from an older epoch than the one that this host knows, so the host ignores it. " +
			"After this verb the host accepts the older epoch, from the same daemon only. JOB is the whole id of a job, or its end after the dash.",
		Flags:  clientFlags(jsonFlag()),
		Action: v.forgetClaim,
	}
}

func (v clusterVerbs) forgetClaim(c *cli.Context) error {
	const want = "the whole id of a job, or its end after the dash"
	if err := wantArgs(c, 1, 1, want); err != nil {
		return err
	}
	text := c.Args().First()
	if _, end, ok := strings.Cut(text, "-"); ok {
		text = end
	}
	g, err := job.ParseGroup(text)
	if err != nil {
		return usagef("job %.60q: want %s", c.Args().First(), want)
	}
	client, err := clientOf(c)
	if err != nil {
		return err
	}
	defer client.Close()
	claim, err := client.ForgetClaim(c.Context, g)
	if err != nil {
		return err
	}
	if c.Bool("json") {
		return v.printJSON(claim)
	}
	fmt.Fprintf(v.out, "this host has forgotten the epoch of %s, which owns the jobs …-%s; the next one that it sends counts\n", printable(string(claim.Owner)), printable(claim.Group))
	return nil
}
