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
	rows, err := r.journal.Rows(x.ID, "", "")
	if err != nil {
		return job.Job{}, fmt.Errorf("scheduler: read job %s: %w", x.ID, err)
	}
	if len(rows) == 0 {
		return job.Job{}, fmt.Errorf("%w: %s", ErrNotFound, x.ID)
	}
	decoded, err := jobs.Decode(rows)
	if err != nil {
		return job.Job{}, fmt.Errorf("scheduler: read job %s: %w", x.ID, err)
	}
	j := decoded.View(0, viewTasks)
	j.Owner = r.self
	for i := range j.Tasks {
		if t := &j.Tasks[i]; t.Ended.IsZero() {
			t.Ended = x.Ended
		}
	}
	return j, nil
}

// tasks returns the states of the tasks of an archived job. There are none if the job was purged meanwhile.
func (r *reader) tasks(id job.ID) (job.TaskStates, error) {
	rows, err := r.journal.Rows(id, "", "")
	if err != nil || len(rows) == 0 {
		return job.TaskStates{}, err
	}
	j, err := jobs.Decode(rows)
	if err != nil {
		return job.TaskStates{}, fmt.Errorf("scheduler: read job %s: %w", id, err)
	}
	return jobs.TaskStatesOf(j), nil
}

// withTails adds the tails of standard error, which are only on disk.
func (r *reader) withTails(j job.Job) (job.Job, error) {
	if j.Counts.Total() <= 1 || len(j.Tasks) == 0 {
		return j, nil
	}
	from, to := jobs.TailParts(j.Tasks[0].Index, j.Tasks[len(j.Tasks)-1].Index+1)
	rows, err := r.journal.Rows(j.ID, from, to)
	if err != nil {
		return job.Job{}, fmt.Errorf("scheduler: read job %s: %w", j.ID, err)
	}
	jobs.AddTails(&j, rows)
	return j, nil
}

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
