package main

// The verbs submit, run and offers.

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/musterhq/muster/api"
	"github.com/musterhq/muster/cmd/muster/table"
	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
)

func (v submitVerbs) submitCommand() *cli.Command {
	return &cli.Command{
		Name: "submit", Usage: "submit a job and print its id", ArgsUsage: "[--] COMMAND... | SCRIPT | -", Args: true,
		Description: "A single argument that names a file which starts with #! is a script: it is uploaded and run on the node. Any other argument, and everything after --, is a command that must exist on the node.",
		Flags: clientFlags(append(jobFlags(),
			&cli.BoolFlag{Name: "wait", Aliases: []string{"W"}, Usage: "wait for the end of the job and exit with its code", DisableDefaultText: true},
			&cli.BoolFlag{Name: "follow", Aliases: []string{"f"}, Usage: "print the job's output on stderr and exit with its code", DisableDefaultText: true},
			dryRunFlag(), wideDryRunFlag(), keyFlag(), jsonFlag())...),
		Action: v.submit,
	}
}

func dryRunFlag() *cli.BoolFlag {
	return &cli.BoolFlag{Name: "dry-run", Usage: "print where the job could run; submit nothing", DisableDefaultText: true}
}

func wideDryRunFlag() *cli.BoolFlag {
	return &cli.BoolFlag{Name: "wide", Usage: "with --dry-run: wrap no lines on a terminal", DisableDefaultText: true}
}

func keyFlag() *cli.StringFlag {
	return &cli.StringFlag{Name: "idempotency-key", Usage: "a second submit with the same `KEY` returns the first job"}
}

func (v submitVerbs) submit(c *cli.Context) error {
	file, err := v.specs.jobsOf(c)
	if err != nil {
		return err
	}
	client, err := clientOf(c)
	if err != nil {
		return err
	}
	defer client.Close()
	if len(file.Jobs) > 1 {
		return v.submitSeveral(c, client, file)
	}
	spec := file.Jobs[0].Spec
	if c.Bool("dry-run") {
		return v.dryRun(c, client, spec)
	}
	if spec.TakesInput() {
		return usagef("submit: stdin and tty need a client that stays: use `muster run`")
	}
	if err := resolveParents(c.Context, client, &spec); err != nil {
		return err
	}
	if err := v.sendFiles(c, client, &spec); err != nil {
		return err
	}
	j, err := client.Submit(c.Context, spec, c.String("idempotency-key"))
	if err != nil {
		return refused(err)
	}
	v.warnOf(j)
	if c.Bool("json") {
		err = v.printJSON(j)
	} else {
		_, err = fmt.Fprintln(v.out, j.ID)
	}
	switch {
	case err != nil:
		return fmt.Errorf("job %s is accepted, but: %w", j.ID, err)
	case c.Bool("follow"):
		f := follower{v.streams, client}
		return f.download(c.Context, j.ID, spec, f.follow(c.Context, j, v.err))
	case c.Bool("wait"):
		f := follower{v.streams, client}
		return f.download(c.Context, j.ID, spec, f.waitFor(c.Context, []chosen{{Job: j}}))
	}
	return nil
}

// warnOf prints the warnings about a job that was accepted.
func (s streams) warnOf(j api.Job) {
	for _, text := range j.Warnings {
		fmt.Fprintf(s.err, "muster: warning: job %s: %s\n", j.ID, printable(text))
	}
}

// refused returns the error for a refused submission. If nothing in the cluster could ever run the job, the error has
// its own exit code, and a reason for each requirement that a node does not meet.
func refused(err error) error {
	var p *api.Problem
	if !errors.As(err, &p) || !errors.Is(err, api.ErrNoMatch) {
		return asUsage(err)
	}
	if p.Explanation == nil { // a limit that no node can change, such as the highest priority of the user
		return exitError{exitNever, err}
	}
	var b strings.Builder
	b.WriteString(api.ErrNoMatch.Error())
	said := b.Len()
	for _, clause := range p.Explanation.Clauses {
		if clause.Meets == clause.Of && clause.Of > 0 {
			continue
		}
		fmt.Fprintf(&b, "; %s: met by %d of %d nodes", clause.Clause, clause.Meets, clause.Of)
		if text := whichFail(clause.Fails); text != "" {
			b.WriteString(" (" + text + ")")
		}
	}
	if detail := p.Explanation.ReasonDetail; b.Len() == said && detail != "" { // such as too few nodes for a gang
		b.WriteString("; " + detail)
	}
	if text := nearestFit(p.Explanation.Nearest); text != "" {
		b.WriteString("; " + text)
	}
	advice := "ask for less"
	for _, clause := range p.Explanation.Clauses {
		advice = cmp.Or(clause.Advice, advice)
	}
	b.WriteString("; " + advice + ", or submit it with --hold")
	return exitError{exitNever, errors.New(b.String())}
}

// whichFail returns why nodes do not meet a clause. Nodes with the same reason are named together.
func whichFail(fails []contract.Failed) string {
	var reasons []string
	names := map[string][]string{}
	for _, f := range fails {
		if names[f.Reason] == nil {
			reasons = append(reasons, f.Reason)
		}
		names[f.Reason] = append(names[f.Reason], f.Name)
	}
	for i, why := range reasons {
		reasons[i] = nodeNames(names[why]) + ": " + why
	}
	return strings.Join(reasons, ", ")
}

// nearestFit returns by how much a request must be reduced in one resource to fit; empty if that is not known.
func nearestFit(n *api.Nearest) string {
	if n == nil {
		return ""
	}
	var parts []string
	if n.GPUs > 0 {
		parts = append(parts, fmt.Sprintf("%d %s", n.GPUs, plural(n.GPUs, "gpu", "gpus")))
	}
	if n.CPUs > 0 {
		parts = append(parts, fmt.Sprintf("%d %s", n.CPUs, plural(n.CPUs, "cpu", "cpus")))
	}
	if n.Memory > 0 {
		parts = append(parts, size(n.Memory)+" of memory")
	}
	if len(parts) == 0 {
		return ""
	}
	verb := "would start now with "
	if n.Ever {
		verb = "could run with "
	}
	return verb + strings.Join(parts, ", or with ")
}

func (v submitVerbs) runCommand() *cli.Command {
	return &cli.Command{
		Name: "run", Usage: "submit, follow the output, exit with the job's code; Ctrl-C detaches", ArgsUsage: "[--] COMMAND... | SCRIPT | -", Args: true,
		Description: "Standard input goes to the task, unless it is a terminal or /dev/null: in a loop that reads lines, use </dev/null, as with ssh. With -it the task has a terminal, from its start to its end. A job that gets input does not run again when its node is lost. Arrays and jobs with --retries get no input.",
		Flags: clientFlags(append(jobFlags(), dryRunFlag(), wideDryRunFlag(), keyFlag(),
			&cli.BoolFlag{Name: "it", Usage: "give the task a terminal: this one", DisableDefaultText: true},
			&cli.StringFlag{Name: "in", Usage: "run a step in job `ID` of muster alloc, on each of its nodes, instead of a new job"},
			&cli.BoolFlag{Name: "wait", Aliases: []string{"W"}, Hidden: true}, // run always waits and follows
			&cli.BoolFlag{Name: "follow", Aliases: []string{"f"}, Hidden: true})...),
		Action: v.run,
	}
}

func (v submitVerbs) run(c *cli.Context) error {
	if c.IsSet("in") {
		return v.step(c)
	}
	spec, err := v.specs.specOf(c)
	if err != nil {
		return ours(err)
	}
	in, err := v.inputOf(c, &spec)
	if err != nil {
		return err
	}
	client, err := clientOf(c)
	if err != nil {
		return err
	}
	defer client.Close()
	if c.Bool("dry-run") {
		return v.dryRun(c, client, spec)
	}
	if err := resolveParents(c.Context, client, &spec); err != nil {
		return ours(err)
	}
	if err := v.sendFiles(c, client, &spec); err != nil {
		return ours(err)
	}
	j, err := client.Submit(c.Context, spec, c.String("idempotency-key"))
	if err != nil {
		return ours(refused(err))
	}
	v.warnOf(j)
	f := follower{v.streams, client}
	if in != nil {
		err = f.followWithInput(c.Context, j, in)
	} else {
		err = f.follow(c.Context, j, v.out)
	}
	return f.download(c.Context, j.ID, spec, err)
}

// ours sets the exit code of an error of muster itself to 125, so that it is not taken for the exit code of the job.
func ours(err error) error {
	var exit exitError
	var usage usageError
	if err == nil || errors.As(err, &exit) || errors.As(err, &usage) || errors.Is(err, context.Canceled) {
		return err
	}
	return exitError{job.ExitMuster, err}
}

func (v submitVerbs) offersCommand() *cli.Command {
	return &cli.Command{
		Name: "offers", Usage: "say which nodes would take a job, and why the others would not", ArgsUsage: "[--] [COMMAND...]", Args: true,
		Flags: clientFlags(append(jobFlags(), wrapFlag(), jsonFlag())...),
		Action: func(c *cli.Context) error {
			spec, err := v.specs.offerSpec(c)
			if err != nil {
				return err
			}
			client, err := clientOf(c)
			if err != nil {
				return err
			}
			defer client.Close()
			_, err = v.offers(c, client, spec)
			return err
		},
	}
}

// offerSpec is specOf for a dry run, which needs no command.
func (r specReader) offerSpec(c *cli.Context) (job.Spec, error) {
	if c.Args().Present() || c.IsSet("file") {
		return r.specOf(c)
	}
	spec := job.DefaultSpec()
	spec.Command = []string{"true"}
	err := r.finishSpec(c, &spec, nil)
	return spec, err
}

// dryRun prints offers instead of submitting, with the exit codes of submit.
func (v submitVerbs) dryRun(c *cli.Context, client *api.Client, spec job.Spec) error {
	x, err := v.offers(c, client, spec)
	if err == nil && (x.Reason == job.ReasonNoMatch || len(x.Now) == 0 && len(x.Later) == 0) {
		return exitError{code: exitNever}
	}
	return err
}

func (v submitVerbs) offers(c *cli.Context, client *api.Client, spec job.Spec) (api.Explanation, error) {
	x, err := client.Offers(c.Context, forDryRun(spec))
	switch {
	case err != nil:
		return x, refused(err)
	case c.Bool("json"):
		return x, v.printJSON(x)
	}
	return x, explain(v.out, v.roomOf(c), x)
}

// explain prints where a request could run, and which requirements exclude which nodes.
func explain(out io.Writer, room int, x api.Explanation) error {
	w := new(table.Sheet)
	explanationRows(w, x, nil)
	return w.Print(out, room)
}

// explanationRows writes an explanation of a job. If begin is not nil, the job does not start before it.
func explanationRows(w *table.Sheet, x api.Explanation, begin *time.Time) {
	label := "now"
	if x.Job != "" {
		row(w, "job", string(x.Job))
		row(w, "state", string(x.State))
		name, state := string(x.Job), x.State
		if x.Task != nil {
			name, state = fmt.Sprintf("%s.%d", x.Job, *x.Task), x.TaskState
			row(w, fmt.Sprintf("task %d", *x.Task), string(state))
		}
		if state.Ended() || state == job.Running || state == job.Completing {
			row(w, "reason", "it no longer waits; see: muster show "+name)
			return
		}
		if state == job.Held || slices.Contains(job.BarringReasons(), x.Reason) {
			label = "has room"
		}
	}
	if x.Reason != "" {
		row(w, "reason", withDetail(x.Reason, x.ReasonDetail))
	}
	if x.Ahead > 0 {
		row(w, "ahead", fmt.Sprintf("%d other waiting %s before it now, of jobs that were submitted at the same node", x.Ahead, plural(x.Ahead, "task is", "tasks are")))
	}
	if text := startText(x, begin); text != "" {
		row(w, "starts", text)
	}
	clauseRows(w, x.Clauses)
	for _, n := range x.Now {
		row(w, label, n.Node+": "+localTimes(n.Why))
	}
	for _, n := range x.Later {
		row(w, "later", n.Node+": "+localTimes(n.Why))
	}
	if text := nearestFit(x.Nearest); text != "" {
		row(w, "nearest", text)
	}
	if len(x.Now) == 0 && x.Job == "" {
		row(w, "now", "no node")
	}
}

// clauseRows writes how many nodes meet each clause, and what the other nodes lack.
func clauseRows(w *table.Sheet, clauses []contract.Clause) {
	for _, c := range clauses {
		row(w, c.Clause, fmt.Sprintf("met by %d of %d nodes", c.Meets, c.Of))
		for _, f := range c.Fails {
			row(w, "", f.Name+": "+localTimes(f.Reason))
		}
		if c.Advice != "" {
			row(w, "", c.Advice)
		}
	}
}

// startText says when a job should start; empty if there is nothing to say.
func startText(x api.Explanation, begin *time.Time) string {
	waits := x.State == job.Pending || x.Estimated != nil
	switch {
	case x.Job == "" || x.State.Ended():
		return ""
	case x.State == job.Held:
		return "after its release: muster release " + string(x.Job)
	case x.Reason == job.ReasonDependencyNeverSatisfied:
		return "never: its dependencies cannot be met"
	case x.Reason == job.ReasonDependency && begin != nil:
		return "when its dependencies are met, and not before " + clock(begin)
	case x.Reason == job.ReasonDependency:
		return "when its dependencies are met"
	case begin != nil:
		return clock(begin) + " or later"
	case !waits, x.Reason == job.ReasonBeginTime && x.Estimated == nil: // the time has just come
		return ""
	}
	return latest(x.Estimated)
}
