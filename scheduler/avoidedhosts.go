package scheduler

// Hosts that all tasks of a job avoid, because its Starts are kept back from them: for how long, and what people are told.
// See docs/adr, ADR 165.

import (
	"slices"
	"time"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/scheduler/step"
)

// avoidRetry is how often the placement of a job is tried again while it waits for a host from which its Start is kept
// back: another host may have come.
const avoidRetry = 10 * time.Second

// pauseForAvoided returns until when a task pauses, if placement makes it pause until the given time. If the task waits for a
// host from which its Start is kept back, the pause is avoidRetry at most, and its reason says so.
func pauseForAvoided(tn *step.Turn, t *task, until time.Time) time.Time {
	if !t.e.avoidedHosts.Ends(until) {
		return until
	}
	t.pause.why = t.e.avoidedWhy
	if soon := tn.Now.Add(avoidRetry); soon.Before(until) {
		return soon
	}
	return until
}

// nextTry returns the time of the next attempt of a pausing task, for people. A placement that is only tried again after
// avoidRetry does not count.
func nextTry(t *task, now time.Time) time.Time {
	next := t.pause.until
	if t.pause.why != t.e.avoidedWhy {
		return next
	}
	for _, a := range t.e.avoidedHosts {
		if a.Until.After(now) && a.Until.After(next) {
			next = a.Until
		}
	}
	return next
}

// avoidHeldBack moves the hosts from which Starts of the job are kept back from x.Now to x.Later, the hosts that may
// run it later.
func avoidHeldBack(now time.Time, e *entry, x *contract.Explanation) {
	x.Now = slices.DeleteFunc(x.Now, func(c contract.Candidate) bool {
		if !e.avoidedHosts.Hard(now, c.Node) {
			return false
		}
		c.Why = e.avoidedWhy
		x.Later = append(x.Later, c)
		return true
	})
}
