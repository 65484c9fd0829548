package scheduler

// Refusals: why a request of a user cannot be met.

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler/backlog"
	"github.com/musterhq/muster/scheduler/state"
	"github.com/musterhq/muster/scheduler/step"
)

// checkLimits refuses a job that the limits of this daemon would never let start: its priority is higher than its user
// may give, it exceeds a limit of the user, or it costs more than jobs of the user may ever cost while they wait here.
func checkLimits(es *entries, user string, operator bool, s *job.Spec) error {
	if why := es.Config.Priorities.Exceeds(user, s.Priority); why != "" {
		return fmt.Errorf("%w: %s; ask for less, or ask an operator to raise it", step.ErrLimit, why)
	}
	var wanted contract.Held
	wanted.Add(s.Need(), max(1, s.Nodes))
	if why := cmp.Or(es.Config.Limits.NeverFor(user, s.TimeLimit), es.Config.Limits.NeverInCluster(user, wanted)); why != "" {
		return fmt.Errorf("%w: %s; ask for less, or ask an operator to raise it", step.ErrLimit, why)
	}
	l, err := s.Layout()
	if err != nil {
		return fmt.Errorf("%w: %w", step.ErrInvalid, err)
	}
	if err := es.backlog.CheckEver(user, operator, backlog.SubmitCost(s, l.Tasks())); err != nil {
		return fmt.Errorf("%w: %w", step.ErrLimit, err)
	}
	return nil
}

// KeyConflict refuses a submission whose idempotency key belongs to another job file.
func KeyConflict(key string, id job.ID) error {
	return fmt.Errorf("%w: idempotency key %q was used for another job file, job %s", step.ErrConflict, key, id)
}

// nothingToRequeue reports whether a requeue would make none of the counted tasks run again. It is no error if they are
// about to run anyway.
func nothingToRequeue(id job.ID, counts job.Counts, failed bool) (none bool, err error) {
	ended, held := counts.Ended(), counts.Of(job.Held)
	switch {
	case counts.Total() == 0:
		return true, fmt.Errorf("%w: job %s has no such task", step.ErrConflict, id)
	case failed && ended == counts.Of(job.Succeeded):
		return true, noneFailed(id)
	case !failed && held == counts.Total():
		return true, fmt.Errorf("%w: job %s is held; `muster release %s` lets it run", step.ErrConflict, id, id)
	}
	return !failed && counts.Of(job.Pending)+held == counts.Total(), nil
}

func noneFailed(id job.ID) error {
	return fmt.Errorf("%w: job %s: none of its tasks has failed", step.ErrConflict, id)
}

// Unreadable refuses to requeue an archived job.
func Unreadable(id job.ID, why string) error {
	return fmt.Errorf("%w: job %s cannot run again, because its rows on disk %s; submit it again", step.ErrConflict, id, why)
}

// Conflict refuses to hold or release tasks in this state.
func Conflict(who string, s job.State, release bool) error {
	what := "only tasks that wait can be held"
	if release {
		what = "only held tasks can be released"
	}
	return fmt.Errorf("%w: %s %s: %s", step.ErrConflict, who, s, what)
}

var errNotTaken = errors.New("the journal did not take it")

// widened returns the elements that have tasks in the ranges, and how many of their tasks are in each state. The job may be
// nil.
func widened(e *entry, ranges []job.Range) ([]job.Range, job.Counts) {
	if e == nil {
		return ranges, job.Counts{}
	}
	ranges = state.Widen(e.job, ranges)
	return ranges, e.job.CountsIn(ranges)
}
