// Package state holds the durable state of the jobs of one journal group: the result of the group's committed records.
//
// Table.Apply applies the records in the order of the journal. It uses no clock, no random numbers and no I/O. A record
// that does not fit the present state of its job changes nothing. So the same records always lead to the same table, on
// the daemon that owns the jobs and on each daemon that follows.
//
// A Job has a header and tasks. The tasks are in chunks of 256. Tasks that were never assigned share values. If all
// tasks of a chunk have the same value, the chunk stores it once, else as one byte for each task. Tasks that were
// assigned have cells. The number of tasks in each state is updated with each change. So one record costs the same for a
// job of one task and for a job of a million tasks. A job tells how much memory it holds; see Memory.
//
// The job file of a job may be large. What only the start of a task needs is then on disk alone; see File.
//
// On disk a job has one row for its header, one for a large job file, one for each chunk with changes, one for each
// host, up to three for each task that has texts of its own, one for each task that had several attempts, and some for
// what the job waits for.
//
// A job that only a requeue can change may be archived. The table then keeps only an index entry of it, for listings; the
// rest is in its rows on disk. Before a requeue it must be put back.
//
// See docs/adr, ADR 77.
package state

import (
	"time"

	"github.com/musterhq/muster/job"
)

// Job is the state of one job after the records that were applied. Only Table.Apply changes it.
type Job struct {
	ID        job.ID
	User      string
	Spec      job.Spec  // without its bulk if File is set
	File      *File     // nil if Spec has everything
	Submitted time.Time // by the clock of the daemon that accepted it
	Key       string    // idempotency key, or empty
	Cancelled string    // reason given with cancel, or empty
	// Queued is when it was submitted, or requeued after its end, and Seq is the number of that record in the journal. Seq
	// is 0 in rows of older versions.
	Queued time.Time
	Seq    uint64
	Waits  *Waits // for other jobs; nil without dependencies

	tasks  tasks
	gang   int // tasks of an element if its elements are gangs, else 0
	acts   acts
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

// State returns the state of the job as a whole.
func (j *Job) State() job.State { return j.tasks.counts.State() }

// Ended reports whether all tasks have ended.
func (j *Job) Ended() bool { return j.tasks.counts.Ended() == j.tasks.n }

// Final reports whether no record but a requeue can change the job: it has ended, and a late success of an attempt that
// was given up would not count.
func (j *Job) Final() bool {
	return j.Ended() && (j.tasks.counts.Of(job.NodeFail) == 0 || j.Cancelled != "" || j.gang > 0)
}

// ClosedAt returns when the last end of a task was recorded, by the owner's clock, or zero if no task has ended. For
// rows of older versions it is when the task ended, by the clock of its host.
func (j *Job) ClosedAt() time.Time { return j.closed }

// Assigned returns the number of tasks that are assigned to a host.
func (j *Job) Assigned() int { return j.tasks.assigned }

// View returns a copy of the job with at most n of its tasks, from index first on.
func (j *Job) View(first, n int) job.Job {
	v := job.Job{
		ID: j.ID, User: j.User, Spec: j.Spec, Submitted: j.Submitted, Key: j.Key, Cancelled: j.Cancelled, Seq: j.Seq,
		Counts: j.tasks.counts, Ends: j.tasks.sum(), Depends: j.Waits.List(), Lean: j.File != nil,
		Acts: j.acts.list, OlderActs: int(j.acts.older),
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

// Ending returns what becomes of a task when its attempt ends, if the attempt was told to end.
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

// AddEarlier adds the earlier attempts to views of tasks of the job.
func AddEarlier(views []job.Task, j *Job) {
	for i := range views {
		views[i].Earlier = j.tasks.history.earlier(views[i].Index)
	}
}

// Outcomes returns how the attempts of a task went, the newest last.
func Outcomes(j *Job, index int) []job.Outcome {
	t := j.Task(index)
	t.Earlier = j.tasks.history.earlier(index)
	return t.Outcomes()
}
