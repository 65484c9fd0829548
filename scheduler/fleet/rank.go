package fleet

// The one order of requests.
// See docs/adr, ADR 60.

import (
	"cmp"
	"time"

	"github.com/musterhq/muster/job"
)

// Rank is where a task stands among all: priority, then age, then name. No two tasks share one.
type Rank struct {
	Priority int // the highest first
	Born     time.Time
	Job      job.ID
	Task     int // its index in the job
}

// Compare is less than 0 if r comes before q, and 0 only for the same task.
func (r *Rank) Compare(q *Rank) int {
	return cmp.Or(cmp.Compare(q.Priority, r.Priority), r.Born.Compare(q.Born),
		cmp.Compare(r.Job, q.Job), cmp.Compare(r.Task, q.Task))
}
