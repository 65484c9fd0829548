package loop

// The reader completes jobs with what only the rows on disk have.

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler"
	"github.com/musterhq/muster/scheduler/state"
	"github.com/musterhq/muster/scheduler/step"
)

// reader reads the rows of jobs. Any goroutine may use it.
type reader struct {
	calls   *calls
	journal Journal
	self    job.Peer
}

// rowsOf returns the rows of a job without the usage of its tasks, and with the tail of its first task only: together
// these may be large.
func rowsOf(from Journal, id job.ID) ([]job.Row, error) {
	_, to := state.TailParts(0, 1)
	return from.Rows(id, "", to)
}

// errReopened says that a job which was listed as archived has been requeued since.
var errReopened = errors.New("scheduler: the job is not archived any more")

// whole returns a listed job with what only its rows have. It is ErrNotFound if the job was purged after it was listed.
func (r *reader) whole(x step.Listed) (job.Job, error) {
	if x.Job != nil {
		return r.withTails(*x.Job)
	}
	decoded, err := r.decode(x.ID)
	if err != nil {
		return job.Job{}, err
	}
	if !decoded.Final() {
		return job.Job{}, errReopened
	}
	j := decoded.View(0, scheduler.ViewTasks)
	state.AddEarlier(j.Tasks, decoded)
	j.Owner = r.self
	if i, there := decoded.First(j.State()); there {
		j.Reason = decoded.Task(i).Reason
	}
	for i := range j.Tasks {
		if t := &j.Tasks[i]; t.Ended.IsZero() {
			t.Ended = x.Ended
		}
	}
	if text := decoded.File.Text(); text != nil { // an older version had it in the header
		if j, err = r.withBulk(j, text); err != nil {
			return j, err
		}
	}
	return r.withTails(j)
}

// withBulk returns a job with the whole of its job file. text is the file if it is not on disk yet. If the file is missing
// or damaged, the job is returned without its bulk: all else about it can be told.
func (r *reader) withBulk(j job.Job, text []byte) (job.Job, error) {
	if !j.Lean {
		return j, nil
	}
	if text == nil {
		var err error
		if text, err = r.journal.File(j.ID); err != nil {
			return j, fmt.Errorf("scheduler: read job %s: %w", j.ID, err)
		}
	}
	s, err := state.DecodeFile(text)
	if err == nil {
		j.Spec, j.Lean = s, false
	}
	return j, nil
}

// readTries bounds how often a job is read if it is requeued, and ends again, between the lookup and the read.
const readTries = 3

// full returns what latest returns, with the whole job file.
func (r *reader) full(ctx context.Context, x step.Listed) (job.Job, error) {
	j, err := r.latest(ctx, x)
	if err != nil {
		return j, err
	}
	return r.withBulk(j, x.File)
}

// latest returns what whole returns, also for a job that may have been requeued since it was listed.
func (r *reader) latest(ctx context.Context, x step.Listed) (job.Job, error) {
	for try := 1; ; try++ {
		j, err := r.whole(x)
		if !errors.Is(err, errReopened) || try == readTries {
			return j, err
		}
		id := x.ID
		if x, err = query(ctx, r.calls, func(c *scheduler.Core) (step.Listed, error) { return c.View().Listed(id) }); err != nil {
			return job.Job{}, err
		}
	}
}

// decode decodes a job from its rows, or returns ErrNotFound.
func (r *reader) decode(id job.ID) (*state.Job, error) {
	rows, err := rowsOf(r.journal, id)
	if err == nil && len(rows) == 0 {
		return nil, fmt.Errorf("%w: %s", step.ErrNotFound, id)
	}
	var j *state.Job
	if err == nil {
		j, err = state.Decode(rows)
	}
	if err != nil {
		return nil, fmt.Errorf("scheduler: read job %s: %w", id, err)
	}
	return j, nil
}

// tasks returns the tasks of an archived job that the query selects.
func (r *reader) tasks(id job.ID, q job.TaskQuery) ([]job.Task, error) {
	j, err := r.decode(id)
	if err != nil {
		return nil, err
	}
	if !j.Final() {
		return nil, errReopened
	}
	var out []job.Task
	visit := func(index int) bool {
		out = append(out, j.Task(index))
		return len(out) < q.Limit
	}
	if rest := q.Rest(j.Len()); q.Begun {
		state.EachBegun(j, rest, visit)
	} else {
		j.Each(rest, q.States, visit)
	}
	state.AddEarlier(out, j)
	return out, r.addTexts(id, out)
}

// taskStates returns the states of the tasks of an archived job. There are none if the job was purged meanwhile.
func (r *reader) taskStates(id job.ID) (job.TaskStates, error) {
	rows, err := r.journal.Rows(id, "", "")
	if err != nil || len(rows) == 0 {
		return job.TaskStates{}, err
	}
	j, err := state.Decode(rows)
	if err != nil {
		return job.TaskStates{}, fmt.Errorf("scheduler: read job %s: %w", id, err)
	}
	return state.TaskStatesOf(j), nil
}

// withTails adds the tails of standard error, which are only on disk.
func (r *reader) withTails(j job.Job) (job.Job, error) {
	if j.Counts.Total() <= 1 || len(j.Tasks) == 0 {
		return j, nil
	}
	return j, r.addTails(j.ID, j.Tasks)
}

// addTexts adds to some tasks of a job, in the order of their indexes, their tails and their usage.
func (r *reader) addTexts(id job.ID, tasks []job.Task) error {
	if err := r.addTails(id, tasks); err != nil {
		return err
	}
	return r.addUsage(id, tasks)
}

func (r *reader) addTails(id job.ID, tasks []job.Task) error {
	return r.add(id, tasks, state.TailParts, state.AddTails)
}

// addUsage adds what the tasks that have ended used.
func (r *reader) addUsage(id job.ID, tasks []job.Task) error {
	without := func(t job.Task) bool { return t.Exit != nil && t.Exit.Usage == "" }
	if !slices.ContainsFunc(tasks, without) {
		return nil
	}
	return r.add(id, tasks, state.UsageParts, state.AddUsage)
}

// add reads the rows of some tasks of a job, in the order of their indexes. Tasks that are far apart are read one by one,
// because the rows between them may be many.
func (r *reader) add(id job.ID, tasks []job.Task, parts func(first, last int) (from, to string), set func([]job.Task, []job.Row)) error {
	for len(tasks) > 0 {
		n := 1
		for n < len(tasks) && tasks[n].Index-tasks[n-1].Index <= nearTasks {
			n++
		}
		from, to := parts(tasks[0].Index, tasks[n-1].Index+1)
		rows, err := r.journal.Rows(id, from, to)
		if err != nil {
			return fmt.Errorf("scheduler: read job %s: %w", id, err)
		}
		set(tasks[:n], rows)
		tasks = tasks[n:]
	}
	return nil
}

// nearTasks is the greatest distance between two tasks whose rows are read together.
const nearTasks = 8

// putArchived gives archived jobs to a watcher. One that has been requeued since has reached the watcher already.
func (r *reader) putArchived(w *watcher, archived []step.Listed) error {
	for _, x := range archived {
		j, err := r.whole(x)
		if errors.Is(err, step.ErrNotFound) || errors.Is(err, errReopened) {
			continue // purged or requeued meanwhile
		}
		if err != nil {
			return err
		}
		if w.filter.Match(&j) {
			w.putOld(&j)
		}
	}
	return nil
}
