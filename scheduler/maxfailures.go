package scheduler

// The end of a job because as many of its tasks have failed as max_failures allows.

import (
	"fmt"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler/step"
)

// endAfterFailures cancels the job if as many of its tasks have failed as it allows. A member of a gang that ended
// because of another member does not count.
func endAfterFailures(tn *step.Turn, e *entry) {
	most := e.job.Spec.MaxFailures
	if most == 0 || !tn.Lead || e.job.Cancelled != "" || e.job.Ended() {
		return
	}
	counts, failed := e.job.Counts(), 0
	for _, s := range []job.State{job.Failed, job.Timeout, job.OutOfMemory, job.NodeFail} {
		failed += counts.Of(s)
	}
	if failed >= most {
		tn.Propose(job.CancelRecord{Job: e.job.ID, At: tn.Now, Reason: fmt.Sprintf("%d tasks failed (max-failures %d)", failed, most)})
	}
}
