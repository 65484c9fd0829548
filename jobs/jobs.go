// Package jobs is the durable state of one journal group's jobs: what the group's
// committed records have led to.
//
// Table.Apply takes the records in the order of the journal. It is pure: no clock, no
// chance, no I/O. A record is compared with the state that it finds and changes nothing
// where that has moved on, so every replay of the same records ends in the same table,
// on the daemon that owns the jobs and on any that only follows.
//
// A Job is a header and its tasks. The tasks lie in chunks of 256; a chunk that no record
// has touched is one value for all of them, and the number of tasks in each state is kept
// as it changes. So one record costs the same for a job of one task and of a million. On
// disk a job is a row for its header, one for each touched chunk, and one for each task
// that has a text of its own.
//
// A job that no record can change any more may be archived: the table then keeps an index
// entry for listings, and its rows tell the rest.
//
// See docs/adr, ADR 77.
package jobs

import (
	"time"

	"github.com/musterhq/muster/job"
)

// Job is one job as the records tell it. Its fields are set by the Submit record, but for
// Cancelled; only Table.Apply changes a job.
type Job struct {
	ID        job.ID
	User      string
	Spec      job.Spec
	Submitted time.Time // by the clock of the daemon that accepted it
	Key       string    // idempotency key, or empty
	Seq       uint64    // place of the Submit record in the journal; 0 in rows of older versions
	Cancelled string    // reason given with cancel, or empty

	tasks  tasks
	closed time.Time // when the last end of a task was recorded
	dirty  dirty
}

// Len is the number of tasks.
func (j *Job) Len() int { return j.tasks.n }

// Has says whether the job has a task of this index.
func (j *Job) Has(index int) bool { return index >= 0 && index < j.tasks.n }

// Task is the task of this index, which must be one of the job's.
func (j *Job) Task(index int) job.Task { return j.tasks.get(index) }

// Counts is how many tasks are in each state.
func (j *Job) Counts() job.Counts { return j.tasks.counts }

// State is that of the job as a whole.
func (j *Job) State() job.State { return j.tasks.counts.State() }

// Ended says whether all tasks have ended, so that nothing more happens by itself.
func (j *Job) Ended() bool { return j.tasks.counts.Ended() == j.tasks.n }

// Final says whether no record can change the job any more: it has ended, and no attempt
// that was given up may yet turn out to have succeeded.
func (j *Job) Final() bool {
	return j.Ended() && (j.tasks.counts.Of(job.NodeFail) == 0 || j.Cancelled != "")
}

// ClosedAt is when the last end of a task was recorded, by the owner's clock; zero if
// none was. For rows of older versions it is when the task ended, by its host's clock.
func (j *Job) ClosedAt() time.Time { return j.closed }

// Active says whether an attempt of the job may be running.
func (j *Job) Active() bool { return j.tasks.assigned > 0 }

// View is the job with the tasks from index first on, at most n of them.
func (j *Job) View(first, n int) job.Job {
	v := job.Job{
		ID: j.ID, User: j.User, Spec: j.Spec, Submitted: j.Submitted, Key: j.Key, Cancelled: j.Cancelled, Seq: j.Seq,
		Counts: j.tasks.counts,
	}
	last := min(j.tasks.n, first+n)
	if first < last {
		v.Tasks = make([]job.Task, 0, last-first)
	}
	for i := first; i < last; i++ {
		v.Tasks = append(v.Tasks, j.tasks.get(i))
	}
	return v
}

// set stores a task that has changed.
func (j *Job) set(index int, t job.Task) {
	j.tasks.set(index, t, &j.dirty)
	j.close(&t)
}

// close notes the end of a task, if it has ended.
func (j *Job) close(t *job.Task) {
	if at := closedAt(t); at.After(j.closed) {
		j.closed = at
	}
}

// closedAt is when the task's end was recorded, zero if it has not ended.
func closedAt(t *job.Task) time.Time {
	switch {
	case !t.State.Ended():
		return time.Time{}
	case t.Closed.IsZero():
		return t.Ended
	}
	return t.Closed
}

// Brief is the task of this index in brief; it must be one of the job's.
func (j *Job) Brief(index int) Brief { return j.tasks.brief(index) }

// Lost are the hosts that were lost while they ran the task, the newest last.
func (j *Job) Lost(index int) []job.Peer { return j.tasks.lost(index) }
