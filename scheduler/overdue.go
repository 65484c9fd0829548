package scheduler

// Tasks that are overdue: those that have waited for longer than the cluster wants go first, whatever their priority.
// See docs/adr, ADR 145.

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler/step"
)

// overdue finds tasks that have waited for room for longer than Config.MaxWait, and lets them go first.
type overdue struct {
	*step.Turn
	entries *entries
	pending *pending
}

// overdueParts says how often tasks of one user may become overdue: once in this part of Config.MaxWait. So a user with
// thousands of tasks that wait does not put all of them before those of others.
const overdueParts = 64

// begin arms the timer for the next look, which arms it again.
func (od *overdue) begin() {
	if every := od.Config.MaxWait / overdueParts; every > 0 {
		od.After(every, func() {
			od.look()
			od.begin()
		})
	}
}

// look makes one more task of each user overdue, so that it goes first: the oldest one that has waited for too long and
// is not overdue yet.
func (od *overdue) look() {
	if !od.Lead {
		return
	}
	first := map[string]*task{} // by user
	for _, e := range od.entries.byID {
		if od.Now.Sub(e.born) < od.Config.MaxWait {
			continue
		}
		for _, t := range e.tasks {
			x := first[e.job.User]
			if t.overdue || x != nil && older(t, x) > 0 { // the cheap question first: there may be 100,000 jobs
				continue
			}
			if t.waits() && waited(od.Now, t) >= od.Config.MaxWait {
				first[e.job.User] = t
			}
		}
	}
	for _, user := range slices.Sorted(maps.Keys(first)) {
		t := first[user]
		t.overdue = true
		od.pending.hurry(t)
	}
}

// waits reports whether the task stands for its element, and lacks only room.
func (t *task) waits() bool {
	return t.leads() && !t.barred && (t.queued || t.phase == offering) && t.durable().State == job.Pending
}

// older orders tasks by age alone.
func older(a, b *task) int {
	return cmp.Or(a.e.born.Compare(b.e.born), cmp.Compare(a.e.job.ID, b.e.job.ID), cmp.Compare(a.index, b.index))
}

// released restarts the wait of tasks that were held.
func released(e *entry, ranges []job.Range, now time.Time) {
	e.parents.able = now
	for _, t := range e.in(ranges) {
		t.able, t.overdue = now, false
	}
}
