package worker

// Preemption: running tasks of a lower priority are ended so that a task of a higher priority can start.
// See docs/adr, ADR 88.

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/lease"
)

// preemption chooses the tasks that are ended for an offer, and ends them.
type preemption struct {
	account  *account
	attempts *attempts
}

// victims returns the running tasks whose end would make room for an offer, with what is free now and what ends already.
// They are preemptible and have a lower priority: those of the least priority first, of these the youngest. None of them
// could be spared. It is empty if what ends already is enough. enough is false if the offer would not fit even so.
func (p *preemption) victims(o *offer) (victims []*attempt, enough bool) {
	ending := p.ending(o)
	p.letGo(ending)
	defer p.takeBack(ending)
	if _, fits := p.account.capacity.choose(o.msg.Need, o.msg.Device); fits {
		return nil, true
	}
	able := p.able(o)
	for _, a := range able { // one task is better than several
		if p.suffice(o, []*attempt{a}) {
			return []*attempt{a}, true
		}
	}
	if !p.suffice(o, able) {
		return nil, false
	}
	victims = able
	for i := range slices.Backward(able) { // the best are spared first
		if rest := slices.Delete(slices.Clone(victims), i, i+1); p.suffice(o, rest) {
			victims = rest
		}
	}
	return victims, true
}

// ending returns the tasks that were told to end, except those that were for other offers in the queue.
func (p *preemption) ending(o *offer) (out []*attempt) {
	for _, a := range p.attempts.by {
		ends := a.phase == completing || a.runs() && a.stop != nil
		if ends && (a.victimOf == nil || a.victimOf == o || a.victimOf.state != offerQueued) {
			out = append(out, a)
		}
	}
	return out
}

// able returns the tasks that may be ended for an offer, those that should be ended first at the front.
func (p *preemption) able(o *offer) (out []*attempt) {
	for _, a := range p.attempts.by {
		if a.runs() && a.stop == nil && a.preemptible && a.priority < o.msg.Priority && p.helps(a, o.msg.Need) {
			out = append(out, a)
		}
	}
	slices.SortFunc(out, func(a, b *attempt) int {
		return cmp.Or(cmp.Compare(a.priority, b.priority), cmp.Compare(b.began, a.began), compareAttempts(a.rec.Attempt, b.rec.Attempt))
	})
	return out[:min(len(out), maxVictims)]
}

// maxVictims bounds the tasks that are considered for one offer.
const maxVictims = 256

// helps reports whether the end of the task would free anything that the need lacks.
func (p *preemption) helps(a *attempt, need job.Resources) bool {
	c := &p.account.capacity
	return need.CPUs > c.cpus-c.usedCPUs && a.rec.Need.CPUs > 0 ||
		need.Memory > c.memory-c.usedMemory && a.rec.Need.Memory > 0 ||
		gpu.Count(need) > 0 && len(a.rec.Devices) > 0
}

// suffice reports whether the offer would fit if these tasks had ended.
func (p *preemption) suffice(o *offer, as []*attempt) bool {
	p.letGo(as)
	defer p.takeBack(as)
	_, fits := p.account.capacity.choose(o.msg.Need, o.msg.Device)
	return fits
}

// letGo frees in the account what the attempts hold, until takeBack.
func (p *preemption) letGo(as []*attempt) {
	for _, a := range as {
		p.account.capacity.release(a.rec.Attempt, a.rec.Need, a.rec.Devices)
	}
}

func (p *preemption) takeBack(as []*attempt) {
	for _, a := range as {
		_ = p.account.capacity.adopt(a.rec) // it was held a moment ago
	}
}

// preempt makes room for an offer. It returns why it cannot, or "" if it has.
func (p *preemption) preempt(now Moment, o *offer) string {
	victims, enough := p.victims(o)
	if !enough {
		return fmt.Sprintf("no task of a lower priority than %d that may be preempted would make room", o.msg.Priority)
	}
	for _, a := range victims {
		a.victimOf = o
		p.attempts.preempt(now, a, lease.Clip(fmt.Sprintf("preempted by job %s of %s, priority %d", o.msg.Attempt.Job, o.msg.User, o.msg.Priority)))
	}
	return ""
}
