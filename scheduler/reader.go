package scheduler

// The reader completes jobs with what only the rows on disk have.

import (
	"errors"
	"fmt"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/jobs"
)

// reader reads the rows of jobs. Any goroutine may use it.
type reader struct {
	journal Journal
	self    job.Peer
}

// whole returns a listed job with what only its rows have. It is ErrNotFound if the job was purged after it was listed.
func (r *reader) whole(x Listed) (job.Job, error) {
	if x.Job != nil {
		return r.withTails(*x.Job)
	}
	decoded, err := r.decode(x.ID)
	if err != nil {
		return job.Job{}, err
	}
	j := decoded.View(0, viewTasks)
	j.Owner = r.self
	if i, there := decoded.First(j.State()); there {
		j.Reason = decoded.Task(i).Reason
	}
	for i := range j.Tasks {
		if t := &j.Tasks[i]; t.Ended.IsZero() {
			t.Ended = x.Ended
		}
	}
	return j, nil
}

// decode reads a job from its rows. It is ErrNotFound if there are none.
func (r *reader) decode(id job.ID) (*jobs.Job, error) {
	rows, err := r.journal.Rows(id, "", "")
	if err != nil {
		return nil, fmt.Errorf("scheduler: read job %s: %w", id, err)
	}
	if len(rows) == 0 {
		return nil, fmt.Errorf("%w: %s", ErrNotFound, id)
	}
	j, err := jobs.Decode(rows)
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
	var out []job.Task
	j.Each(q.Rest(j.Len()), q.States, func(index int) bool {
		out = append(out, j.Task(index))
		return len(out) < q.Limit
	})
	return out, nil
}

// withTails adds the tails of standard error, which are only on disk.
func (r *reader) withTails(j job.Job) (job.Job, error) {
	if j.Counts.Total() <= 1 || len(j.Tasks) == 0 {
		return j, nil
	}
	return j, r.addTails(j.ID, j.Tasks)
}

// addTails does so for some tasks of a job, in the order of their indexes. Tasks that are far apart are read one by one,
// because the tails between them may be many.
func (r *reader) addTails(id job.ID, tasks []job.Task) error {
	for len(tasks) > 0 {
		n := 1
		for n < len(tasks) && tasks[n].Index-tasks[n-1].Index <= nearTasks {
			n++
		}
		from, to := jobs.TailParts(tasks[0].Index, tasks[n-1].Index+1)
		rows, err := r.journal.Rows(id, from, to)
		if err != nil {
			return fmt.Errorf("scheduler: read job %s: %w", id, err)
		}
		jobs.AddTails(tasks[:n], rows)
		tasks = tasks[n:]
	}
	return nil
}

// nearTasks is how far apart tasks may be whose tails are read together.
const nearTasks = 8

// putArchived gives archived jobs to a watcher. They do not change any more.
func (r *reader) putArchived(w *watcher, archived []Listed) error {
	for _, x := range archived {
		j, err := r.whole(x)
		if errors.Is(err, ErrNotFound) {
			continue // purged meanwhile
		}
		if err != nil {
			return err
		}
		if w.filter.Match(&j) {
			w.put(j)
		}
	}
	return nil
}
