//go:build e2e

package e2e

// The events of real daemons, in the form of the records of a simulation, so that both are counted in the same way.

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/musterhq/muster/api"
	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/internal/sim/record"
	"github.com/musterhq/muster/job"
)

// seen is what is known of one attempt of a job: of a task, or of a gang as a whole.
type seen struct {
	begins, ends time.Time
	all          bool // each member has begun
	states       []job.State
	alloc        []record.Alloc
}

// records returns what happened to the jobs, from begun on. A host died at a given time.
func (c *devCluster) records(jobs []submitted, docs []api.Job, begun time.Time, victim int, died time.Time) record.Log {
	c.t.Helper()
	var all record.Log
	add := func(at time.Time, r record.Record) {
		r.At = at.Sub(begun)
		all = append(all, r)
	}
	for i, doc := range docs {
		if doc.State != job.Succeeded {
			c.t.Errorf("job %d, %s, is %s: got %s, want SUCCEEDED", i, doc.ID, doc.State, doc.Reason)
		}
		attempts := c.attempts(&doc, jobs[i].owner)
		for _, n := range slices.Sorted(maps.Keys(attempts)) {
			x := attempts[n]
			if !x.all {
				continue
			}
			add(x.begins, record.Record{Kind: record.Start, Job: i, Alloc: x.alloc})
			kind, at := record.Finish, x.ends
			switch {
			case slices.Contains(x.states, job.Preempted):
				kind = record.Preempt
			case slices.ContainsFunc(x.states, func(s job.State) bool { return s != job.Succeeded }):
				kind = record.Lost
				if slices.ContainsFunc(x.alloc, func(a record.Alloc) bool { return a.Machine == victim }) {
					at = died
				}
			}
			add(at, record.Record{Kind: kind, Job: i})
		}
	}
	slices.SortStableFunc(all, func(a, b record.Record) int { return cmp.Compare(a.At, b.At) })
	return all
}

// attempts returns the attempts of a job by their numbers. An attempt of which no member has begun is left out.
func (c *devCluster) attempts(doc *api.Job, owner int) map[int]*seen {
	c.t.Helper()
	all := map[int]*seen{}
	for _, t := range doc.Tasks {
		told := map[int]api.Attempt{}
		for _, a := range t.Attempts {
			told[a.Attempt] = a
		}
		for k := 1; k <= t.Attempt; k++ {
			n, begun := c.noteOf(doc.ID, t.Task, k)
			if !begun {
				continue
			}
			x := all[k]
			if x == nil {
				x = &seen{}
				all[k] = x
			}
			a := told[k]
			x.states = append(x.states, a.State)
			begins := n.at
			if a.StartedAt != nil {
				begins = *a.StartedAt
			}
			if begins.After(x.begins) {
				x.begins = begins
			}
			if a.EndedAt != nil && a.EndedAt.After(x.ends) {
				x.ends = *a.EndedAt
			}
			m := record.Alloc{Machine: n.machine, Devices: n.devices}
			if m.Machine != owner {
				m.Hops = 1
			}
			if len(m.Devices) > 0 {
				m.Milli = gpu.Milli(doc.Spec.Resources)
			}
			x.alloc = append(x.alloc, m)
			x.all = len(x.alloc) == doc.TaskCount
		}
	}
	return all
}
