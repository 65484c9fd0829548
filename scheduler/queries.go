package scheduler

// What can be read from a Core between two steps.

import (
	"fmt"
	"time"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler/state"
)

// Find returns a job, archived or not, with the earlier attempts of its tasks.
func (c *Core) Find(id job.ID) (Listed, bool) {
	x, there := c.entries.table.Entry(id)
	if !there {
		return Listed{}, false
	}
	l := c.views.listed(x)
	if l.Job != nil {
		l.Job = new(c.views.of(c.entries.byID[id]))
		state.AddEarlier(l.Job.Tasks, c.entries.table.Of(x))
	}
	return l, true
}

// listed returns a job as Core.Find does, or ErrNotFound.
func listed(c *Core, id job.ID) (Listed, error) {
	x, there := c.Find(id)
	if !there {
		return x, fmt.Errorf("%w: %s", ErrNotFound, id)
	}
	return x, nil
}

// Job returns the job as it looks now, unless it is archived.
func (c *Core) Job(id job.ID) (job.Job, bool) {
	e := c.entries.byID[id]
	if e == nil {
		return job.Job{}, false
	}
	return c.views.of(e), true
}

// Tasks returns the tasks of a job that the query selects. It is ErrNotFound if the job is not here or is archived.
func (c *Core) Tasks(id job.ID, q job.TaskQuery) ([]job.Task, error) {
	e := c.entries.byID[id]
	if e == nil {
		return nil, fmt.Errorf("%w: %s", ErrNotFound, id)
	}
	tasks := c.views.tasks(e, q)
	state.AddEarlier(tasks, e.job)
	return tasks, nil
}

// Durable returns the durable state of the job, unless it is archived.
func (c *Core) Durable(id job.ID) (job.Job, bool) {
	j := c.entries.table.Job(id)
	if j == nil {
		return job.Job{}, false
	}
	return j.View(0, viewTasks), true
}

// Why explains the state of a job.
func (c *Core) Why(id job.ID) (contract.Explanation, error) {
	e := c.entries.byID[id]
	if e == nil {
		return contract.Explanation{}, fmt.Errorf("%w: %s", ErrNotFound, id)
	}
	x, err := c.views.whyOf(c.views.of(e))
	x.Ahead = ahead(c.views, e)
	c.views.markRefusals(&x, e)
	return x, err
}

// Offers says which hosts would take a job of this user with this spec, and why the others would not.
func (c *Core) Offers(user string, operator bool, s job.Spec) (contract.Explanation, error) {
	err := checkPolicy(s, nil)
	if err == nil {
		err = checkLimits(c.entries, user, operator, &s)
	}
	if err != nil {
		return contract.Explanation{}, err
	}
	x, err := c.explain.offers("", user, s)
	byAllotment(c.views, &x, user, &s, nil)
	return x, err
}

// Node is a host as this scheduler knows it.
type Node struct {
	Profile  contract.Profile
	Free     contract.Free
	Up       bool // there is a session with it
	Draining bool
	Detail   string    // why it takes no tasks
	Seen     time.Time // when it was last heard
	Tasks    []job.Attempt
}

// Nodes returns the known hosts by name.
func (c *Core) Nodes() []Node {
	var out []Node
	for _, h := range c.hosts.fleet.Sorted() {
		n := Node{Profile: h.Profile, Free: h.Free, Up: h.Up, Draining: h.Draining, Detail: h.Detail, Seen: h.Seen}
		for _, t := range c.assigned.at(h.Peer) {
			n.Tasks = append(n.Tasks, t.attempt())
		}
		out = append(out, n)
	}
	return out
}

// Page returns the jobs that the filter chooses, newest first. The name of an archived job is not in memory, so the
// caller has to compare it.
func (c *Core) Page(f job.Query) []Listed { return page(c.views, f) }

// Counts returns how many jobs are in each state.
func (c *Core) Counts() map[job.State]int {
	counts := c.entries.table.ArchivedStates()
	for _, e := range c.entries.byID {
		counts[c.views.stateOf(e)]++
	}
	return counts
}

// startedSince reports whether each task of the job has started or ended, and when the last of them started.
func startedSince(c *Core, e *entry) (since time.Time, ok bool) {
	counts := e.job.Counts()
	if counts.Of(job.Pending)+counts.Of(job.Held) > 0 {
		return since, false
	}
	for _, t := range e.tasks {
		if !t.durable().Assigned {
			continue
		}
		if seen, _ := c.views.seen(t); seen != job.Running && seen != job.Completing {
			return since, false
		}
		if t.process.since.After(since) {
			since = t.process.since
		}
	}
	if since.IsZero() {
		since = e.job.ClosedAt()
	}
	return since, true
}

// progressOf tells how far a job is.
func progressOf(c *Core, id job.ID, tasks bool) progress {
	x := progress{Progress: job.Progress{Job: id}}
	var since time.Time
	if e := c.entries.byID[id]; e != nil {
		x.State = c.views.stateOf(e)
		if since, x.Started = startedSince(c, e); tasks {
			x.Tasks, x.tasks = state.TaskStatesOf(e.job), e.job.Len()
		}
	} else if a, there := c.entries.table.Archived(id); there {
		x.State, x.Started, x.archived, since = a.State(), true, true, a.Ended()
	}
	if x.Started && !since.IsZero() {
		x.Ago = max(0, c.entries.wall().Sub(since))
	}
	return x
}

// progress is the progress of a job. The tasks of one that is archived are on disk only.
type progress struct {
	job.Progress
	archived bool
	tasks    int // that were looked at
}
