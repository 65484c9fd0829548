package main

// The verbs that wait for jobs and change them.

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"

	"github.com/urfave/cli/v2"

	"github.com/musterhq/muster/api"
	"github.com/musterhq/muster/job"
)

// active returns the number of tasks that have resources.
func active(j api.Job) (n int) {
	for s, count := range j.Counts {
		if s.Active() {
			n += count
		}
	}
	return n
}

// progress returns how far a job of several tasks has come.
func progress(j api.Job) string {
	ended, failed := 0, 0
	for s, n := range j.Counts {
		if s.Ended() {
			ended += n
		}
		if s.Ended() && s != job.Succeeded && s != job.Cancelled {
			failed += n
		}
	}
	text := fmt.Sprintf("%d/%d done", ended, j.TaskCount)
	if failed > 0 {
		text += fmt.Sprintf(", %d failed", failed)
	}
	if n := j.Counts[job.Cancelled]; n > 0 {
		text += fmt.Sprintf(", %d cancelled", n)
	}
	return text
}

// reasonOf returns the reason of a job, or the exit code with which it failed. For a job of several tasks it returns how
// far it has come, for a gang only when some of its tasks have ended.
func reasonOf(j api.Job) string {
	reason := j.Reason
	if reason == "" && j.State == job.Failed && j.ExitCode != nil {
		reason = fmt.Sprintf("exit code %d", *j.ExitCode)
	}
	switch several := j.TaskCount > 1 && !isGang(j); {
	case several && (j.Reason == "" || j.Ended()):
		return progress(j)
	case several:
		return progress(j) + ", " + j.Reason
	case isGang(j) && reason == "" && !j.Ended() && j.Counts[job.Succeeded] > 0:
		return progress(j)
	}
	return reason
}

// chosen is a job that an argument names, and some of its tasks; none means all.
type chosen struct {
	api.Job
	tasks []job.Range
}

// selected returns the jobs that the arguments of a verb name. With an IncompleteError it returns those that there are.
func selected(c *cli.Context, client *api.Client) ([]chosen, error) {
	if err := wantArgs(c, 1, -1, "a job id, last or all"); err != nil {
		return nil, err
	}
	var all []chosen
	var incomplete error
	for _, arg := range c.Args().Slice() {
		some, err := selectedBy(c.Context, client, arg)
		if _, partly := errors.AsType[*api.IncompleteError](err); partly {
			incomplete = err
		} else if err != nil {
			return nil, err
		}
		all = append(all, some...)
	}
	return all, incomplete
}

// selectedBy returns the jobs that one argument names.
func selectedBy(ctx context.Context, client *api.Client, arg string) ([]chosen, error) {
	jobs, sel, err := client.Resolve(ctx, arg)
	all := make([]chosen, 0, len(jobs))
	for _, j := range jobs {
		all = append(all, chosen{j, sel.Tasks})
	}
	return all, asUsage(err)
}

func (v jobVerbs) waitCommand() *cli.Command {
	return &cli.Command{
		Name: "wait", Usage: "wait for jobs or tasks to end, and exit with the highest of their codes", ArgsUsage: "SEL...",
		Flags:  clientFlags(&cli.StringFlag{Name: "timeout", Usage: "give up after `D`, such as 90s; the jobs go on"}),
		Action: v.wait,
	}
}

func (v jobVerbs) wait(c *cli.Context) error {
	ctx := c.Context
	if c.IsSet("timeout") {
		d, err := job.ParseDuration(c.String("timeout"))
		if err != nil {
			return usagef("--timeout: %w", err)
		}
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, d.D())
		defer cancel()
	}
	client, err := clientOf(c)
	if err != nil {
		return err
	}
	defer client.Close()
	jobs, err := selected(c, client)
	_, partly := errors.AsType[*api.IncompleteError](err)
	if err != nil && !partly {
		return ours(err)
	}
	if partly { // said now, because the wait may be long
		say(v.err, err)
	}
	if err := (follower{v.streams, client}).waitFor(ctx, jobs); err != nil || !partly {
		return err
	}
	return exitError{code: job.ExitMuster}
}

func (v jobVerbs) cancelCommand() *cli.Command {
	return v.changeCommand("cancel", "cancel jobs or tasks", (*api.Client).Cancel,
		[]string{"kill", "stop"}, &cli.StringFlag{Name: "reason", Usage: "the reason, which muster show prints: `TEXT`"})
}

func (v jobVerbs) holdCommand() *cli.Command {
	return v.changeCommand("hold", "keep waiting jobs or tasks from starting", (*api.Client).Hold, nil)
}

func (v jobVerbs) releaseCommand() *cli.Command {
	return v.changeCommand("release", "release held jobs or tasks", (*api.Client).Release, nil)
}

func (v jobVerbs) requeueCommand() *cli.Command {
	return v.changeCommand("requeue", "run jobs or tasks again; those that run end first", (*api.Client).Requeue, nil,
		&cli.BoolFlag{Name: "failed", Usage: "only tasks that have ended without success", DisableDefaultText: true},
		&cli.StringFlag{Name: "reason", Usage: "the reason, for whoever follows a task that ends for it: `TEXT`"})
}

// joined returns errors as one, and says only once what several of them say.
func joined(errs []error) error {
	said := map[string]bool{}
	return errors.Join(slices.DeleteFunc(errs, func(err error) bool {
		again := said[err.Error()]
		said[err.Error()] = true
		return again
	})...)
}

// changeCommand returns a verb that changes each job that it names.
func (v jobVerbs) changeCommand(verb, usage string, change func(*api.Client, context.Context, job.ID, api.Change) (api.Job, error), aliases []string, more ...cli.Flag) *cli.Command {
	return &cli.Command{
		Name: verb, Aliases: aliases, Usage: usage, ArgsUsage: "SEL...", Flags: clientFlags(more...),
		Action: func(c *cli.Context) error {
			client, err := clientOf(c)
			if err != nil {
				return err
			}
			defer client.Close()
			if err := wantArgs(c, 1, -1, "a job id, last or all"); err != nil {
				return err
			}
			var failed []error
			var jobs []chosen
			for _, arg := range c.Args().Slice() { // a wrong argument does not keep the others from being changed
				some, err := selectedBy(c.Context, client, arg)
				if err != nil {
					failed = append(failed, err)
				}
				jobs = append(jobs, some...)
			}
			var notes noteLines
			done, errs := changeAll(jobs, func(j chosen) error {
				now, err := change(client, c.Context, j.ID, api.Change{Tasks: j.tasks, Failed: c.Bool("failed"), Reason: c.String("reason")})
				if err != nil {
					return fmt.Errorf("%s %s: %w", verb, j.ID, err)
				}
				notes.add(endsLater(verb, now))
				return nil
			})
			notes.print(v.err)
			failed = append(failed, errs...)
			if done > 0 && len(failed) > 0 && c.Err() == nil { // not exitUsage, which says that nothing was done
				return exitError{exitFailed, joined(failed)}
			}
			return asUsage(joined(failed))
		},
	}
}

// endsLater returns a line that says which tasks of a job that was told to end will end later, because their nodes do
// not answer. It is empty if there are none.
func endsLater(verb string, j api.Job) string {
	n := j.Counts[job.Unreachable]
	if n == 0 || verb != "cancel" && verb != "requeue" {
		return ""
	}
	var nodes []string
	for _, t := range j.Tasks {
		if t.State == job.Unreachable && !slices.Contains(nodes, t.Node) {
			nodes = append(nodes, t.Node)
		}
	}
	where := "their nodes do not answer"
	if len(nodes) > 0 {
		where = strings.Join(nodes, ", ") + plural(len(nodes), " does", " do") + " not answer"
	}
	return fmt.Sprintf("muster: %s %s: %s: %s when the node is back; if it is gone for good: muster node declare-dead NODE", verb, j.ID, where, plural(n, "the task ends", fmt.Sprintf("%d tasks end", n)))
}

// noteLines are lines for people, which several goroutines add.
type noteLines struct {
	mu    sync.Mutex
	lines []string // guarded by mu
}

func (n *noteLines) add(line string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if line != "" {
		n.lines = append(n.lines, line)
	}
}

func (n *noteLines) print(to io.Writer) {
	for _, line := range n.lines {
		fmt.Fprintln(to, printable(line))
	}
}

// ownersAtOnce bounds the owners whose jobs are changed at the same time. Each takes one request of the user at the
// daemon.
const ownersAtOnce = 8

// changeAll changes jobs, and returns how many were changed and the errors. The jobs of one owner are changed one after
// the other and those of several owners at the same time, so that an owner that does not answer does not delay the
// others. After such an owner's first error, the rest of its jobs is not tried.
func changeAll(all []chosen, change func(chosen) error) (done int, failed []error) {
	byOwner := map[job.Peer][]chosen{}
	var owners []job.Peer
	for _, j := range all {
		if byOwner[j.Owner] == nil {
			owners = append(owners, j.Owner)
		}
		byOwner[j.Owner] = append(byOwner[j.Owner], j)
	}
	room := make(chan struct{}, ownersAtOnce)
	errs, changed := make([][]error, len(owners)), make([]int, len(owners))
	var wg sync.WaitGroup
	for i, owner := range owners {
		wg.Go(func() {
			room <- struct{}{}
			defer func() { <-room }()
			changed[i], errs[i] = changeInTurn(byOwner[owner], change)
		})
	}
	wg.Wait()
	for i, n := range changed {
		done, failed = done+n, append(failed, errs[i]...)
	}
	return done, failed
}

// changeInTurn changes the jobs of one owner until it does not answer.
func changeInTurn(jobs []chosen, change func(chosen) error) (done int, failed []error) {
	for i, j := range jobs {
		err := change(j)
		if err == nil {
			done++
			continue
		}
		failed = append(failed, err)
		if left := len(jobs) - i - 1; left > 0 && errors.Is(err, api.ErrUnavailable) {
			return done, append(failed, fmt.Errorf("%d more %s of %s not tried", left, plural(left, "job", "jobs"), cmp.Or(j.OwnerName, string(j.Owner))))
		}
	}
	return done, failed
}
