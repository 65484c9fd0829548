// Package jobs holds the durable state of the jobs of one journal group: the result of the group's committed records.
//
// Table.Apply applies the records in the order of the journal. It uses no clock, no random numbers and no I/O. A record
// that does not fit the present state of its job changes nothing. So the same records always lead to the same table, on
// the daemon that owns the jobs and on each daemon that follows.
//
// A Job has a header and tasks. The tasks are in chunks of 256. As long as no record is about a task of a chunk, all
// its tasks are the same and are stored as one value. The number of tasks in each state is updated with each change. So
// one record costs the same for a job of one task and for a job of a million tasks.
//
// On disk a job has one row for its header, one for each chunk with changes, one for each host, and up to two for each
// task that has texts of its own.
//
// A job that no record can change any more may be archived. The table then keeps only an index entry of it, for
// listings; the rest is in its rows on disk.
//
// See docs/adr, ADR 77.
package jobs

import (
	"time"

	"github.com/musterhq/muster/job"
)

// Job is the state of one job after the records that were applied. Only Table.Apply changes it. The Submit record sets
// all exported fields but Cancelled and Waits.
type Job struct {
	ID        job.ID
	User      string
	Spec      job.Spec
	Submitted time.Time // by the clock of the daemon that accepted it
	Key       string    // idempotency key, or empty
	Seq       uint64    // number of the Submit record in the journal; 0 in rows of older versions
	Cancelled string    // reason given with cancel, or empty
	Waits     *Waits    // for other jobs; nil without dependencies

	tasks  tasks
	closed time.Time // when the last end of a task was recorded
	dirty  dirty
}

// Len returns the number of tasks.
func (j *Job) Len() int { return j.tasks.n }

// Has reports whether the job has a task with this index.
func (j *Job) Has(index int) bool { return index >= 0 && index < j.tasks.n }

// Task returns the task with this index, which must exist.
func (j *Job) Task(index int) job.Task { return j.tasks.get(index) }

// Counts returns the number of tasks in each state.
func (j *Job) Counts() job.Counts { return j.tasks.counts }

// CountsIn returns the number of tasks of the ranges in each state. No ranges means all tasks.
func (j *Job) CountsIn(ranges []job.Range) job.Counts {
	if len(ranges) == 0 {
		return j.tasks.counts
	}
	var c job.Counts
	for _, r := range ranges {
		for i := max(0, r.First); i <= min(r.Last, j.tasks.n-1); i++ {
			c.Add(j.tasks.brief(i).State, 1)
		}
	}
	return c
}

// State returns the state of the job as a whole.
func (j *Job) State() job.State { return j.tasks.counts.State() }

// Ended reports whether all tasks have ended.
func (j *Job) Ended() bool { return j.tasks.counts.Ended() == j.tasks.n }

// Final reports whether no record can change the job any more: it has ended, and a late success of an attempt that was
// given up would not count.
func (j *Job) Final() bool {
	return j.Ended() && (j.tasks.counts.Of(job.NodeFail) == 0 || j.Cancelled != "")
}

// ClosedAt returns when the last end of a task was recorded, by the owner's clock, or zero if no task has ended. For
// rows of older versions it is when the task ended, by the clock of its host.
func (j *Job) ClosedAt() time.Time { return j.closed }

// Assigned returns the number of tasks that are assigned to a host.
func (j *Job) Assigned() int { return j.tasks.assigned }

// Active reports whether an attempt of the job may be running.
func (j *Job) Active() bool { return j.tasks.assigned > 0 }

// View returns a copy of the job with at most n of its tasks, from index first on.
func (j *Job) View(first, n int) job.Job {
	v := job.Job{
		ID: j.ID, User: j.User, Spec: j.Spec, Submitted: j.Submitted, Key: j.Key, Cancelled: j.Cancelled, Seq: j.Seq,
		Counts: j.tasks.counts, Depends: j.Waits.List(),
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

// close updates the time of the last end, if the task has ended.
func (j *Job) close(t *job.Task) {
	if at := closedAt(t); at.After(j.closed) {
		j.closed = at
	}
}

// closedAt returns when the task's end was recorded, or zero if it has not ended.
func closedAt(t *job.Task) time.Time {
	switch {
	case !t.State.Ended():
		return time.Time{}
	case t.Closed.IsZero():
		return t.Ended
	}
	return t.Closed
}

// Ending returns what becomes of a task when its attempt ends, if a person has asked for that.
func (j *Job) Ending(index int) job.Ending {
	if j.Cancelled != "" {
		return job.EndsCancelled
	}
	return j.tasks.brief(index).Ending
}

// Brief returns the main fields of the task with this index, which must exist.
func (j *Job) Brief(index int) Brief { return j.tasks.brief(index) }

// Lost returns the hosts that were lost while they ran the task, newest last.
func (j *Job) Lost(index int) []job.Peer { return j.tasks.lost(index) }
