package scheduler

// Deleting jobs that have ended, when somebody asks for it. Jobs that ended long ago are deleted by history.

import (
	"fmt"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler/step"
)

// forgetJob deletes a job that has ended.
func forgetJob(rq *requests, a step.Forget) {
	e := rq.entries.byID[a.Job]
	_, archived := rq.entries.table.Archived(a.Job)
	switch {
	case e == nil && !archived:
		rq.answerArchived(a.Token, a.Job)
		return
	case e != nil && !e.job.Ended():
		rq.answer(a.Token, nil, notEnded(a.Job, rq.views.stateOf(e)))
		return
	}
	rq.await(toForget, a.Job, a.Token)
	rq.history.purge(ending{number: a.Job.Drawn()}) // unless that is under way already
}

func notEnded(id job.ID, s job.State) error {
	return fmt.Errorf("%w: job %s is %s, and only a job that has ended can be forgotten; `muster cancel %s` ends it", step.ErrConflict, id, s, id)
}

// forgotten answers the requests to delete a job after its Purge was applied. e is the job if it is still there: it was
// requeued before.
func forgotten(rq *requests, id job.ID, e *entry) {
	if e == nil || rq.entries.byID[id] != e {
		answerAll(rq, toForget, id, nil)
		return
	}
	answerAll(rq, toForget, id, notEnded(id, rq.views.stateOf(e)))
}

// answerAll answers all requests for this kind of change of the job.
func answerAll(rq *requests, kind changeKind, id job.ID, err error) {
	for tok, there := rq.oldest(kind, id); there; tok, there = rq.oldest(kind, id) {
		rq.answer(tok, nil, err)
	}
}
