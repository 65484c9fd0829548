package scheduler

// Hosts that all tasks of a job avoid, because its Starts are kept back from them: for how long, and what people are told.
// See docs/adr, ADR 165.

import (
	"slices"
	"time"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/scheduler/step"
)

// lookAgain is how often the placement of a job is tried again while it waits for a host from which its Start is kept
// back: another host may have come.
const lookAgain = 10 * time.Second

// shunning returns until when a task pauses, if placement makes it pause until the given time. If the task waits for a
// host from which its Start is kept back, the pause is lookAgain at most, and its reason says so.
func shunning(tn *step.Turn, t *task, until time.Time) time.Time {
	if !t.e.shuns.Ends(until) {
		return until
	}
	t.pause.why = t.e.shunned
	if soon := tn.Now.Add(lookAgain); soon.Before(until) {
		return soon
	}
	return until
}

// nextTry returns the time of the next attempt of a pausing task, for people. A placement that is only tried again after
// lookAgain does not count.
func nextTry(t *task, now time.Time) time.Time {
	next := t.pause.until
	if t.pause.why != t.e.shunned {
		return next
	}
	for _, a := range t.e.shuns {
		if a.Until.After(now) && a.Until.After(next) {
			next = a.Until
		}
	}
	return next
}

// notWhereHeldBack moves the hosts from which Starts of the job are kept back from x.Now to x.Later, the hosts that may
// run it later.
func notWhereHeldBack(now time.Time, e *entry, x *contract.Explanation) {
	x.Now = slices.DeleteFunc(x.Now, func(c contract.Candidate) bool {
		if !e.shuns.Hard(now, c.Node) {
			return false
		}
		c.Why = e.shunned
		x.Later = append(x.Later, c)
		return true
	})
}
