package scheduler

// What can be read from a Core between two steps.

import (
	"fmt"
	"time"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler/state"
	"github.com/musterhq/muster/scheduler/step"
)

// View is what can be read from a Core between two steps.
type View struct{ core *Core }

// View returns what can be read between this step and the next.
func (c *Core) View() View { return View{c} }

// Leads reports whether this daemon owns the jobs.
func (v View) Leads() bool { return v.core.turn.Lead }

// Knows reports whether the host is known.
func (v View) Knows(p job.Peer) bool { return v.core.hosts.workers[p] != nil }

// Keyed returns the job of a user that was submitted with an idempotency key; empty: there is none.
func (v View) Keyed(user, key string) job.ID {
	id, _ := v.core.entries.table.Keyed(user, key)
	return id
}

// Totals returns what has happened since the daemon began.
func (v View) Totals() step.Totals { return v.core.turn.Totals.Clone() }

// MayBeDead returns how many attempts step.DeclareDead would give up. It is ErrConflict if the host answers.
func (v View) MayBeDead(p job.Peer, store string) (int, error) {
	all, err := v.core.deaths.dead(p, store)
	return len(all), err
}

// State returns the state of a job in memory; empty: it is not there.
func (v View) State(id job.ID) job.State {
	if e := v.core.entries.byID[id]; e != nil {
		return v.core.views.stateOf(e)
	}
	return ""
}

// Brief returns a job in memory without its tasks.
func (v View) Brief(id job.ID) job.Job { return v.core.views.brief(v.core.entries.byID[id]) }

// Allotment returns what this owner tells others of a user, and whether the user has limits over the cluster.
func (v View) Allotment(user string) (s contract.Allotment, limited bool) {
	if _, limited := v.core.turn.Config.Limits.InCluster(user); !limited {
		return contract.Allotment{}, false
	}
	return v.core.plan.allotments.state(user), true
}

// Kept returns how many jobs are whole in memory, and how many there are with the archived ones.
func (v View) Kept() (whole, all int) { return len(v.core.entries.byID), v.core.entries.table.Len() }

// Ended returns the drawn numbers of the jobs that have ended, in the order in which they are purged.
func (v View) Ended() []uint64 {
	var numbers []uint64
	for _, x := range v.core.history.ended {
		numbers = append(numbers, x.number)
	}
	return numbers
}

// Explain explains the state of a job that is not in memory.
func (v View) Explain(j job.Job) (contract.Explanation, error) { return v.core.views.whyOf(j) }

// Find returns a job, archived or not, with the earlier attempts of its tasks.
func (v View) Find(id job.ID) (step.Listed, bool) {
	x, there := v.core.entries.table.Entry(id)
	if !there {
		return step.Listed{}, false
	}
	l := v.core.views.listed(x)
	if l.Job != nil {
		l.Job = new(v.core.views.of(v.core.entries.byID[id]))
		state.AddEarlier(l.Job.Tasks, v.core.entries.table.Of(x))
	}
	return l, true
}

// Listed returns a job as Find does, or ErrNotFound.
func (v View) Listed(id job.ID) (step.Listed, error) {
	x, there := v.Find(id)
	if !there {
		return x, fmt.Errorf("%w: %s", step.ErrNotFound, id)
	}
	return x, nil
}

// Job returns the job as it looks now, unless it is archived.
func (v View) Job(id job.ID) (job.Job, bool) {
	e := v.core.entries.byID[id]
	if e == nil {
		return job.Job{}, false
	}
	return v.core.views.of(e), true
}

// Tasks returns the tasks of a job that the query selects. It is ErrNotFound if the job is not here or is archived.
func (v View) Tasks(id job.ID, q job.TaskQuery) ([]job.Task, error) {
	e := v.core.entries.byID[id]
	if e == nil {
		return nil, fmt.Errorf("%w: %s", step.ErrNotFound, id)
	}
	tasks := v.core.views.tasks(e, q)
	state.AddEarlier(tasks, e.job)
	return tasks, nil
}

// Durable returns the durable state of the job, unless it is archived.
func (v View) Durable(id job.ID) (job.Job, bool) {
	j := v.core.entries.table.Job(id)
	if j == nil {
		return job.Job{}, false
	}
	return j.View(0, ViewTasks), true
}

// Why explains the state of a job.
func (v View) Why(id job.ID) (contract.Explanation, error) {
	e := v.core.entries.byID[id]
	if e == nil {
		return contract.Explanation{}, fmt.Errorf("%w: %s", step.ErrNotFound, id)
	}
	x, err := v.core.views.whyOf(v.core.views.of(e))
	x.Ahead = ahead(v.core.views, e)
	v.core.views.markRefusals(&x, e)
	return x, err
}

// Offers says which hosts would take a job of this user with this spec, and why the others would not.
func (v View) Offers(user string, operator bool, s job.Spec) (contract.Explanation, error) {
	err := checkPolicy(s, nil)
	if err == nil {
		err = checkLimits(v.core.entries, user, operator, &s)
	}
	if err != nil {
		return contract.Explanation{}, err
	}
	x, err := v.core.explain.offers("", user, s)
	byAllotment(v.core.views, &x, user, &s, nil)
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
func (v View) Nodes() []Node {
	var out []Node
	for _, h := range v.core.hosts.fleet.Sorted() {
		n := Node{Profile: h.Profile, Free: h.Free, Up: h.Up, Draining: h.Draining, Detail: h.Detail, Seen: h.Seen}
		for _, t := range v.core.assigned.at(h.Peer) {
			n.Tasks = append(n.Tasks, t.attempt())
		}
		out = append(out, n)
	}
	return out
}

// Page returns the jobs that the filter chooses, newest first. The name of an archived job is not in memory, so the
// caller has to compare it.
func (v View) Page(f job.Query) []step.Listed { return page(v.core.views, f) }

// Counts returns how many jobs are in each state.
func (v View) Counts() map[job.State]int {
	counts := v.core.entries.table.ArchivedStates()
	for _, e := range v.core.entries.byID {
		counts[v.core.views.stateOf(e)]++
	}
	return counts
}

// startedSince reports whether each task of the job has started or ended, and when the last of them started.
func (v View) startedSince(e *entry) (since time.Time, ok bool) {
	counts := e.job.Counts()
	if counts.Of(job.Pending)+counts.Of(job.Held) > 0 {
		return since, false
	}
	for _, t := range e.tasks {
		if !t.durable().Assigned {
			continue
		}
		if seen, _ := v.core.views.seen(t); seen != job.Running && seen != job.Completing {
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

// Progress tells how far a job is.
func (v View) Progress(id job.ID, tasks bool) Progress {
	x := Progress{Progress: job.Progress{Job: id}}
	var since time.Time
	if e := v.core.entries.byID[id]; e != nil {
		x.State = v.core.views.stateOf(e)
		if since, x.Started = v.startedSince(e); tasks {
			x.Tasks, x.Looked = state.TaskStatesOf(e.job), e.job.Len()
		}
	} else if a, there := v.core.entries.table.Archived(id); there {
		x.State, x.Started, x.Archived, since = a.State(), true, true, a.Ended()
	}
	if x.Started && !since.IsZero() {
		x.Ago = max(0, v.core.entries.wall().Sub(since))
	}
	return x
}

// Progress is the progress of a job. The tasks of one that is archived are on disk only.
type Progress struct {
	job.Progress
	Archived bool
	Looked   int // that were looked at
}
