package state

// What records about attempts have in common: the single steps of their changes.

import (
	"slices"
	"time"

	"github.com/musterhq/muster/job"
)

// The states of tasks that wait, are assigned, have ended, or have ended without success.
var (
	waiting = []job.State{job.Pending, job.Held}
	active  = []job.State{job.Reserved, job.Starting, job.Running, job.Unreachable, job.Completing}
	ended   = []job.State{job.Succeeded, job.Failed, job.Cancelled, job.Timeout, job.OutOfMemory, job.NodeFail, job.Preempted}
	failed  = []job.State{job.Failed, job.Cancelled, job.Timeout, job.OutOfMemory, job.NodeFail, job.Preempted}
)

// move changes the state of a task. It returns false if the move is not legal.
func move(t *job.Task, to job.State, why job.Reason) bool {
	moved, err := t.Move(to)
	if err != nil {
		return false
	}
	moved.Reason = why
	*t = moved
	return true
}

// addLost returns a new list with one more lost host. Views share the old list, so it must not change.
func addLost(lost []job.Peer, p job.Peer) []job.Peer {
	lost = append(slices.Clone(lost), p)
	return lost[max(0, len(lost)-job.MaxLost):]
}

// closeTask records when the owner recorded the end of a task. If its host did not report when it ended, that is also
// the time of its end.
func closeTask(t *job.Task, at time.Time) {
	if !t.State.Ended() {
		return
	}
	t.Closed = at
	if t.Ended.IsZero() {
		t.Ended = at
	}
}

// exitReason returns the reason of an exit. It is empty for a plain exit, whose code says everything.
func exitReason(x job.Exit) job.Reason {
	if x.Reason == "" {
		return job.Reason{}
	}
	return job.Reason{Word: ReasonExit, Detail: x.Reason}
}

func setExit(t *job.Task, exit job.Exit, devices []string) {
	t.Exit = &exit
	t.Devices = devices
	t.Started, t.Ended = exit.Began, exit.Ended
}

// endAs returns the next state of a task whose attempt was told to end.
func endAs(j *Job, t *job.Task, ending job.Ending) (job.State, job.Reason) {
	if ending == job.EndsRequeued {
		return job.Pending, job.Reason{}
	}
	if j.Cancelled != "" {
		return job.Cancelled, job.Reason{Word: ReasonCancelled, Detail: j.Cancelled}
	}
	return job.Cancelled, t.Reason
}

// runAgain prepares a task that has ended for another run: it counts its retries and its lost hosts from now.
func runAgain(t *job.Task) {
	t.Settled, t.Runs, t.Lost = t.Attempt, 0, nil
	t.Started, t.Ended, t.Closed = time.Time{}, time.Time{}, time.Time{}
}

// ending returns what becomes of a task whose attempt ends now, if a person has asked for that.
func (j *Job) ending(t *job.Task) job.Ending {
	if j.Cancelled != "" {
		return job.EndsCancelled
	}
	return t.Ending
}

// assigned assigns the next attempt of a pending task.
func assigned(j *Job, t *job.Task, r job.AssignRecord, epoch job.Epoch) bool {
	if !move(t, job.Reserved, job.Reason{}) {
		return false
	}
	j.tasks.history.keepNewest(t)
	t.Attempt, t.Assigned = r.Attempt.N, true
	t.Node, t.NodeName, t.Store, t.Fencing, t.Epoch = r.Node, r.NodeName, r.Store, r.Fencing, epoch
	t.Placed, t.Devices, t.Started, t.Ended = r.At, nil, time.Time{}, time.Time{}
	return true
}

// afterLoss returns the next state of a task whose host was lost. The task runs again, unless the owner holds it (hold
// says why) or the job has no-requeue.
func afterLoss(j *Job, hold, detail string) (job.State, job.Reason) {
	switch {
	case !j.Spec.Requeue:
		return job.NodeFail, job.Reason{Word: ReasonLost, Detail: detail}
	case hold != "":
		return job.Held, job.Reason{Word: ReasonLost, Detail: hold}
	}
	return job.Pending, job.Reason{}
}

// put replaces a task.
func put(j *Job, t job.Task) {
	j.tasks.set(t.Index, t, &j.dirty)
	j.close(&t)
}
