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

// rowsOf returns the rows of a job, without the tails of further tasks, which may be large together.
func rowsOf(from Journal, id job.ID) ([]job.Row, error) {
	_, to := jobs.TailParts(0, 1)
	return from.Rows(id, "", to)
}

// errReopened says that a job which was listed as archived has been requeued since.
var errReopened = errors.New("scheduler: the job is not archived any more")

// whole returns a listed job with what only its rows have. It is ErrNotFound if the job was purged after it was listed.
func (r *reader) whole(x Listed) (job.Job, error) {
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
	j := decoded.View(0, viewTasks)
	jobs.AddEarlier(&j, decoded)
	j.Owner = r.self
	for i := range j.Tasks {
		if t := &j.Tasks[i]; t.Ended.IsZero() {
			t.Ended = x.Ended
		}
	}
	return r.withTails(j)
}

// decode decodes a job from its rows, or returns ErrNotFound.
func (r *reader) decode(id job.ID) (*jobs.Job, error) {
	rows, err := rowsOf(r.journal, id)
	if err == nil && len(rows) == 0 {
		return nil, fmt.Errorf("%w: %s", ErrNotFound, id)
	}
	var j *jobs.Job
	if err == nil {
		j, err = jobs.Decode(rows)
	}
	if err != nil {
		return nil, fmt.Errorf("scheduler: read job %s: %w", id, err)
	}
	return j, nil
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

// putArchived gives archived jobs to a watcher. One that has been requeued since has reached the watcher already.
func (r *reader) putArchived(w *watcher, archived []Listed) error {
	for _, x := range archived {
		j, err := r.whole(x)
		if errors.Is(err, ErrNotFound) || errors.Is(err, errReopened) {
			continue // purged or requeued meanwhile
		}
		if err != nil {
			return err
		}
		if w.filter.Match(&j) {
			w.putOld(j)
		}
	}
	return nil
}
