package state

// Applying records: how each one changes a job.

import (
	"cmp"
	"slices"
	"time"

	"github.com/musterhq/muster/job"
)

// Change is the result of applying a record.
type Change struct {
	Job    *Job     // the job of the record; nil if it is not in the table, or is archived
	Moved  bool     // the record changed the job
	Task   int      // index of the task, for a record about an attempt
	Before job.Task // that task before the change

	// Gang has the tasks of the gang, for a record about a gang or a member of one. Settled says that no member is assigned
	// any more, so all of them may have changed.
	Gang    job.Range
	Settled bool

	Others  []Other  // jobs that have changed because a job that they depend on has
	Parents []job.ID // jobs from which others now await something else; see Parents.Awaited
}

// Other is a job that a record about another job has changed.
type Other struct {
	Job   *Job
	All   bool        // all its tasks may have changed
	Freed []job.Range // tasks that no longer wait for those of an array, in no order

	lost, opened []job.Range
}

// apply applies a record to the job that it is about.
func (t *Table) apply(r job.Record, seq uint64, epoch job.Epoch) Change {
	switch r := r.(type) {
	case job.SubmitRecord:
		return t.submit(r, seq)
	case job.AssignRecord:
		return t.attempt(r.Attempt, func(j *Job, x *job.Task) bool { return assign(j, x, r, epoch) })
	case job.UnassignRecord:
		return t.attempt(r.Attempt, func(j *Job, x *job.Task) bool { return unassign(j, x, r) })
	case job.AssignGangRecord:
		return assignGang(t, r, epoch)
	case job.UnassignGangRecord:
		return unassignGang(t, r)
	case job.ResultRecord:
		return t.attempt(r.Attempt, func(j *Job, x *job.Task) bool { return result(j, x, r) })
	case job.CancelRecord:
		return t.whole(r.Job, func(j *Job) bool {
			return noted(j, cancel(j, r), job.Act{Kind: job.ActCancel, At: r.At, Tasks: r.Tasks, Reason: r.Reason})
		})
	case job.HoldRecord:
		return t.whole(r.Job, func(j *Job) bool {
			a := job.Act{Kind: job.ActHold, At: r.At, Tasks: r.Tasks, Reason: r.Reason}
			if r.Release {
				a.Kind = job.ActRelease
			}
			return noted(j, hold(j, r), a)
		})
	case job.RequeueRecord:
		return t.whole(r.Job, func(j *Job) bool {
			return noted(j, requeue(j, r, seq), job.Act{Kind: job.ActRequeue, At: r.At, Tasks: r.Tasks, Reason: r.Reason})
		})
	case job.PurgeRecord:
		return t.purge(r.Job)
	default:
		return Change{}
	}
}

// submit creates a job if its ID is new.
func (t *Table) submit(r job.SubmitRecord, seq uint64) Change {
	if j := t.Job(r.Job); j != nil {
		return Change{Job: j}
	}
	if _, archived := t.index.find(r.Job.Drawn()); archived {
		return Change{}
	}
	first := value{state: number(job.Pending)}
	if r.Spec.Hold {
		first.state, first.reason = number(job.Held), job.Reason{Word: ReasonHeld, Detail: "submitted with hold"}
	}
	j := &Job{ID: r.Job, User: r.User, Submitted: r.At, Queued: r.At, Key: r.Key, Seq: seq, tasks: newTasks(max(r.Tasks, 1), first)}
	j.Spec, j.File = keep(r.Spec)
	j.gang = gangOf(&j.Spec, j.tasks.n)
	j.Waits = newWaits(&j.Spec)
	j.dirty.header, j.dirty.hosts = true, 1
	t.add(j)
	return Change{Job: j, Moved: true}
}

// attempt applies a record about one attempt.
func (t *Table) attempt(a job.Attempt, apply func(*Job, *job.Task) bool) Change {
	j := t.Job(a.Job)
	if j == nil || !j.Has(a.Task) {
		return Change{Job: j}
	}
	c := Change{Job: j, Task: a.Task, Before: j.Task(a.Task)}
	after := c.Before
	if c.Moved = apply(j, &after); c.Moved {
		put(j, after)
		if j.gang > 0 {
			c.Gang = j.Element(a.Task)
			c.Settled = afterMember(j, a.Task)
		}
	}
	return c
}

// whole applies a record about a job as a whole.
func (t *Table) whole(id job.ID, apply func(*Job) bool) Change {
	j := t.Job(id)
	return Change{Job: j, Moved: j != nil && apply(j)}
}

// noted keeps an act of a person if it has changed the job. It returns moved.
func noted(j *Job, moved bool, a job.Act) bool {
	if moved {
		j.acts.add(a)
		j.dirty.header = true
	}
	return moved
}

// assignGang assigns all tasks of a gang, or none.
func assignGang(t *Table, r job.AssignGangRecord, epoch job.Epoch) Change {
	j, c := gangChange(t, r.Attempt)
	if j == nil || j.gang == 0 || r.Attempt.Task != c.Gang.First || len(r.Members) != j.gang {
		return c
	}
	for k, x := range r.Members {
		b := j.tasks.brief(c.Gang.First + k)
		twice := slices.ContainsFunc(r.Members[:k], func(y job.Assignee) bool { return y.Node == x.Node })
		if b.State != job.Pending || b.Assigned || b.Attempt+1 != r.Attempt.N || twice {
			return c
		}
	}
	for k, x := range r.Members {
		i := c.Gang.First + k
		task := j.Task(i)
		assigned(j, &task, job.AssignRecord{
			Attempt: job.Attempt{Job: j.ID, Task: i, N: r.Attempt.N}, Node: x.Node, NodeName: x.NodeName, Store: x.Store, Fencing: x.Fencing, At: r.At,
		}, epoch)
		put(j, task)
	}
	c.Moved = true
	return c
}

// unassignGang takes back a gang of which no member was started. It does nothing if the attempt is not that of all
// members.
func unassignGang(t *Table, r job.UnassignGangRecord) Change {
	j, c := gangChange(t, r.Attempt)
	if j == nil || j.gang == 0 || r.Attempt.Task != c.Gang.First {
		return c
	}
	for i := c.Gang.First; i <= c.Gang.Last; i++ {
		if b := j.tasks.brief(i); !b.Assigned || b.Attempt != r.Attempt.N {
			return c
		}
	}
	for i := c.Gang.First; i <= c.Gang.Last; i++ {
		task := j.Task(i)
		to, why := job.Pending, job.Reason{}
		ending := j.ending(&task)
		if ending != job.NotEnding {
			to, why = endAs(j, &task, ending)
		}
		move(&task, to, why)
		task.Assigned, task.Ending = false, job.NotEnding
		closeTask(&task, r.At)
		if ending == job.EndsRequeued {
			runAgain(&task)
		}
		put(j, task)
	}
	c.Moved, c.Settled = true, true
	return c
}

// gangChange returns the job of an attempt, and a change of the gang of its task.
func gangChange(t *Table, a job.Attempt) (*Job, Change) {
	j := t.Job(a.Job)
	if j == nil || !j.Has(a.Task) {
		return nil, Change{Job: j}
	}
	return j, Change{Job: j, Task: a.Task, Before: j.Task(a.Task), Gang: j.Element(a.Task)}
}

// purge removes a job that has ended.
func (t *Table) purge(id job.ID) Change {
	if j := t.Job(id); j != nil {
		if !j.Ended() {
			return Change{Job: j}
		}
		t.remove(j)
		t.index.entries.Delete(entryOf(j))
		return Change{Job: j, Moved: true}
	}
	x, there := t.index.find(id.Drawn())
	if !there || t.ID(x) != id {
		return Change{}
	}
	t.index.drop(x)
	return Change{Moved: true}
}

func assign(j *Job, t *job.Task, r job.AssignRecord, epoch job.Epoch) bool {
	if j.gang > 0 || t.State != job.Pending || t.Assigned || r.Attempt.N != t.Attempt+1 {
		return false
	}
	return assigned(j, t, r, epoch)
}

func unassign(j *Job, t *job.Task, r job.UnassignRecord) bool {
	if j.gang > 0 {
		return unassignMember(j, t, r)
	}
	if !t.Assigned || t.Attempt != r.Attempt.N {
		return false
	}
	to, why, lost := job.Pending, job.Reason{}, false
	switch r.Proof {
	case job.ProofDeclined, job.ProofNeverStarted:
	case job.ProofDead, job.ProofExpired, job.ProofOperator:
		lost = true
		to, why = afterLoss(j, r.Hold, r.Detail)
	}
	ending := j.ending(t)
	if ending != job.NotEnding {
		to, why = endAs(j, t, ending)
	}
	if !move(t, to, why) {
		return false
	}
	t.Ending = job.NotEnding
	if lost {
		t.Lost = addLost(t.Lost, t.Node)
		j.tasks.history.keepLost(t, r)
	}
	t.Assigned = false
	closeTask(t, r.At)
	if ending == job.EndsRequeued {
		runAgain(t)
	}
	return true
}

func result(j *Job, t *job.Task, r job.ResultRecord) bool {
	if j.gang > 0 {
		return memberResult(j, t, r)
	}
	if !t.Assigned || t.Attempt != r.Attempt.N {
		before := *t
		if !lateResult(j, t, r) {
			return false
		}
		j.tasks.history.keepLate(before, r)
		return true
	}
	exit := r.Exit
	if j.tasks.n > 1 { // there may be a million of them
		exit.Reason = clip(exit.Reason)
	}
	if !exit.State.Ended() {
		exit.State = job.Failed
	}
	saved, lost := j.Spec.Saved(exit), exit.State == job.NodeFail
	if saved { // it has not failed
		exit.State, exit.Reason = job.Preempted, "it saved its state"
	}
	to, why, again := exit.State, exitReason(exit), false
	switch exit.State {
	case job.NodeFail: // not the fault of the task: it costs no retry
		if to, why = afterLoss(j, r.Hold, why.Detail); to == job.NodeFail && r.Elsewhere {
			to, why = job.Pending, job.Reason{}
		}
	case job.Preempted:
		again = saved || j.Spec.Requeue
	case job.Failed, job.Timeout, job.OutOfMemory:
		again = t.Runs < j.Spec.Retries && j.Spec.RetriesAfter(exit)
		t.Runs++
	case job.Succeeded, job.Cancelled, job.Pending, job.Held, job.Reserved, job.Starting, job.Running, job.Unreachable, job.Completing:
		t.Runs++
	}
	if again {
		to = job.Pending
	}
	ending := j.ending(t)
	if ending != job.NotEnding {
		to, why = endAs(j, t, ending)
		exit.State = job.Cancelled
	}
	if !move(t, to, why) {
		return false
	}
	t.Ending = job.NotEnding
	if lost {
		t.Lost = addLost(t.Lost, t.Node)
	}
	setExit(t, exit, r.Devices)
	t.Assigned = false
	closeTask(t, r.At)
	if ending == job.EndsRequeued {
		runAgain(t)
	}
	return true
}

// lateResult applies the success of an attempt that had been given up. The task has then succeeded, even if another
// attempt was planned or has begun. One member of a gang cannot succeed alone.
func lateResult(j *Job, t *job.Task, r job.ResultRecord) bool {
	if j.gang > 0 || r.Attempt.N > t.Attempt || r.Attempt.N <= t.Settled || r.Exit.State != job.Succeeded || !r.Exit.Started || j.ending(t) != job.NotEnding {
		return false
	}
	if t.State.Ended() && t.State != job.NodeFail {
		return false
	}
	if !move(t, job.Succeeded, exitReason(r.Exit)) {
		return false
	}
	setExit(t, r.Exit, r.Devices)
	t.Runs++
	t.Assigned = false
	closeTask(t, r.At)
	return true
}

// RanAt reports whether an attempt of a task was assigned to a host with this data directory. It knows an attempt before
// the newest only if its outcome is kept.
func RanAt(j *Job, a job.Attempt, node job.Peer, store string) bool {
	if !j.Has(a.Task) {
		return false
	}
	if t := j.Task(a.Task); t.Attempt == a.N {
		return t.Node == node && t.Store == store
	}
	h := j.tasks.history.hostOf(a.Task, a.N)
	return h.peer == node && h.store == store && node != ""
}

// WouldTakeLate reports whether the record would end a task although its attempt had been given up.
func (j *Job) WouldTakeLate(r job.ResultRecord) bool {
	if !j.Has(r.Attempt.Task) {
		return false
	}
	t := j.Task(r.Attempt.Task)
	return (!t.Assigned || t.Attempt != r.Attempt.N) && lateResult(j, &t, r)
}

func cancel(j *Job, r job.CancelRecord) bool {
	if j.Cancelled != "" || j.Ended() {
		return false
	}
	r.Tasks = Widen(j, r.Tasks)
	text := cmp.Or(clip(r.Reason), "cancelled")
	why := job.Reason{Word: ReasonCancelled, Detail: text}
	moved := false
	if len(r.Tasks) == 0 {
		j.Cancelled, j.dirty.header, moved = text, true, true
	} else {
		j.each(r.Tasks, active, func(t *job.Task) {
			if t.Ending != job.EndsCancelled {
				t.Ending, t.Reason, moved = job.EndsCancelled, why, true
			}
		})
	}
	j.each(r.Tasks, waiting, func(t *job.Task) {
		if move(t, job.Cancelled, why) {
			t.Ended, moved = r.At, true
			closeTask(t, r.At)
		}
	})
	return moved
}

// requeue makes tasks run again. Active tasks are told to end first, unless the record asks for failed tasks only. A job
// that had ended gets a new age.
func requeue(j *Job, r job.RequeueRecord, seq uint64) bool {
	r.Tasks = Widen(j, r.Tasks)
	moved, over := false, j.Ended()
	if j.Cancelled != "" { // of the others, those that are active still end as CANCELLED
		why := job.Reason{Word: ReasonCancelled, Detail: j.Cancelled}
		j.each(nil, active, func(t *job.Task) { t.Ending, t.Reason = job.EndsCancelled, why })
		j.Cancelled, j.dirty.header, moved = "", true, true
	}
	from := ended
	if r.Failed {
		from = failed
	} else {
		j.each(r.Tasks, active, func(t *job.Task) {
			if t.Ending != job.EndsRequeued {
				t.Ending, t.Reason, moved = job.EndsRequeued, job.Reason{Word: ReasonRequeued, Detail: clip(r.Reason)}, true
			}
		})
	}
	if rest, some := settled(j, r.Tasks); some { // members of the other gangs wait for theirs to end
		j.each(rest, from, func(t *job.Task) {
			if move(t, job.Pending, job.Reason{}) {
				moved = true
				runAgain(t)
			}
		})
	}
	if moved {
		j.closed = time.Time{}
	}
	if moved && over {
		j.Queued, j.Seq, j.dirty.header = r.At, seq, true
	}
	return moved
}

func hold(j *Job, r job.HoldRecord) bool {
	from, to, why := job.Pending, job.Held, job.Reason{Word: ReasonHeld, Detail: clip(r.Reason)}
	if r.Release {
		from, to, why = job.Held, job.Pending, job.Reason{}
	}
	before := j.tasks.counts.Of(from)
	j.each(Widen(j, r.Tasks), []job.State{from}, func(t *job.Task) {
		if move(t, to, why) && r.Release {
			t.Lost = nil // a release starts the count of lost hosts again
		}
	})
	return j.tasks.counts.Of(from) != before
}

// each changes the tasks of the ranges that are in one of the states. No ranges means all tasks.
func (j *Job) each(ranges []job.Range, states []job.State, change func(*job.Task)) {
	j.tasks.each(ranges, states, &j.dirty, func(t *job.Task) {
		change(t)
		j.close(t)
	})
}
