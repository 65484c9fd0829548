package scheduler

// Starts that wait for the file of their job.

import (
	"slices"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler/state"
	"github.com/musterhq/muster/scheduler/step"
)

// fileReady goes on with the starts that wait for the file of their job.
func fileReady(ds *dispatches, gs *gangStarts, e *entry) {
	for _, t := range slices.Clone(e.tasks) {
		switch d := t.dispatch; {
		case d == nil || t.phase != recorded:
		case d.gang != nil:
			gs.start(d)
		default:
			ds.start(d)
		}
	}
}

// unreadableFile handles a job file that could not be read. If the file is damaged, it can never be read, and the job
// is cancelled.
func unreadableFile(ds *dispatches, e *entry, err error) {
	detail := err.Error()
	if damaged(err) {
		detail = state.ErrDamaged.Error() + "; submit it again"
		ds.Propose(job.CancelRecord{Job: e.job.ID, Reason: detail, At: ds.Now})
	}
	ds.Notify(step.Notice{Kind: step.FileDefect, Attempt: job.Attempt{Job: e.job.ID}, Detail: err.Error()})
	for _, t := range slices.Clone(e.tasks) {
		if t.dispatch != nil {
			t.pause.until, t.pause.why = ds.Now.Add(retryMost), contract.Clip("its job file was not read: "+detail)
			ds.abandon(t.dispatch)
		}
	}
}
