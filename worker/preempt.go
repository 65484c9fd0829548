package worker

// Preemption: running tasks of a lower priority are ended so that a task of a higher priority can start.
// See docs/adr, ADR 88.

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker/admission"
	"github.com/musterhq/muster/worker/leaseclock"
	"github.com/musterhq/muster/worker/resources"
)

// preemption chooses the tasks that are ended for an offer, and ends them. For a gang it first promises to end them.
type preemption struct {
	account      *resources.Account
	queue        *admission.Queue
	attempts     *attempts
	reservations *reservations
	wounds       *wounds
}

// victims returns the running tasks whose end would make room for an offer, together with what is free now and what ends
// already. They are preemptible, and have a lower precedence: tasks of the lowest precedence are taken first, and of
// these the youngest. All of them are necessary, and none has a device that is kept for another offer. The result is
// empty if what ends already is enough. enough is false if the offer would not fit even with all such tasks ended.
func (p *preemption) victims(now leaseclock.Moment, o *admission.Offer, kept []string) (victims []*attempt, enough bool) {
	ending := p.ending(now, o)
	letGo(p.account, ending)
	defer takeBack(p.account, ending)
	if _, fits := p.account.Capacity.Choose(o.Msg.Need, o.Msg.Device); fits {
		return nil, true
	}
	able := p.able(now, o, kept)
	for _, a := range able { // one task is better than several
		if p.suffice(o, []*attempt{a}) {
			return []*attempt{a}, true
		}
	}
	if !p.suffice(o, able) {
		return nil, false
	}
	return fewest(able, func(some []*attempt) bool { return p.suffice(o, some) }), true
}

// ending returns the tasks that were told to end, except those that end for other queued offers.
func (p *preemption) ending(now leaseclock.Moment, o *admission.Offer) (out []*attempt) {
	for _, a := range p.attempts.by {
		if (a.phase == completing || a.runs() && a.stop != nil) && free(now, a, o) {
			out = append(out, a)
		}
	}
	slices.SortFunc(out, func(a, b *attempt) int { return admission.CompareAttempts(a.rec.Attempt, b.rec.Attempt) })
	return out
}

// free reports whether an offer may have what a task gives back: that is not meant for another queued offer, or it is
// only promised to a gang from which the offer may take it.
func free(now leaseclock.Moment, a *attempt, o *admission.Offer) bool {
	v := a.victimOf
	return v == nil || v == o || v.State != admission.Queued || v.Conditional && admission.MayRevoke(now, o, v)
}

// able returns the tasks that may be ended for an offer, in the order in which they should be ended.
func (p *preemption) able(now leaseclock.Moment, o *admission.Offer, kept []string) (out []*attempt) {
	for _, a := range p.attempts.by {
		if a.runs() && a.stop == nil && a.preemptible && a.precedence() < o.Msg.Precedence() && p.helps(a, o.Msg.Need) && free(now, a, o) && !overlap(a.rec.Devices, kept) {
			out = append(out, a)
		}
	}
	slices.SortFunc(out, func(a, b *attempt) int {
		return cmp.Or(cmp.Compare(a.precedence(), b.precedence()), cmp.Compare(b.began, a.began), admission.CompareAttempts(a.rec.Attempt, b.rec.Attempt))
	})
	return out[:min(len(out), maxVictims)]
}

// overlap reports whether two lists have a device in common.
func overlap(a, b []string) bool {
	return slices.ContainsFunc(a, func(d string) bool { return slices.Contains(b, d) })
}

// helps reports whether the end of the task would free anything that the need lacks.
func (p *preemption) helps(a *attempt, need job.Resources) bool {
	cpus, memory := p.account.Capacity.Spare()
	return need.CPUs > cpus && a.rec.Need.CPUs > 0 ||
		need.Memory > memory && a.rec.Need.Memory > 0 ||
		gpu.Count(need) > 0 && len(a.rec.Devices) > 0
}

// suffice reports whether the offer would fit if these tasks had ended.
func (p *preemption) suffice(o *admission.Offer, as []*attempt) bool {
	letGo(p.account, as)
	defer takeBack(p.account, as)
	_, fits := p.account.Capacity.Choose(o.Msg.Need, o.Msg.Device)
	return fits
}

// preempt makes room for an offer. For a gang it only promises to. kept are the devices that are kept for other offers.
// It returns why it cannot, or "".
func (p *preemption) preempt(now leaseclock.Moment, o *admission.Offer, kept []string) string {
	if o.Msg.Gang > 0 {
		return p.promise(now, o, kept)
	}
	victims, enough := p.room(now, o, kept)
	if !enough {
		return noRoom(o)
	}
	o.Preempts()
	p.end(now, o, victims)
	return ""
}

// overtaken reports whether tasks were ended for an offer that still waits: one before it got what they held. Then more may be
// ended. Where levels order offers, new ones come before others all the time.
func (p *preemption) overtaken(o *admission.Offer) bool {
	if !o.Preempted || o.Msg.Gang > 0 || o.Msg.Work.By == contract.ByAge || o.State != admission.Queued {
		return false
	}
	for _, a := range p.attempts.by {
		if a.victimOf == o && !a.ended() {
			return false
		}
	}
	return true
}

func noRoom(o *admission.Offer) string {
	return fmt.Sprintf("no task of a lower priority than %d that may be preempted would make room", o.Msg.Priority)
}

// room returns victims. If they are not enough, it also revokes the reservations of gangs that the offer may revoke.
func (p *preemption) room(now leaseclock.Moment, o *admission.Offer, kept []string) (victims []*attempt, enough bool) {
	victims, enough = p.victims(now, o, kept)
	if enough {
		return victims, true
	}
	held := p.wounds.held(now, o)
	if len(held) == 0 {
		return nil, false
	}
	letGo(p.account, held)
	victims, enough = p.victims(now, o, kept)
	takeBack(p.account, held)
	if !enough {
		return nil, false
	}
	ends := append(p.ending(now, o), victims...)
	letGo(p.account, ends)
	held = fewest(held, func(some []*attempt) bool { return p.wounds.fits(o, some) })
	takeBack(p.account, ends)
	p.wounds.take(o, held)
	return victims, true
}

// end ends tasks for an offer.
func (p *preemption) end(now leaseclock.Moment, o *admission.Offer, victims []*attempt) {
	for _, a := range victims {
		a.victimOf = o
		if a.stop == nil {
			p.attempts.preempt(now, a, contract.Clip(fmt.Sprintf("preempted by job %s of %s, priority %d", o.Msg.Attempt.Job, o.Msg.User, o.Msg.Priority)))
		}
	}
}

// promise answers a gang's offer with a conditional Commit: it names the tasks that would make room, and ends them once
// the offer is firm. Until then they are not ended for any offer that ranks after this one. A promise is checked with
// each arbitration, because tasks end by themselves and offers that rank before take what is free.
func (p *preemption) promise(now leaseclock.Moment, o *admission.Offer, kept []string) string {
	switch {
	case o.Conditional && p.kept(o):
		if o.Firm {
			o.Preempts()
			needed := fewest(p.promised(o), func(some []*attempt) bool { return p.suffice(o, some) })
			p.give(o, needed)
			p.end(now, o, needed)
		}
		return ""
	case o.Firm: // the other members' hosts end tasks by now; this one ends none in vain
		return "the tasks that were to make room do not suffice any more"
	}
	victims, enough := p.room(now, o, kept)
	if !enough {
		return noRoom(o)
	}
	if len(victims) == 0 && !o.Conditional { // what ends already is enough; the Commit follows then
		return ""
	}
	p.give(o, append(p.ends(now, o, victims), victims...))
	if !o.Conditional {
		p.queue.Promised(now, o)
		p.reservations.commitIf(now, o)
	}
	return ""
}

// give promises to an offer what these tasks hold, and nothing else.
func (p *preemption) give(o *admission.Offer, room []*attempt) {
	for _, v := range o.Promised {
		if a := p.attempts.by[v.Attempt]; a != nil && a.victimOf == o {
			a.victimOf = nil
		}
	}
	all := make([]admission.Victim, 0, len(room))
	for _, a := range room {
		a.victimOf = o
		all = append(all, admission.Victim{Attempt: a.rec.Attempt, Devices: a.rec.Devices})
	}
	o.Promise(all)
}

// kept reports whether the tasks of a promise still suffice.
func (p *preemption) kept(o *admission.Offer) bool {
	o.Promise(slices.DeleteFunc(o.Promised, func(v admission.Victim) bool {
		a := p.attempts.by[v.Attempt]
		return a == nil || a.victimOf != o || a.ended()
	}))
	return p.suffice(o, p.promised(o))
}

// promised returns the tasks of a promise.
func (p *preemption) promised(o *admission.Offer) (out []*attempt) {
	for _, v := range o.Promised {
		out = append(out, p.attempts.by[v.Attempt])
	}
	return out
}

// ends returns the ending tasks that the offer needs in addition to the victims.
func (p *preemption) ends(now leaseclock.Moment, o *admission.Offer, victims []*attempt) []*attempt {
	letGo(p.account, victims)
	defer takeBack(p.account, victims)
	ending := p.ending(now, o)
	return fewest(ending[:min(len(ending), maxVictims)], func(some []*attempt) bool { return p.suffice(o, some) })
}
