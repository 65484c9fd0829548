package scheduler

// Levels of waiting tasks: by the GPU-time that they have had or have left, and by how long they have waited.
// See docs/adr, ADR 110.

import (
	"time"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler/state"
	"github.com/musterhq/muster/scheduler/step"
)

// patience is how long a task waits at least before it goes to the first level.
const patience = 144 * time.Minute

// stretch is how many times its remaining time a task waits at least before it goes to the first level, if that time is
// known.
const stretch = 16

// rate works out the level of a task that begins to wait, for the first time or again. The task goes to the first level
// when it has waited for as long as it has run so far, and for patience at least. So its waiting time grows no faster
// than its running time, however many tasks are before it. If its remaining time is known, the task waits for stretch
// times that instead of for the time that it has run: tasks with little left go sooner anyway, and those with much left
// hold up many others.
//
// An overdue task goes before all tasks of users whose highest priority is not above that of its own user, and keeps
// that rank while it runs. See also before.
func rate(tn *step.Turn, t *task, hurry func(*task)) {
	if t.raised = 0; t.overdue {
		tn.Stop(t.lined.timer)
		most, _ := tn.Config.Priorities.Highest(t.e.job.User)
		t.raised, t.level = contract.Overdue(most)
		t.work = contract.Work{}
		if tn.Config.Order != contract.ByAge {
			t.work = contract.Work{By: tn.Config.Order, Time: contract.MaxWork}
		}
		return
	}
	if tn.Config.Order == contract.ByAge {
		return
	}
	ran, last := had(t)
	if l := &t.lined; !l.known || l.after != last {
		tn.Stop(l.timer)
		*l = waitingSince{after: last, known: true, since: tn.Now}
		if last == 0 {
			l.since = t.e.born
		}
	}
	spec := &t.e.job.Spec
	width := contract.Width(spec.Need(), t.e.job.Gang())
	t.work = contract.Work{By: tn.Config.Order, Time: contract.Times(ran, width)}
	if tn.Config.Order == contract.ByRemaining && tn.Config.MaxWait > 0 && spec.TimeLimit > 0 {
		before(tn, t, max(spec.TimeLimit.D()-ran, 0), width, hurry)
		return
	}
	waits := ran
	if tn.Config.Order == contract.ByRemaining {
		t.work.Time = contract.MaxWork
		if limit := spec.TimeLimit.D(); limit > 0 {
			left := max(limit-ran, 0)
			t.work.Time, waits = contract.Times(left, width), stretch*left
		}
	}
	due := t.lined.since.Add(max(patience, waits))
	if t.level = t.work.Level(); t.level == 0 {
		return
	}
	if !tn.Now.Before(due) {
		t.level = 0
		return
	}
	tn.Stop(t.lined.timer)
	t.lined.timer = tn.At(due, func() { hurry(t) })
}

// before works out the level of a task with this much time left by its limit, if Config.MaxWait bounds how long tasks
// wait. When the task has waited for as long as it has left, and for contract.MinRun at least, it gets the highest
// priority that its user may have, with the level of its work. Otherwise long tasks of a higher priority would keep
// short ones waiting until all are overdue, and all would then go by age. As MaxWait bounds the longest wait, no task
// goes to the first level for having waited.
func before(tn *step.Turn, t *task, left time.Duration, width int, hurry func(*task)) {
	tn.Stop(t.lined.timer)
	t.work.Time = contract.Times(left, width)
	t.level = t.work.Level()
	short := max(contract.MinRun, left) - waited(tn.Now, t)
	if short > 0 {
		t.lined.timer = tn.After(short, func() { hurry(t) })
		return
	}
	t.raised, _ = tn.Config.Priorities.Highest(t.e.job.User)
}

// had returns how long the attempts of a task have run in all, by the journal, and the number of the newest attempt
// that ran; 0 if none did. Attempts before a person last requeued the task do not count. If there were more than the
// journal keeps, each of the others counts as much as the average of those.
func had(t *task) (ran time.Duration, last int) {
	j := t.e.job
	settled := j.Task(t.index).Settled
	n := 0
	for _, o := range state.Outcomes(j, t.index) {
		if o.N <= settled || o.Exit.Began.IsZero() || !o.Exit.Ended.After(o.Exit.Began) {
			continue
		}
		ran += min(o.Exit.Ended.Sub(o.Exit.Began), job.MaxTimeLimit)
		last, n = o.N, n+1
	}
	if n == job.MaxOutcomes && last > n {
		ran = ran / time.Duration(n) * time.Duration(min(last-settled, mostCounted))
	}
	return ran, last
}

// mostCounted bounds the attempts that count.
const mostCounted = 10_000

// waited returns how long the task has waited for room since its submission, all its waits together. That is the time
// since it last waited for anything else, less the time in which it ran.
func waited(now time.Time, t *task) time.Duration {
	since := t.e.born
	for _, at := range []time.Time{t.e.parents.able, t.able} {
		if at.After(since) {
			since = at
		}
	}
	all := now.Sub(since)
	if b := t.e.job.Spec.Begin; b != nil {
		all = min(all, now.Round(0).Sub(*b))
	}
	ran, _ := had(t)
	return all - ran
}
