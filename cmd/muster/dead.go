package main

// The verb that declares a node dead.

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/musterhq/muster/api"
	"github.com/musterhq/muster/job"
)

func (v clusterVerbs) declareDeadCommand() *cli.Command {
	return &cli.Command{
		Name: "declare-dead", Usage: "give up the tasks of a node that will not come back", ArgsUsage: "NODE",
		Description: "For a host that will not come back: destroyed, or wiped. Its tasks run again elsewhere, or end as NODE_FAIL (--no-requeue) or CANCELLED; " +
			"until then they wait for the node, unless they are fenced (`--on-partition fence`). Make sure that nothing runs there any more: such a task would run twice. A node that answers any daemon is refused, unless it answers with a new data directory and tasks of an earlier one still wait for it: then these are given up. " +
			"On a terminal the verb asks for confirmation.",
		Flags: clientFlags(
			jsonFlag(),
			&cli.BoolFlag{Name: "yes", Aliases: []string{"y"}, Usage: "do not ask for confirmation", DisableDefaultText: true}),
		Action: v.declareDead,
	}
}

func (v clusterVerbs) declareDead(c *cli.Context) error {
	if err := wantArgs(c, 1, 1, "the name or id of a node"); err != nil {
		return err
	}
	client, err := clientOf(c)
	if err != nil {
		return err
	}
	defer client.Close()
	node := c.Args().First()
	if !c.Bool("yes") && inTerminal(v.in) && onTerminal(v.err) {
		would, err := client.DeclareDead(c.Context, node, true)
		if err != nil {
			return asUsage(err)
		}
		node = string(would.ID) // the name may come to mean another node
		if yes, err := v.confirm(c.Context, deathQuestion(would, time.Now())); err != nil || !yes {
			return cmp.Or(err, fmt.Errorf("%s was not declared dead", printable(would.Name)))
		}
	}
	d, err := client.DeclareDead(c.Context, node, false)
	if err != nil {
		return asUsage(err)
	}
	if c.Bool("json") {
		if err := v.printJSON(d); err != nil {
			return err
		}
	} else {
		fmt.Fprintf(v.err, "%s declared dead: %s\n", printable(d.Name), givenUp(d))
	}
	if n := len(d.Partial); n > 0 {
		return fmt.Errorf("%s did not answer: run it again when %s back", strings.Join(d.Partial, ", "), plural(n, "it is", "they are"))
	}
	return nil
}

// givenUp returns a text such as "3 tasks given up by 2 daemons".
func givenUp(d api.Death) string {
	if d.Tasks == 0 {
		return "it had no tasks"
	}
	return fmt.Sprintf("%s given up by %d %s", countTasks(d.Tasks), d.Daemons, plural(d.Daemons, "daemon", "daemons"))
}

func countTasks(n int) string { return fmt.Sprintf("%d %s", n, plural(n, "task", "tasks")) }

// deathQuestion returns a question that says what is known of the node, and what would happen.
func deathQuestion(d api.Death, now time.Time) string {
	seen := "was never seen by this daemon"
	if d.LastSeenAt != nil {
		seen = "was last seen " + job.Duration(max(now.Sub(*d.LastSeenAt), 0).Round(time.Second)).String() + " ago"
	}
	if d.Detail != "" {
		seen += " (" + d.Detail + ")"
	}
	if len(d.Partial) > 0 {
		seen += "; " + strings.Join(d.Partial, ", ") + plural(len(d.Partial), " does", " do") + " not answer"
	}
	return printable(fmt.Sprintf("%s %s. %s would be given up; tasks that still run there would run twice. Declare it dead? [y/N] ", d.Name, seen, countTasks(d.Tasks)))
}

// confirm asks the question and reports whether the answer is yes.
func (v clusterVerbs) confirm(ctx context.Context, question string) (bool, error) {
	fmt.Fprint(v.err, question)
	answer := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(io.LimitReader(v.in, maxAnswered)).ReadString('\n') // no answer means no
		answer <- line
	}()
	select {
	case line := <-answer:
		word := strings.ToLower(strings.TrimSpace(line))
		return word == "y" || word == "yes", nil
	case <-ctx.Done():
		fmt.Fprintln(v.err)
		return false, ctx.Err()
	}
}

const maxAnswered = 1024 // bytes read of an answer
