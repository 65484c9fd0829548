package main

// The verb with which an operator has a host forget a claim.

import (
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/musterhq/muster/job"
)

func (v clusterVerbs) forgetClaimCommand() *cli.Command {
	return &cli.Command{
		Name: "forget-claim", Usage: "have this host forget which daemon owns a job", ArgsUsage: "JOB",
		Description: "For this host only, and for jobs of daemons of earlier versions, which nothing proves whose they are: if another member was the first to claim them here, this host ignores their owner. " +
			"After this verb the next daemon that claims them owns them here. JOB is the whole id of a job, or its end after the dash. " +
			"Jobs of this version need it only if their owner was restored from a backup.",
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
	fmt.Fprintf(v.out, "this host has forgotten that %s owns the jobs …-%s; the next daemon that claims them, and can, owns them here\n", printable(string(claim.Owner)), printable(claim.Group))
	return nil
}
