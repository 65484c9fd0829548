package main

// The verbs show and why: everything about one job, and the attempts of tasks that had several.

import (
	"context"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/musterhq/muster/api"
	"github.com/musterhq/muster/cmd/muster/table"
	"github.com/musterhq/muster/job"
)

func (v jobVerbs) showCommand() *cli.Command {
	return &cli.Command{
		Name: "show", Aliases: []string{"info", "describe", "inspect"}, Usage: "show everything about a job", ArgsUsage: "ID",
		Flags: clientFlags(wrapFlag(), jsonFlag()),
		Action: func(c *cli.Context) error {
			client, err := clientOf(c)
			if err != nil {
				return err
			}
			defer client.Close()
			j, tasks, err := oneJob(c, client)
			if err != nil {
				return err
			}
			if j, err = client.Job(c.Context, j.ID); err != nil { // listings do not have the spec
				return err
			}
			if err := addShown(c.Context, client, &j, tasks); err != nil {
				return err
			}
			if c.Bool("json") {
				return v.printJSON(j)
			}
			return showJob(v.out, v.roomOf(c), j, usageNow(c.Context, client, j))
		},
	}
}

// addShown adds the tasks that are shown to the document of the job: those that the argument names, or for a large job
// the first that failed.
func addShown(ctx context.Context, client *api.Client, j *api.Job, tasks []job.Range) error {
	filter := api.TaskFilter{Tasks: tasks}
	switch {
	case len(tasks) > 0:
	case j.TaskCount <= maxShown:
		return nil // they are in the document
	default:
		filter = api.TaskFilter{States: failures, Limit: maxShown}
	}
	j.Tasks = []api.Task{}
	for t, err := range client.AllTasks(ctx, j.ID, filter) {
		if err != nil {
			return asUsage(err)
		}
		if j.Tasks = append(j.Tasks, t); filter.Limit > 0 && len(j.Tasks) == filter.Limit {
			break
		}
	}
	return nil
}

// maxShown is how many tasks show prints of a large job: those that failed.
const maxShown = 20

// failures are the states in which a task has failed.
var failures = []job.State{job.Failed, job.Timeout, job.OutOfMemory, job.NodeFail}

func showJob(out io.Writer, room int, j api.Job, now *api.TaskUsage) error {
	w := new(table.Sheet)
	row(w, "job", string(j.ID))
	row(w, "name", dash(j.Name))
	row(w, "user", j.User)
	state := string(j.State)
	if j.Reason != "" {
		state += " (" + withDetail(j.Reason, j.ReasonDetail) + ")"
	}
	row(w, "state", state)
	if j.ExitCode != nil {
		row(w, "exit code", fmt.Sprint(*j.ExitCode))
	}
	specRows(w, j)
	row(w, "asks for", needOf(j))
	row(w, "priority", fmt.Sprint(j.Priority))
	dependencyRows(w, j)
	row(w, "submitted", clock(&j.SubmittedAt))
	switch {
	case j.State != job.Pending:
	case j.Reason == job.ReasonBeginTime && j.Spec != nil && j.Spec.Begin != nil:
		row(w, "starts", clock(j.Spec.Begin)+" or later")
	case notBefore(j) != nil:
		row(w, "starts", clock(notBefore(j))+" or later")
	default:
		row(w, "starts", latest(j.Estimated))
	}
	row(w, "started", clock(j.StartedAt))
	row(w, "ended", clock(j.EndedAt))
	row(w, "elapsed", elapsed(j.StartedAt, j.EndedAt, nowOf(j)))
	row(w, "owner", fmt.Sprintf("%s, kept in %d %s", ownerOf(j), j.Copies, plural(j.Copies, "copy", "copies")))
	if j.Spec != nil && !j.Ended() {
		row(w, "if silent", ifSilent(j))
	}
	if j.TaskCount > 1 {
		severalRows(w, j)
	}
	for _, t := range j.Tasks {
		if j.TaskCount <= 1 && t.Attempt > 0 {
			taskRows(w, j.State, t)
			usageRows(w, j, t, now)
		}
	}
	if err := w.Print(out, room); err != nil {
		return err
	}
	return attemptTable(out, room, j)
}

// specRows writes what the job runs, and where it may run.
func specRows(w *table.Sheet, j api.Job) {
	if j.Spec == nil {
		return
	}
	row(w, "command", commandOf(*j.Spec))
	trusted := ""
	if j.Spec.TrustedLabels {
		trusted = "only signed ones count"
	}
	for _, given := range []struct{ what, value string }{
		{"image", j.Spec.Image},
		{"workdir", j.Spec.Workdir},
		{"constraint", j.Spec.Constraint},
		{"prefer", j.Spec.Prefer},
		{"labels", trusted},
		{"nodelist", job.NodesText(j.Spec.NodeList)},
		{"exclude", job.NodesText(j.Spec.Exclude)},
	} {
		if given.value != "" {
			row(w, given.what, given.value)
		}
	}
	if j.Spec.Begin != nil {
		row(w, "begin", clock(j.Spec.Begin))
	}
}

// ifSilent says in one sentence what happens to a task when its node and its owner lose contact.
func ifSilent(j api.Job) string {
	again := "runs elsewhere"
	if !j.Spec.Requeue {
		again = "ends as NODE_FAIL"
	}
	if j.Spec.Holds() {
		return fmt.Sprintf("a task goes on without contact; it %s only after its node has said that it is gone or has restarted, or was declared dead (hold)", again)
	}
	ends := fmt.Sprintf("a task that has had no contact with %s for %s ends on its node", ownerOf(j), job.Duration(j.Spec.LeaseOr()))
	if nodes := unfencedNodes(j.Tasks); len(nodes) > 0 {
		return fmt.Sprintf("%s; on %s, of which that is not certain, it %s only after that node is back, has rebooted or was declared dead (fence)", ends, strings.Join(nodes, ", "), again)
	}
	return fmt.Sprintf("%s, and then it %s (fence)", ends, again)
}

// unfencedNodes returns the nodes of the tasks that do not certainly end tasks when their leases expire.
func unfencedNodes(tasks []api.Task) (nodes []string) {
	for _, t := range tasks {
		if (t.Fencing == "no" || t.Fencing == "unknown") && !slices.Contains(nodes, t.Node) {
			nodes = append(nodes, t.Node)
		}
	}
	return nodes
}

// dependencyRows writes the dependencies of a job, and the state of each.
func dependencyRows(w *table.Sheet, j api.Job) {
	what := "depends on"
	if j.Spec != nil && len(j.Spec.Dependency) == 1 && strings.Contains(j.Spec.Dependency[0], "?") {
		what = "depends on any"
	}
	for _, d := range j.Dependencies {
		text := fmt.Sprintf("%s:%s", d.Condition, d.Job)
		if d.Delay > 0 {
			text += fmt.Sprintf("+%d", int(d.Delay/60))
		}
		text += " " + string(d.State)
		switch more := strings.TrimPrefix(string(d.JobState)+", "+d.Detail, ", "); {
		case d.Detail == "" && d.JobState != "":
			text += ": " + string(d.JobState)
		case d.Detail != "":
			text += ": " + localTimes(more)
		}
		row(w, what, text)
		what = ""
	}
}

// taskRows writes where a task of a job in that state runs or ran, and its resources.
func taskRows(w *table.Sheet, state job.State, t api.Task) {
	where := fmt.Sprintf("attempt %d on %s (%s)", t.Attempt, dash(t.Node), t.NodeID)
	if t.PID > 0 {
		where += fmt.Sprintf(", pid %d", t.PID)
	}
	row(w, fmt.Sprintf("task %d", t.Task), where)
	if t.Isolation != "" {
		row(w, "", "confined by "+t.Isolation)
	}
	for _, g := range t.GPUs {
		row(w, "", "gpu "+g)
	}
	if t.StderrTail != "" && state.Ended() && state != job.Succeeded {
		for line := range strings.SplitSeq(strings.TrimRight(t.StderrTail, "\n"), "\n") {
			row(w, "", "stderr: "+line)
		}
	}
}

func commandOf(s job.Spec) string {
	if s.Script == "" && len(s.Command) == 0 && s.Image == "" {
		return "only its user sees it"
	}
	if s.Script != "" {
		return strings.TrimSpace(fmt.Sprintf("a script of %d lines %s", len(strings.Split(strings.TrimSuffix(s.Script, "\n"), "\n")), quoted(s.Args)))
	}
	return quoted(s.Command)
}

// plainWord is a word that a shell takes as it is.
var plainWord = regexp.MustCompile(`^[A-Za-z0-9_@%+=:,./{}-]+$`)

// quoted writes words as they are typed in a shell.
func quoted(words []string) string {
	typed := make([]string, len(words))
	for i, w := range words {
		if typed[i] = w; !plainWord.MatchString(w) {
			typed[i] = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
		}
	}
	return strings.Join(typed, " ")
}

func needOf(j api.Job) string {
	r := j.Resources
	parts := []string{fmt.Sprintf("%d %s", r.CPUs, plural(r.CPUs, "cpu", "cpus"))}
	if r.Memory > 0 {
		parts = append(parts, size(r.Memory)+" memory")
	}
	if r.GPUs > 0 {
		parts = append(parts, strings.Join(strings.Fields(fmt.Sprintf("%d %s %s", r.GPUs, r.GPUModel, plural(r.GPUs, "gpu", "gpus"))), " "))
	}
	if r.GPUShare > 0 {
		parts = append(parts, fmt.Sprintf("%g of a gpu", r.GPUShare))
	}
	if r.GPUMemory > 0 {
		parts = append(parts, size(r.GPUMemory)+" on each")
	}
	if j.Spec != nil && j.Spec.Exclusive {
		parts = append(parts, "a whole node")
	}
	if j.Nodes > 1 {
		parts = append(parts, fmt.Sprintf("on each of %d nodes", j.Nodes))
	}
	if j.TimeLimit > 0 {
		limit := "at most " + job.Duration(j.TimeLimit*float64(time.Second)).String()
		if j.DefaultTime {
			limit += " (the default)"
		}
		parts = append(parts, limit)
	}
	return strings.Join(parts, ", ")
}

func (v jobVerbs) whyCommand() *cli.Command {
	return &cli.Command{
		Name: "why", Usage: "explain why a job, or a task of it, has not started", ArgsUsage: "ID[.T]",
		Flags: clientFlags(wrapFlag(), jsonFlag()),
		Action: func(c *cli.Context) error {
			client, err := clientOf(c)
			if err != nil {
				return err
			}
			defer client.Close()
			j, tasks, err := oneJob(c, client)
			if err != nil {
				return err
			}
			x, err := client.Why(c.Context, j.ID, tasks)
			if err != nil {
				return err
			}
			if c.Bool("json") {
				return v.printJSON(x)
			}
			w := new(table.Sheet)
			explanationRows(w, x, notBefore(j))
			if strings.HasPrefix(x.Reason, job.ReasonDependency) {
				if j, err = client.Job(c.Context, j.ID); err != nil { // listings do not have the dependencies
					return err
				}
				dependencyRows(w, j)
			}
			return w.Print(v.out, v.roomOf(c))
		},
	}
}

// maxAttemptRows bounds the attempts that show prints for all tasks together.
const maxAttemptRows = 64

// attemptTable writes the outcomes of the attempts of the document's tasks, for each task that had several.
func attemptTable(out io.Writer, room int, j api.Job) error {
	l, _ := j.Layout() // without one, tasks have their numbers
	w := new(table.Sheet)
	rows, left := 0, 0
	for _, t := range j.Tasks {
		if len(t.Attempts)+t.Older < 2 {
			continue
		}
		if rows+len(t.Attempts) > maxAttemptRows {
			left++
			continue
		}
		if rows == 0 {
			row(w, "TASK", "ATTEMPT", "NODE", "STATE", "EXIT", "TIME", "ENDED", "REASON")
		}
		rows += len(t.Attempts)
		attemptRows(w, l.Name(t.Task), t, nowOf(j))
	}
	err := w.Print(out, room)
	if left > 0 && err == nil {
		_, err = fmt.Fprintf(out, "%d more tasks had several attempts; name tasks to see theirs, such as ID.3\n", left)
	}
	return err
}

// attemptRows writes the attempts of a task. now is the time by the clock that its times are from.
func attemptRows(w *table.Sheet, name string, t api.Task, now time.Time) {
	if t.Older > 0 {
		row(w, name, "...", "", "", "", "", "", fmt.Sprintf("%d older %s", t.Older, plural(t.Older, "attempt", "attempts")))
	}
	for _, a := range t.Attempts {
		code := "-"
		switch {
		case a.Signal > 0:
			code = fmt.Sprintf("signal %d", a.Signal)
		case a.ExitCode != nil:
			code = strconv.Itoa(*a.ExitCode)
		}
		took := "-"
		if a.StartedAt != nil && (a.EndedAt != nil || !a.State.Ended()) {
			took = elapsed(a.StartedAt, a.EndedAt, now)
		}
		row(w, name, strconv.Itoa(a.Attempt), dash(a.Node), string(a.State), code, took, clock(a.EndedAt), dash(a.Reason))
	}
}
