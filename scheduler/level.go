package scheduler

// Levels of waiting tasks: by the GPU-time that they have had or have left, and by how long they have waited.
// See docs/adr, ADR 110.

import (
	"time"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/jobs"
	"github.com/musterhq/muster/lease"
)

// patience is how long a task waits at least before it goes to the first level.
const patience = 144 * time.Minute

// lined is since when a task waits.
type lined struct {
	after int // the newest attempt that ran
	known bool
	since time.Time
	timer *timer // when it goes to the first level
}

// precedence is what comes before anything else in the order of tasks.
func (t *task) precedence() int { return lease.Precedence(t.e.priority, t.level) }

// rate works out the level of a task that begins to wait, also once more. It goes to the first level when it has waited for
// as long as it has run so far, and for patience at least. So however many tasks are before it, what it waits for room
// grows no faster than what it gets.
func (p *pending) rate(t *task) {
	if p.cfg.Order == lease.ByAge {
		return
	}
	ran, last := had(t)
	if l := &t.lined; !l.known || l.after != last {
		p.stop(l.timer)
		*l = lined{after: last, known: true, since: p.now}
		if last == 0 {
			l.since = t.e.born
		}
	}
	spec := &t.e.job.Spec
	width := lease.Width(spec.Need(), t.e.job.Gang())
	t.work = lease.Work{By: p.cfg.Order, Time: lease.Times(ran, width)}
	if p.cfg.Order == lease.ByRemaining {
		t.work.Time = lease.MaxWork
		if limit := spec.TimeLimit.D(); limit > 0 {
			t.work.Time = lease.Times(max(limit-ran, 0), width)
		}
	}
	due := t.lined.since.Add(max(patience, ran))
	if t.level = t.work.Level(); t.level == 0 {
		return
	}
	if !p.now.Before(due) {
		t.level = 0
		return
	}
	p.stop(t.lined.timer)
	t.lined.timer = p.at(due, func() { p.hurry(t) })
}

// had returns for how long the attempts of a task have run, by the journal, and the newest of them that ran; 0 if none did.
// Those before a person last requeued it do not count. If there are more than the journal keeps, the others count like those.
func had(t *task) (ran time.Duration, last int) {
	j := t.e.job
	settled := j.Task(t.index).Settled
	n := 0
	for _, o := range jobs.Outcomes(j, t.index) {
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

// hurry has a task wait anew with the level that it has by now. One that a host has taken meanwhile goes on.
func (ds *dispatches) hurry(t *task) {
	d := t.dispatch
	switch {
	case t.tally.gone:
	case t.queued:
		ds.pending.dequeue(t)
		ds.pending.requeue(t)
	case d != nil && t.phase == offering && d.winner == nil && (d.gang == nil || d.seats()[seated] < d.gang.size):
		ds.abandon(d)
	case d != nil:
		t.lined.timer = ds.after(time.Minute, func() { ds.hurry(t) })
	}
}
