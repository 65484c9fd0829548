package scheduler

// The queue as people see it: for how long jobs wait, and whose they are.

import (
	"slices"
	"time"

	"github.com/musterhq/muster/internal/fairshare"
	"github.com/musterhq/muster/internal/waittime"
	"github.com/musterhq/muster/job"
)

// Queue is what the jobs of this owner run and wait for.
type Queue struct {
	Demands []Demand        // by account
	Waited  waittime.Counts // of the jobs that started within the last hour, in this life of the daemon
	// Oldest is when the job that has waited longest began to wait, by the wall clock; zero: no job waits. A job waits
	// from the time when it could have been placed, had there been room, until the first of its tasks is sent to a host,
	// and again while none of its tasks is assigned.
	Oldest time.Time
}

// Demand is what the jobs of one account run and wait for.
type Demand struct {
	fairshare.Account
	Running int     // tasks that are assigned to a host
	Waiting int     // tasks that are PENDING
	GPUs    float64 // that the running tasks hold; shares of a GPU count as such
}

// Queue returns what runs and waits, and for how long.
func (v View) Queue() Queue {
	c := v.core
	q := Queue{Waited: c.turn.Waited.Counts(c.turn.Now)}
	by := map[fairshare.Account]*Demand{}
	for _, e := range c.entries.byID { // once, because each job is a miss of the cache
		counts := e.job.Counts()
		running, waiting := e.job.Assigned(), counts.Of(job.Pending)
		if running+waiting == 0 {
			continue
		}
		who := fairshare.Account{User: e.job.User, Project: e.job.Spec.Project}
		d := by[who]
		if d == nil {
			d = &Demand{Account: who}
			by[who] = d
		}
		need := &e.job.Spec.Resources
		d.Running += running
		d.Waiting += waiting
		d.GPUs += float64(running) * (float64(need.GPUs) + need.GPUShare)
		if running > 0 {
			continue
		}
		if since := e.waitsSince(); !since.IsZero() && (q.Oldest.IsZero() || since.Before(q.Oldest)) {
			q.Oldest = since
		}
	}
	q.Oldest = q.Oldest.Round(0)
	for _, d := range by {
		q.Demands = append(q.Demands, *d)
	}
	slices.SortFunc(q.Demands, func(a, b Demand) int { return a.Compare(b.Account) })
	return q
}

// waitsSince returns since when the job, which has PENDING tasks and none that is assigned, waits for a host; zero: it
// does not, because it waits for something else.
func (e *entry) waitsSince() (since time.Time) {
	if !e.placed {
		return e.eligible
	}
	for _, t := range e.tasks { // the job was placed before, so only tasks count that had an attempt and wait again
		if at := t.Waited; t.durable().Attempt > 0 && !at.IsZero() && (since.IsZero() || at.Before(since)) {
			since = at
		}
	}
	return since
}
