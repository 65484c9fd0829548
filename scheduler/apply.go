package scheduler

// What each committed record does to a job: compared with what it finds, and
// nothing at all where that has moved on. No clock, no chance, so that every
// replay ends in the same jobs.

import (
	"slices"
	"time"

	"github.com/musterhq/muster/job"
)

// newJob is the job that a SubmitRecord creates.
func newJob(r job.SubmitRecord, owner job.Peer) job.Job {
	t := job.Task{State: job.Pending}
	if r.Spec.Hold {
		t.State, t.Reason = job.Held, job.Reason{Word: reasonHeld, Detail: "submitted with hold"}
	}
	return job.Job{
		ID: r.Job, User: r.User, Spec: r.Spec, Owner: owner, Submitted: r.At, Key: r.Key, Tasks: []job.Task{t},
	}
}

// The words of a reason besides those of a pending task.
const (
	reasonHeld      = "Held"
	reasonCancelled = "Cancelled"
	reasonLost      = "NodeLost"
	reasonExit      = "Exit"
	reasonSilent    = "NodeSilent"
)

// taskOf is the attempt's task, nil if the job has none such.
func taskOf(j *job.Job, a job.Attempt) *job.Task {
	if a.Task < 0 || a.Task >= len(j.Tasks) {
		return nil
	}
	return &j.Tasks[a.Task]
}

// move changes the state by the table, or says that it cannot.
func move(t *job.Task, to job.State, why job.Reason) bool {
	moved, err := t.Move(to)
	if err != nil {
		return false
	}
	moved.Reason = why
	*t = moved
	return true
}

func applyAssign(j *job.Job, r job.AssignRecord, e job.Epoch) bool {
	t := taskOf(j, r.Attempt)
	if t == nil || t.State != job.Pending || t.Assigned || r.Attempt.N != t.Attempt+1 || j.Cancelled != "" {
		return false
	}
	if !move(t, job.Reserved, job.Reason{}) {
		return false
	}
	t.Attempt, t.Assigned = r.Attempt.N, true
	t.Node, t.NodeName, t.Store, t.Epoch = r.Node, r.NodeName, r.Store, e
	t.Devices, t.PID, t.Started, t.Ended = nil, 0, time.Time{}, time.Time{}
	return true
}

func applyUnassign(j *job.Job, r job.UnassignRecord) bool {
	t := taskOf(j, r.Attempt)
	if t == nil || !t.Assigned || t.Attempt != r.Attempt.N {
		return false
	}
	to, why, lost := job.Pending, job.Reason{}, false
	switch r.Proof {
	case job.ProofDeclined, job.ProofNeverStarted:
	case job.ProofDead, job.ProofExpired, job.ProofOperator:
		lost = true
		to, why = afterLoss(j, r.Hold, r.Detail)
	}
	if j.Cancelled != "" {
		to, why = job.Cancelled, job.Reason{Word: reasonCancelled, Detail: j.Cancelled}
	}
	if !move(t, to, why) {
		return false
	}
	if lost {
		t.Lost = addLost(t.Lost, t.Node)
	}
	t.Assigned = false
	closeTask(t, r.At)
	return true
}

// afterLoss is what becomes of a task whose host was lost: it runs again, unless
// its owner holds it back or its user wants no second run.
func afterLoss(j *job.Job, hold, detail string) (job.State, job.Reason) {
	switch {
	case !j.Spec.Requeue:
		return job.NodeFail, job.Reason{Word: reasonLost, Detail: detail}
	case hold != "":
		return job.Held, job.Reason{Word: reasonLost, Detail: hold}
	}
	return job.Pending, job.Reason{}
}

// addLost remembers a lost host, on a list of its own: views share the old one.
func addLost(lost []job.Peer, p job.Peer) []job.Peer {
	lost = append(slices.Clone(lost), p)
	return lost[max(0, len(lost)-job.MaxLost):]
}

// closeTask notes when the owner recorded a task's end; a task whose host did not
// tell when it ended has ended then.
func closeTask(t *job.Task, at time.Time) {
	if !t.State.Ended() {
		return
	}
	t.Closed = at
	if t.Ended.IsZero() {
		t.Ended = at
	}
}

func applyResult(j *job.Job, r job.ResultRecord) bool {
	t := taskOf(j, r.Attempt)
	if t == nil {
		return false
	}
	if !t.Assigned || t.Attempt != r.Attempt.N {
		return applyLate(j, t, r)
	}
	exit := r.Exit
	if !exit.State.Ended() {
		exit.State = job.Failed
	}
	to, why := exit.State, exitReason(exit)
	again := false
	switch exit.State {
	case job.NodeFail: // not the task's own doing: no retry is spent
		to, why = afterLoss(j, r.Hold, why.Detail)
	case job.Preempted:
		again = j.Spec.Requeue
	case job.Failed, job.Timeout, job.OutOfMemory:
		again = t.Runs < j.Spec.Retries
		t.Runs++
	case job.Succeeded, job.Cancelled, job.Pending, job.Held, job.Reserved, job.Starting, job.Running, job.Unreachable, job.Completing:
		t.Runs++
	}
	if j.Cancelled != "" {
		to, why, again = job.Cancelled, job.Reason{Word: reasonCancelled, Detail: j.Cancelled}, false
	}
	if again {
		to = job.Pending
	}
	if !move(t, to, why) {
		return false
	}
	if exit.State == job.NodeFail {
		t.Lost = addLost(t.Lost, t.Node)
	}
	setExit(t, exit, r.Devices)
	t.Assigned = false
	closeTask(t, r.At)
	return true
}

// applyLate takes the success of an attempt that had been given up: the work
// is done, whatever was planned instead.
func applyLate(j *job.Job, t *job.Task, r job.ResultRecord) bool {
	if r.Attempt.N > t.Attempt || r.Exit.State != job.Succeeded || !r.Exit.Started || j.Cancelled != "" {
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

// exitReason is empty for a plain exit: its code says all.
func exitReason(x job.Exit) job.Reason {
	if x.Reason == "" {
		return job.Reason{}
	}
	return job.Reason{Word: reasonExit, Detail: x.Reason}
}

func setExit(t *job.Task, exit job.Exit, devices []string) {
	t.Exit = &exit
	t.Devices, t.PID = devices, 0
	t.Started, t.Ended = exit.Began, exit.Ended
}

func applyCancel(j *job.Job, r job.CancelRecord) bool {
	if j.Cancelled != "" || ended(j) {
		return false
	}
	j.Cancelled = r.Reason
	if j.Cancelled == "" {
		j.Cancelled = "cancelled"
	}
	for i := range j.Tasks {
		t := &j.Tasks[i]
		if t.State == job.Pending || t.State == job.Held {
			move(t, job.Cancelled, job.Reason{Word: reasonCancelled, Detail: j.Cancelled})
			t.Ended = r.At
			closeTask(t, r.At)
		}
	}
	return true
}

func applyHold(j *job.Job, r job.HoldRecord) bool {
	from, to, why := job.Pending, job.Held, job.Reason{Word: reasonHeld, Detail: r.Reason}
	if r.Release {
		from, to, why = job.Held, job.Pending, job.Reason{}
	}
	moved := false
	for i := range j.Tasks {
		if t := &j.Tasks[i]; t.State == from && move(t, to, why) {
			moved = true
			if r.Release {
				t.Lost = nil // whoever releases it means it to run
			}
		}
	}
	return moved
}

// ended says whether nothing more will happen to the job by itself.
func ended(j *job.Job) bool {
	for i := range j.Tasks {
		if !j.Tasks[i].State.Ended() {
			return false
		}
	}
	return true
}

// closedAt is when its last task's end was recorded, by the owner's clock. Rows of
// older versions do not tell: then it is when the task ended, by its host's clock.
func closedAt(j *job.Job) time.Time {
	var last time.Time
	for i := range j.Tasks {
		at := j.Tasks[i].Closed
		if at.IsZero() {
			at = j.Tasks[i].Ended
		}
		if at.After(last) {
			last = at
		}
	}
	return last
}
