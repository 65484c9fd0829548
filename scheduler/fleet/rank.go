package fleet

// The one order of requests.
// See docs/adr, ADR 60.

import (
	"cmp"
	"time"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/internal/fairshare"
	"github.com/musterhq/muster/job"
)

// Rank orders tasks: by priority, level, what their users and projects have used of their share, age, job id, and
// index. No two tasks have the same rank.
type Rank struct {
	Priority int                // the highest first
	Level    int                // within a priority, the lowest first; 0 if tasks go by age
	Share    fairshare.Standing // as it was when the task began to wait at hosts
	Born     time.Time
	Job      job.ID
	Task     int // its index in the job
}

// Precedence returns the part of the rank that is compared first.
func (r *Rank) Precedence() int { return contract.Precedence(r.Priority, r.Level) }

// Compare returns a number below 0 if r comes before q, and 0 only for the same task.
func (r *Rank) Compare(q *Rank) int {
	if n := cmp.Or(cmp.Compare(q.Precedence(), r.Precedence()), r.Share.Compare(q.Share)); n != 0 {
		return n
	}
	return cmp.Or(r.Born.Compare(q.Born), cmp.Compare(r.Job, q.Job), cmp.Compare(r.Task, q.Task))
}

// CompareAge compares two tasks as Compare does, but leaves out what their accounts have used.
func (r *Rank) CompareAge(q *Rank) int {
	return cmp.Or(cmp.Compare(q.Precedence(), r.Precedence()), r.Born.Compare(q.Born), cmp.Compare(r.Job, q.Job), cmp.Compare(r.Task, q.Task))
}
