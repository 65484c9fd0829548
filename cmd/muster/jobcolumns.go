package main

// The columns of a listing of jobs.

import (
	"cmp"
	"strconv"
	"time"

	"github.com/musterhq/muster/api"
	"github.com/musterhq/muster/cmd/muster/table"
	"github.com/musterhq/muster/job"
)

// jobColumns returns the columns of a job. start says that the listing is about when jobs start.
func jobColumns(start bool) table.Columns[api.Job] {
	took, startLevel := table.Usual, table.Chosen
	if start {
		took, startLevel = table.Wide, table.Usual
	}
	return table.Columns[api.Job]{
		{Name: "id", Help: "the id of the job", IsKey: true, Cell: func(j api.Job) string { return string(j.ID) }},
		{Name: "name", Help: "its name", Least: 6, Cell: func(j api.Job) string { return dash(j.Name) }},
		{Name: "user", Help: "who submitted it", Least: 4, Cell: func(j api.Job) string { return j.User }},
		{Name: "st", Help: "its state as a code of Slurm", Cell: func(j api.Job) string { return j.State.Code() }},
		{Name: "state", Help: "its state", Level: table.Chosen, Cell: func(j api.Job) string { return string(j.State) }},
		{Name: "time", Help: "how long it has run", Level: took, Cell: jobTime, Order: table.By(timeOf)},
		{Name: "start", Help: "when it should start at the latest; from TIME: not before its --begin", Level: startLevel, Cell: startCell, Order: byTime(expectedStart)},
		{Name: "node", Help: "where it runs", Level: took, Least: 6, Cell: func(j api.Job) string { return dash(placeOf(j)) }},
		{Name: "gpus", Help: "its GPUs, or the share of one", Cell: jobGPUs, Order: table.By(gpuAmount)},
		{Name: "cpus", Help: "CPUs of each task", Level: table.Chosen, Cell: func(j api.Job) string { return strconv.Itoa(j.Resources.CPUs) }, Order: table.By(func(j api.Job) int { return j.Resources.CPUs })},
		{Name: "memory", Help: "memory of each task", Level: table.Chosen, Cell: func(j api.Job) string { return size(j.Resources.Memory) }, Order: table.By(func(j api.Job) int64 { return j.Resources.Memory })},
		{Name: "model", Help: "the model of its GPUs", Level: table.Chosen, Cell: func(j api.Job) string { return dash(j.Resources.GPUModel) }},
		{Name: "tasks", Help: "how many tasks it has", Level: table.Chosen, Cell: func(j api.Job) string { return strconv.Itoa(j.TaskCount) }, Order: table.By(func(j api.Job) int { return j.TaskCount })},
		{Name: "array", Help: "the numbers of its array", Level: table.Chosen, Least: 6, Cell: func(j api.Job) string { return dash(j.Array) }},
		{Name: "submitted", Help: "when it was submitted", Level: table.Wide, Cell: func(j api.Job) string { return clock(&j.SubmittedAt) }, Order: byTime(func(j api.Job) *time.Time { return &j.SubmittedAt })},
		{Name: "started", Help: "when it began to run", Level: table.Chosen, Cell: func(j api.Job) string { return clock(j.StartedAt) }, Order: byTime(func(j api.Job) *time.Time { return j.StartedAt })},
		{Name: "ended", Help: "when it ended", Level: table.Chosen, Cell: func(j api.Job) string { return clock(j.EndedAt) }, Order: byTime(func(j api.Job) *time.Time { return j.EndedAt })},
		{Name: "priority", Help: "its priority, 0 to 100", Level: table.Wide, Cell: func(j api.Job) string { return strconv.Itoa(j.Priority) }, Order: table.By(func(j api.Job) int { return j.Priority })},
		{Name: "limit", Help: "its time limit", Level: table.Wide, Cell: jobLimit, Order: table.By(func(j api.Job) float64 { return j.TimeLimit })},
		{Name: "exit", Help: "its highest exit code", Level: table.Wide, Cell: jobExit, Order: table.By(func(j api.Job) int { return exitOf(j) })},
		{Name: "owner", Help: "the node whose daemon keeps it", Level: table.Chosen, Least: 6, Cell: func(j api.Job) string { return ownerOf(j) }},
		{Name: "owner-id", Help: "the id of that node", Level: table.Chosen, Cell: func(j api.Job) string { return string(j.Owner) }},
		{Name: "reason", Help: "why it waits, how far it is, or how it ended", Least: 8, Cell: func(j api.Job) string { return dash(localTimes(reasonOf(j))) }},
	}
}

// byTime orders items by a time; those without one come last.
func byTime[T any](at func(T) *time.Time) func(a, b T) int {
	return func(a, b T) int {
		x, y := at(a), at(b)
		if x == nil || y == nil {
			return cmp.Compare(b2i(x == nil), b2i(y == nil))
		}
		return x.Compare(*y)
	}
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// waits reports whether the job waits: it is PENDING or HELD.
func waits(j api.Job) bool { return j.State == job.Pending || j.State == job.Held }

// jobTime returns how long a job has run, in at most two units.
func jobTime(j api.Job) string {
	if waits(j) || j.StartedAt == nil {
		return "-"
	}
	d := timeOf(j)
	switch {
	case d >= 24*time.Hour:
		d = d.Truncate(time.Hour)
	case d >= time.Hour:
		d = d.Truncate(time.Minute)
	case d >= time.Minute:
		d = d.Round(time.Second)
	default:
		d = d.Round(time.Millisecond)
	}
	return job.Duration(d).String()
}

func timeOf(j api.Job) time.Duration {
	switch {
	case waits(j) || j.StartedAt == nil:
		return -1
	case j.EndedAt != nil:
		return j.EndedAt.Sub(*j.StartedAt)
	}
	return max(nowOf(j).Sub(*j.StartedAt), -1) // -1: not known, as that clock has changed
}

// placeOf returns where a job runs or ran. While the job waits, the nodes in its document belong to an attempt that has
// ended.
func placeOf(j api.Job) string {
	if waits(j) {
		return ""
	}
	return nodesOf(j)
}

// jobGPUs returns how many GPUs a job has or asks for, or which share of a GPU each of its tasks has.
func jobGPUs(j api.Job) string {
	if share := j.Resources.GPUShare; share > 0 {
		return strconv.FormatFloat(share, 'g', -1, 64)
	}
	return strconv.Itoa(int(gpuAmount(j)))
}

func gpuAmount(j api.Job) float64 {
	if share := j.Resources.GPUShare; share > 0 {
		return share
	}
	whole := 0
	for _, t := range j.Tasks {
		whole += len(t.GPUs)
	}
	if whole == 0 {
		whole = j.Resources.GPUs * max(1, j.Nodes, active(j))
	}
	return float64(whole)
}

func jobLimit(j api.Job) string {
	if j.TimeLimit == 0 {
		return "-"
	}
	return seconds(j.TimeLimit)
}

func jobExit(j api.Job) string {
	if j.ExitCode == nil {
		return "-"
	}
	return strconv.Itoa(*j.ExitCode)
}

func exitOf(j api.Job) int {
	if j.ExitCode == nil {
		return -1
	}
	return *j.ExitCode
}

// ownerOf returns the name of the node whose daemon owns the job.
func ownerOf(j api.Job) string { return cmp.Or(j.OwnerName, string(j.Owner), "-") }
