package main

// How jobs of several tasks are shown: arrays, gangs, and arrays of gangs.

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/musterhq/muster/api"
	"github.com/musterhq/muster/cmd/muster/table"
	"github.com/musterhq/muster/job"
)

// taskName returns how people name the task with this number, after the job's id and a dot.
func taskName(j api.Job, number int) string {
	l, err := j.Layout()
	if err != nil {
		return strconv.Itoa(number)
	}
	return l.Name(number)
}

// taskWord returns the word for a task of the job.
func taskWord(j api.Job) string {
	if isGang(j) {
		return "rank"
	}
	return "task"
}

// isGang reports whether the job is one gang.
func isGang(j api.Job) bool { return j.Nodes > 1 && j.Array == "" }

// severalRows writes how many tasks are in each state, and a line for each of the document's tasks.
func severalRows(w *table.Sheet, j api.Job) {
	parts := []string{}
	for _, s := range job.States() {
		if n := j.Counts[s]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, s))
		}
	}
	if j.Array != "" {
		row(w, "array", fmt.Sprintf("%s: %s", j.Array, progress(j)))
	}
	row(w, taskWord(j)+"s", strings.Join(parts, ", "))
	l, err := j.Layout()
	for _, t := range j.Tasks {
		row(w, fmt.Sprintf("%s %s", taskWord(j), l.Name(t.Task)), taskLine(t, nowOf(j)))
	}
	if err == nil && len(j.Tasks) < j.TaskCount {
		row(w, "", fmt.Sprintf("other %ss: muster show %s.%s", taskWord(j), j.ID, page(j, l)))
	}
}

// page returns the numbers of the first tasks of a job, about a hundred.
func page(j api.Job, l job.Layout) string {
	last := min(99, j.TaskCount-1)
	first, end, _ := strings.Cut(l.Name(l.Number(0)), ".")
	if end == "" {
		return fmt.Sprintf("%s-%s", first, l.Name(l.Number(last)))
	}
	until, _, _ := strings.Cut(l.Name(l.Number(last)), ".")
	return fmt.Sprintf("%s-%s", first, until)
}

// taskLine returns the state of a task in one line. now is the time by the clock that its times are from.
func taskLine(t api.Task, now time.Time) string {
	text := string(t.State)
	if t.Reason != "" {
		text += " (" + withDetail(t.Reason, t.ReasonDetail) + ")"
	}
	if t.ExitCode != nil && t.State != job.Succeeded {
		text += fmt.Sprintf(", exit code %d", *t.ExitCode)
	}
	if t.Attempt > 0 {
		text += fmt.Sprintf(", attempt %d on %s, %s", t.Attempt, dash(t.Node), elapsed(t.StartedAt, t.EndedAt, now))
	}
	return text
}

// nodesOf returns where the tasks of a job are, for a column of a table: one name, the names of a gang's nodes, or how
// many nodes these are.
func nodesOf(j api.Job) string {
	var names []string
	for _, t := range j.Tasks {
		if t.Node != "" && !slices.Contains(names, t.Node) {
			names = append(names, t.Node)
		}
	}
	switch {
	case isGang(j) && len(j.Tasks) < j.Nodes:
		return fmt.Sprintf("%d nodes", j.Nodes) // listings do not have so many tasks
	case j.TaskCount > 1 && !isGang(j):
		return ""
	}
	return nodeNames(names)
}

// nodeNames returns names as --nodelist takes them. Those that differ only in a number at their end are put together,
// such as n[1-3,7].
func nodeNames(names []string) string {
	type group struct {
		stem    string
		numbers []int
	}
	var groups []group
	for _, name := range names {
		stem := strings.TrimRight(name, "0123456789")
		n, err := strconv.Atoi(name[len(stem):])
		if err != nil || strconv.Itoa(n) != name[len(stem):] { // none, or with zeros before it
			groups = append(groups, group{stem: name})
			continue
		}
		i := slices.IndexFunc(groups, func(g group) bool { return g.stem == stem && g.numbers != nil })
		if i < 0 {
			i, groups = len(groups), append(groups, group{stem: stem})
		}
		groups[i].numbers = append(groups[i].numbers, n)
	}
	parts := make([]string, 0, len(groups))
	for _, g := range groups {
		switch len(g.numbers) {
		case 0:
			parts = append(parts, g.stem)
		case 1:
			parts = append(parts, g.stem+strconv.Itoa(g.numbers[0]))
		default:
			parts = append(parts, g.stem+"["+numberRanges(g.numbers)+"]")
		}
	}
	return strings.Join(parts, ",")
}

// numberRanges returns different numbers as ranges.
func numberRanges(numbers []int) string {
	slices.Sort(numbers)
	var ranges []job.Range
	for _, n := range numbers {
		if k := len(ranges); k > 0 && ranges[k-1].Last+1 == n {
			ranges[k-1].Last = n
			continue
		}
		ranges = append(ranges, job.Range{First: n, Last: n})
	}
	return job.RangesText(ranges)
}
