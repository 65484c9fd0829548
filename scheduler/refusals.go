package scheduler

// Refusals: why a request of a user cannot be met.

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
)

// checkLimits refuses a job that the limits of this daemon would never let start: its priority is higher than its user
// may give, it exceeds a limit of the user, or it costs more than jobs of the user may ever cost while they wait here.
func checkLimits(es *entries, user string, operator bool, s *job.Spec) error {
	if why := es.cfg.Priorities.Exceeds(user, s.Priority); why != "" {
		return fmt.Errorf("%w: %s; ask for less, or ask an operator to raise it", ErrLimit, why)
	}
	var wanted contract.Held
	wanted.Add(s.Need(), max(1, s.Nodes))
	if why := cmp.Or(es.cfg.Limits.NeverFor(user, s.TimeLimit), es.cfg.Limits.NeverInCluster(user, wanted)); why != "" {
		return fmt.Errorf("%w: %s; ask for less, or ask an operator to raise it", ErrLimit, why)
	}
	l, err := s.Layout()
	if err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return es.backlog.checkEver(user, operator, submitCosts(s, l.Tasks()))
}

func keyConflict(key string, id job.ID) error {
	return fmt.Errorf("%w: idempotency key %q was used for another job file, job %s", ErrConflict, key, id)
}

// nothingToRequeue reports whether a requeue would make none of the counted tasks run again. It is no error if they are
// about to run anyway.
func nothingToRequeue(id job.ID, counts job.Counts, failed bool) (none bool, err error) {
	ended, held := counts.Ended(), counts.Of(job.Held)
	switch {
	case counts.Total() == 0:
		return true, fmt.Errorf("%w: job %s has no such task", ErrConflict, id)
	case failed && ended == counts.Of(job.Succeeded):
		return true, noneFailed(id)
	case !failed && held == counts.Total():
		return true, fmt.Errorf("%w: job %s is held; `muster release %s` lets it run", ErrConflict, id, id)
	}
	return !failed && counts.Of(job.Pending)+held == counts.Total(), nil
}

func noneFailed(id job.ID) error {
	return fmt.Errorf("%w: job %s: none of its tasks has failed", ErrConflict, id)
}

// unreadable refuses to requeue an archived job.
func unreadable(id job.ID, why string) error {
	return fmt.Errorf("%w: job %s cannot run again, because its rows on disk %s; submit it again", ErrConflict, id, why)
}

// conflict refuses to hold or release tasks in this state.
func conflict(who string, s job.State, release bool) error {
	what := "only tasks that wait can be held"
	if release {
		what = "only held tasks can be released"
	}
	return fmt.Errorf("%w: %s %s: %s", ErrConflict, who, s, what)
}

var errNotTaken = errors.New("the journal did not take it")
