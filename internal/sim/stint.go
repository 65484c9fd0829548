package sim

// The work of a task or of a gang: how much of it is done, how fast it goes, and what is lost.

import (
	"slices"
	"time"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/internal/sim/record"
	"github.com/musterhq/muster/job"
)

// stint is one attempt of an element. The work of a gang begins when the last of its members has begun, and goes at the
// pace of the slowest host.
type stint struct {
	s      *submission
	k      int // the element
	number int // of the attempt
	procs  []*proc
	begun  int // members whose process exists or existed
	over   int // members that have ended
	state  stintState
	since  time.Duration // when done was last counted
	done   time.Duration // work done in this stint, including the cost of the start
	costs  time.Duration // what the start costs
	speed  float64
	plan   int // number of the newest plan of the end; an older one has no meaning
}

// stintState is the state of a stint.
type stintState int

const (
	stintWaits  stintState = iota // for its members to begin
	stintWorks                    // all members have begun
	stintBroken                   // it has ended early, or will not begin as a whole
	stintDone
)

// stintOf returns the stint to which a process belongs, and adds it there.
func (s *submission) stintOf(p *proc) *stint {
	e, k := s.element(p.attempt.Task)
	x := e.stint
	if x == nil || x.number < p.attempt.N {
		x = &stint{s: s, k: k, number: p.attempt.N, speed: 1}
		e.stint = x
	} else if x.number > p.attempt.N { // a late start of an older attempt
		x = &stint{s: s, k: k, number: p.attempt.N, speed: 1, state: stintBroken}
	}
	x.procs = append(x.procs, p)
	return x
}

// heard notes that the owner has heard of the success of an attempt. If that comes late and a newer attempt runs
// already, the newer attempt counts as done.
func (s *submission) heard(a job.Attempt) {
	if s.nodes > 0 {
		return // for gangs a late success does not count
	}
	if e, k := s.element(a.Task); !e.ended && e.stint != nil && e.stint.number > a.N {
		e.stint.state = stintDone
		s.w.counts.Finished++
		s.w.tell(record.Record{Kind: record.Finish, Job: s.index, Task: k})
		s.w.ended(s, e)
	}
}

// reopen notes that an element runs again although it had done its work, because its owner has not heard of its end. It
// goes on from its last save.
func (s *submission) reopen(e *element, k int) {
	w := s.w
	e.ended, e.saved = false, 0
	if w.cfg.Checkpoint > 0 {
		e.saved = s.runs.Truncate(w.cfg.Checkpoint)
	}
	e.resumes = e.saved > 0
	w.counts.Lost++
	w.counts.Finished--
	w.counts.LostWork += time.Duration(float64(s.runs-e.saved) * s.gpus())
	w.tell(record.Record{Kind: record.Lost, Job: s.index, Task: k})
	if s.left++; s.left == 1 {
		w.left++
		w.open++
	}
}

// joined notes that the process of a member exists.
func (x *stint) joined(p *proc) {
	x.begun++
	p.endsAt = x.s.w.now + x.s.runs
	switch {
	case x.state == stintBroken: // a gang that lost a member before: what is left of it runs on until it is told to end
		x.s.w.at(p.endsAt, p.finish)
	case x.begun == max(x.s.nodes, 1):
		x.start()
	case x.s.spec.KeepOnBadExit: // the member does not wait for ever for one that is never started
		x.s.w.at(p.endsAt, func() {
			if x.state == stintWaits {
				p.finish()
			}
		})
	}
}

// start begins the work.
func (x *stint) start() {
	s, w := x.s, x.s.w
	e := &s.elements[x.k]
	if e.ended {
		s.reopen(e, x.k)
	}
	x.state, x.since = stintWorks, w.now
	if e.resumes {
		x.costs = w.cfg.Restart
	}
	w.counts.Starts++
	if w.cfg.Sink != nil {
		w.tell(record.Record{Kind: record.Start, Job: s.index, Task: x.k, Alloc: x.alloc()})
	}
	x.pace()
}

// alloc returns what the members hold, by rank.
func (x *stint) alloc() []record.Alloc {
	slices.SortFunc(x.procs, func(a, b *proc) int { return a.attempt.Task - b.attempt.Task })
	all := make([]record.Alloc, 0, len(x.procs))
	for _, p := range x.procs {
		a := record.Alloc{Machine: p.h.index, Hops: x.s.w.net.Hops(x.s.owner.at, p.h.index)}
		for _, d := range p.task.Devices {
			a.Devices = append(a.Devices, p.h.deviceAt[d])
		}
		a.Way = x.way(p)
		slices.Sort(a.Devices)
		if len(a.Devices) > 0 {
			a.Milli = gpu.Milli(p.task.Spec.Resources)
		}
		all = append(all, a)
	}
	if _, traced := x.s.w.net.(Tracer); traced && len(all) > 1 {
		n := len(all)
		for i := range all {
			all[i].Way.Next = max(x.s.w.net.Hops(all[i].Machine, all[(i+1)%n].Machine), 0)
		}
	}
	return all
}

// way returns what it costs to run a member on a host other than the owner's.
func (x *stint) way(p *proc) (out record.Way) {
	w, from, to := x.s.w, x.s.owner.at, p.h.index
	if from == to {
		return out
	}
	out.Bytes, out.Waited = p.files.bytes, p.files.waited
	if cost := w.net.Cost(from, to); cost <= mostCost {
		out.Latency = cost
	}
	if t, ok := w.net.(Tracer); ok {
		out.Path = t.Path(from, to)
	}
	return out
}

// need returns how much work the stint has in all.
func (x *stint) need() time.Duration {
	return x.s.runs - x.s.elements[x.k].saved + x.costs
}

// pace counts the work done so far, reads the present speed of the hosts, and plans the end.
func (x *stint) pace() {
	if x.state != stintWorks {
		return
	}
	w := x.s.w
	x.count()
	x.speed = 1
	for _, p := range x.procs {
		x.speed = min(x.speed, p.h.speed)
	}
	x.plan++
	plan := x.plan
	ends := w.now + time.Duration(float64(x.need()-x.done)/x.speed)
	for _, p := range x.procs {
		p.endsAt = ends
	}
	w.at(ends, func() {
		if x.plan == plan && x.state == stintWorks {
			x.finish()
		}
	})
}

// count adds the work since it was last counted.
func (x *stint) count() {
	w := x.s.w
	x.done = min(x.done+time.Duration(float64(w.now-x.since)*x.speed), x.need())
	x.since = w.now
}

// finish ends the work: all members end.
func (x *stint) finish() {
	w := x.s.w
	x.count()
	if w.watch == nil {
		x.end()
		for _, p := range x.procs {
			p.finish()
		}
		return
	}
	bad := false
	for _, p := range x.procs {
		p.finish()
		bad = bad || !p.over || p.exit.State != job.Succeeded
	}
	if !bad {
		x.end()
	}
}

// end notes that the element has done its work. It does nothing if the element counts as ended already.
func (x *stint) end() {
	s, w := x.s, x.s.w
	x.state = stintDone
	e := &s.elements[x.k]
	if e.ended {
		return
	}
	w.counts.Finished++
	w.tell(record.Record{Kind: record.Finish, Job: s.index, Task: x.k})
	w.ended(s, e)
}

// left notes that a member has ended.
func (x *stint) left(p *proc) {
	x.over++
	switch x.state {
	case stintWorks:
		if p.why == byItself && x.s.spec.KeepOnBadExit {
			return // the others go on
		}
		x.count()
		x.state = stintBroken
		x.interrupted(p)
	case stintWaits:
		x.state = stintBroken
	case stintBroken, stintDone:
		return
	}
	for _, other := range x.procs { // what is left of a gang runs on until it is told to end
		if other.begun && !other.over {
			x.s.w.at(other.endsAt, other.finish)
		}
	}
}

// interrupted books the work of a stint that ended early because this process did.
func (x *stint) interrupted(p *proc) {
	s, w := x.s, x.s.w
	e := &s.elements[x.k]
	worked := max(x.done-x.costs, 0)
	switch {
	case slices.ContainsFunc(x.procs, (*proc).preempted):
		e.saved += worked
		e.resumes = true
		w.counts.Preempted++
		w.tell(record.Record{Kind: record.Preempt, Job: s.index, Task: x.k})
		return
	case p.why == byItself, p.why == byLimit:
		return // the element has failed; if it does not run again, it is rejected
	}
	if every := w.cfg.Checkpoint; every > 0 {
		kept := worked - worked%every
		e.saved += kept
		e.resumes = e.resumes || e.saved > 0
		worked -= kept
	}
	w.counts.Lost++
	w.counts.LostWork += time.Duration(float64(worked) * s.gpus())
	w.tell(record.Record{Kind: record.Lost, Job: s.index, Task: x.k})
}
