package main

// The verbs submit, run and offers.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/urfave/cli/v2"

	"github.com/musterhq/muster/api"
	"github.com/musterhq/muster/job"
)

func (e env) submitCommand() *cli.Command {
	return &cli.Command{
		Name: "submit", Usage: "hand in a job; prints its id", ArgsUsage: "[--] COMMAND... | SCRIPT | -", Args: true,
		Flags: clientFlags(append(jobFlags(),
			&cli.BoolFlag{Name: "wait", Aliases: []string{"W"}, Usage: "wait for its end and exit with its code"},
			&cli.BoolFlag{Name: "follow", Aliases: []string{"f"}, Usage: "follow its output and exit with its code"},
			&cli.BoolFlag{Name: "dry-run", Usage: "say where it would run, and hand nothing in"},
			&cli.StringFlag{Name: "idempotency-key", Usage: "under the same `K`ey the same job is handed in once"},
			&cli.BoolFlag{Name: "json", Usage: "print the job's document"})...),
		Action: e.submit,
	}
}

func (e env) submit(c *cli.Context) error {
	spec, err := e.specOf(c)
	if err != nil {
		return err
	}
	client, err := e.client(c)
	if err != nil {
		return err
	}
	defer client.Close()
	if c.Bool("dry-run") {
		return e.printOffers(c, client, spec)
	}
	j, err := client.Submit(c.Context, spec, c.String("idempotency-key"))
	if err != nil {
		return refused(err)
	}
	if c.Bool("json") {
		err = e.printJSON(j)
	} else {
		_, err = fmt.Fprintln(e.out, j.ID)
	}
	if err != nil {
		return err
	}
	switch {
	case c.Bool("follow"):
		return e.follow(c.Context, client, j.ID, e.err)
	case c.Bool("wait"):
		return e.waitFor(c.Context, client, []job.ID{j.ID})
	}
	return nil
}

// refused gives a job that nothing could ever run its own exit code, and a
// reason for each clause that stands against it.
func refused(err error) error {
	var p *api.Problem
	if !errors.As(err, &p) || !errors.Is(err, api.ErrNoMatch) || p.Explanation == nil {
		return asUsage(err)
	}
	var b strings.Builder
	b.WriteString(p.Detail)
	for _, clause := range p.Explanation.Clauses {
		if clause.Meets == clause.Of && clause.Of > 0 {
			continue
		}
		fmt.Fprintf(&b, "; %s: met by %d of %d nodes", clause.Clause, clause.Meets, clause.Of)
		for i, f := range clause.Fails {
			sep := ", "
			if i == 0 {
				sep = " ("
			}
			fmt.Fprintf(&b, "%s%s: %s", sep, f.Name, f.Reason)
		}
		if len(clause.Fails) > 0 {
			b.WriteString(")")
		}
	}
	b.WriteString("; ask for less, or hand it in with --hold")
	return exitError{exitNever, errors.New(b.String())}
}

func (e env) runCommand() *cli.Command {
	return &cli.Command{
		Name: "run", Usage: "hand in a job, follow its output, exit with its code; Ctrl-C detaches", ArgsUsage: "[--] COMMAND...", Args: true,
		Flags:  clientFlags(append(jobFlags(), &cli.StringFlag{Name: "idempotency-key", Usage: "under the same `K`ey the same job is handed in once"})...),
		Action: e.run,
	}
}

func (e env) run(c *cli.Context) error {
	spec, err := e.specOf(c)
	if err != nil {
		return err
	}
	client, err := e.client(c)
	if err != nil {
		return err
	}
	defer client.Close()
	j, err := client.Submit(c.Context, spec, c.String("idempotency-key"))
	if err != nil {
		return ours(refused(err))
	}
	return e.follow(c.Context, client, j.ID, e.out)
}

// ours marks an error as our own failure, so that nobody takes it for the job's.
func ours(err error) error {
	var exit exitError
	var usage usageError
	if err == nil || errors.As(err, &exit) || errors.As(err, &usage) {
		return err
	}
	return exitError{exitOurs, err}
}

// follow copies both streams of a job until it ends and exits with its code.
func (e env) follow(ctx context.Context, client *api.Client, id job.ID, out io.Writer) error {
	type end struct{ err error }
	ends := make(chan end, 2)
	copyTo := func(stream string, w io.Writer) {
		_, err := client.Logs(ctx, api.LogRequest{Job: id, Stream: stream, Follow: true}, w)
		ends <- end{err}
	}
	go copyTo("stdout", out)
	go copyTo("stderr", e.err)
	var logErr error
	for range 2 {
		if e := <-ends; e.err != nil && logErr == nil {
			logErr = e.err
		}
	}
	if ctx.Err() != nil {
		return exitError{exitSignal + 2, fmt.Errorf("detached; the job goes on: `muster logs -f %s`", id)}
	}
	if err := e.waitFor(ctx, client, []job.ID{id}); err != nil {
		return err
	}
	if logErr != nil {
		return exitError{exitOurs, fmt.Errorf("output of job %s: %w", id, logErr)}
	}
	return nil
}

const exitSignal = 128

// waitFor waits for the ends of jobs and exits with the highest of their codes.
func (e env) waitFor(ctx context.Context, client *api.Client, ids []job.ID) error {
	jobs, err := client.Wait(ctx, ids, nil)
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return exitError{exitOurs, errors.New("the timeout passed; the job goes on")}
	}
	if ctx.Err() != nil {
		return exitError{exitSignal + 2, errors.New("detached; the job goes on")}
	}
	if err != nil {
		return ours(err)
	}
	highest := 0
	for _, j := range jobs {
		code, _ := j.Exit()
		highest = max(highest, code)
		if code != 0 && j.Reason != "" {
			fmt.Fprintf(e.err, "muster: job %s: %s: %s\n", j.ID, j.State, withDetail(j.Reason, j.ReasonDetail))
		}
	}
	if highest != 0 {
		return exitError{code: highest}
	}
	return nil
}

func (e env) offersCommand() *cli.Command {
	return &cli.Command{
		Name: "offers", Usage: "say which nodes would take a job, and why the others would not", ArgsUsage: "[--] [COMMAND...]", Args: true,
		Flags: clientFlags(append(jobFlags(), &cli.BoolFlag{Name: "json", Usage: "one JSON document"})...),
		Action: func(c *cli.Context) error {
			if !c.Args().Present() && c.String("file") == "" {
				if err := c.Set("file", ""); err != nil {
					return err
				}
			}
			spec, err := e.offerSpec(c)
			if err != nil {
				return err
			}
			client, err := e.client(c)
			if err != nil {
				return err
			}
			defer client.Close()
			return e.printOffers(c, client, spec)
		},
	}
}

// offerSpec is specOf for a dry run, which needs no command.
func (e env) offerSpec(c *cli.Context) (job.Spec, error) {
	if c.Args().Present() || c.String("file") != "" {
		return e.specOf(c)
	}
	spec := job.DefaultSpec()
	spec.Command = []string{"true"}
	if err := applyFlags(c, &spec); err != nil {
		return spec, err
	}
	if err := spec.Validate(); err != nil {
		return spec, usageError{err}
	}
	return spec, nil
}

func (e env) printOffers(c *cli.Context, client *api.Client, spec job.Spec) error {
	x, err := client.Offers(c.Context, spec)
	if err != nil {
		return asUsage(err)
	}
	if c.Bool("json") {
		return e.printJSON(x)
	}
	return e.explain(x)
}

// explain prints where a request could run and what stands against it.
func (e env) explain(x api.Explanation) error {
	w := tabwriter.NewWriter(e.out, 0, 0, 2, ' ', 0)
	if x.Job != "" {
		fmt.Fprintf(w, "job\t%s\n", x.Job)
		fmt.Fprintf(w, "state\t%s\n", x.State)
	}
	if x.Reason != "" {
		fmt.Fprintf(w, "reason\t%s\n", withDetail(x.Reason, x.ReasonDetail))
	}
	for _, clause := range x.Clauses {
		fmt.Fprintf(w, "%s\tmet by %d of %d nodes\n", clause.Clause, clause.Meets, clause.Of)
		for _, f := range clause.Fails {
			fmt.Fprintf(w, "\t%s: %s\n", f.Name, f.Reason)
		}
	}
	for _, n := range x.Now {
		fmt.Fprintf(w, "now\t%s: %s\n", n.Node, n.Why)
	}
	for _, n := range x.Later {
		fmt.Fprintf(w, "later\t%s: %s\n", n.Node, n.Why)
	}
	if len(x.Now) == 0 && x.Job == "" {
		fmt.Fprintln(w, "now\tno node")
	}
	return w.Flush()
}
