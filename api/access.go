package api

// Who may see which parts of a job, and who may change it: one table, and the functions that apply it. The daemon that owns
// a job decides, also for a request that another daemon forwards. See docs/adr, ADR 119.

import (
	"fmt"

	"github.com/musterhq/muster/job"
)

// part is a part of a job's data, or a group of actions on a job.
type part int

const (
	partRow    part = iota // name, user, states, reasons, exit codes, resources, nodes, times
	partOutput             // output of its tasks, the last lines of stderr
	partSpec               // the job file: command, script, parameters, environment, paths
	partFiles              // files of its tasks, running and kept
	partInside             // commands in its tasks, their input, their process ids
	partChange             // cancel, hold, release, requeue, forget
	parts
)

// others says when users who are neither the job's user nor operators have access to a part.
type others int

const (
	never    others = iota
	ifShared        // if the job has share_output
	unlessOwn
)

// sights is the table for others. The job's user and operators have access to all parts.
var sights = [parts]others{
	partRow:    unlessOwn, // unless the daemon's setting visibility is own
	partOutput: ifShared,
	partSpec:   never,
	partFiles:  never,
	partInside: never,
	partChange: never,
}

// may reports whether the requester may see or use a part of a job.
func (a requester) may(p part, j *job.Job) bool {
	if a.operator || (a.user != "" && a.user == j.User) {
		return true
	}
	switch sights[p] {
	case unlessOwn:
		return !a.ownOnly
	case ifShared:
		return j.Spec.ShareOutput && !a.ownOnly
	case never:
	}
	return false
}

// require returns an error if the requester has no access to the part. It is ErrNotFound if the requester may not even see
// the job in listings, else ErrDenied.
func (a requester) require(p part, j *job.Job, verb string) error {
	switch {
	case a.may(p, j):
		return nil
	case !a.may(partRow, j):
		return &notFoundError{"job", string(j.ID), "this daemon shows users only their own jobs"}
	}
	return fmt.Errorf("%s job %s: %w: it belongs to %s, and you are %s", verb, j.ID, ErrDenied, j.User, a.user)
}

// shown returns the document of a job without what the requester may not see.
func (a requester) shown(j *job.Job, d Job) Job {
	if d.Spec != nil && !a.may(partSpec, j) {
		d.Spec = publicSpec(d.Spec)
	}
	for i := range d.Tasks {
		a.hide(j, &d.Tasks[i])
	}
	return d
}

// hide removes from the document of a task what the requester may not see.
func (a requester) hide(j *job.Job, t *Task) {
	if !a.may(partOutput, j) {
		t.StderrTail = ""
	}
	if !a.may(partInside, j) {
		t.PID = 0
	}
}

// publicSpec returns what all users see of a job file: the name and what the job asks for.
func publicSpec(s *job.Spec) *job.Spec {
	return &job.Spec{
		Name: s.Name, Resources: s.Resources, Nodes: s.Nodes, TasksPerNode: s.TasksPerNode, Array: s.Array, TimeLimit: s.TimeLimit, DefaultTime: s.DefaultTime, Begin: s.Begin,
		Priority: s.Priority, Preemptible: s.Preemptible, Retries: s.Retries, Requeue: s.Requeue, Exclusive: s.Exclusive, Project: s.Project,
		Dependency: s.Dependency, ShareOutput: s.ShareOutput,
	}
}
