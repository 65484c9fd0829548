package worker

// Levels of running tasks: for which tasks of their own priority they may be ended.
// See docs/adr, ADR 110.

import (
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/lease"
)

// yielding is for whom a preemptible attempt may be ended.
type yielding struct {
	priority int // of its job
	level    int // at present
	offered  int // the level of its offer
	width    int // by which its GPU-time grows; see lease.Width
	work     lease.Work
	relevel  *timer // when its level changes
}

// precedence is that of the attempt now. Only offers before it may end it.
func (y *yielding) precedence() int { return lease.Precedence(y.priority, y.level) }

// setPreemptible notes whether the attempt may be preempted now, by the spec of its job.
func (s *attempts) setPreemptible(a *attempt, spec job.Spec) {
	if a.preemptible == spec.Preemptible {
		return
	}
	if a.preemptible {
		s.account.yield(a.priority, a.level, &a.rec, -1)
		s.turn.timers.stop(a.relevel)
		a.preemptible, a.yielding = false, yielding{}
		return
	}
	a.preemptible, a.yielding = true, yielding{priority: spec.Priority}
	if a.offer != nil { // else a restart has lost what the offer said, and no task of its priority ends it
		m := &a.offer.msg
		a.work, a.offered, a.width = m.Work, m.Level, lease.Width(m.Need, m.Gang)
	}
	s.account.yield(a.priority, a.level, &a.rec, 1)
}

// age gives the attempt the level that it has after so long a time, and again when that changes. While offers are ordered
// by age there is nothing to do.
func (s *attempts) age(now Moment, a *attempt) {
	if !a.preemptible || a.work.By == lease.ByAge {
		return
	}
	s.turn.timers.stop(a.relevel)
	level, keeps := a.work.Present(a.offered, a.width, now.Boot.Sub(a.began))
	if level != a.level {
		s.account.yield(a.priority, a.level, &a.rec, -1)
		a.level = level
		s.account.yield(a.priority, a.level, &a.rec, 1)
		s.turn.arbitrate = true
	}
	if keeps > 0 {
		a.relevel = s.turn.timers.set(now.Boot.Add(keeps), func(now Moment) { s.age(now, a) })
	}
}
