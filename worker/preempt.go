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
	"github.com/musterhq/muster/worker/leaseclock"
	"github.com/musterhq/muster/worker/resources"
)

// preemption chooses the tasks that are ended for an offer, and ends them. For a gang it first promises to end them.
type preemption struct {
	account      *resources.Account
	queue        *queue
	attempts     *attempts
	reservations *reservations
	wounds       *wounds
}

// victims returns the running tasks whose end would make room for an offer, together with what is free now and what ends
// already. They are preemptible, and have a lower precedence: tasks of the lowest precedence are taken first, and of
// these the youngest. All of them are necessary, and none has a device that is kept for another offer. The result is
// empty if what ends already is enough. enough is false if the offer would not fit even with all such tasks ended.
func (p *preemption) victims(now leaseclock.Moment, o *offer, kept []string) (victims []*attempt, enough bool) {
	ending := p.ending(now, o)
	letGo(p.account, ending)
	defer takeBack(p.account, ending)
	if _, fits := p.account.Capacity.Choose(o.msg.Need, o.msg.Device); fits {
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
func (p *preemption) ending(now leaseclock.Moment, o *offer) (out []*attempt) {
	for _, a := range p.attempts.by {
		if (a.phase == completing || a.runs() && a.stop != nil) && free(now, a, o) {
			out = append(out, a)
		}
	}
	slices.SortFunc(out, func(a, b *attempt) int { return compareAttempts(a.rec.Attempt, b.rec.Attempt) })
	return out
}

// free reports whether an offer may have what a task gives back: that is not meant for another queued offer, or it is
// only promised to a gang from which the offer may take it.
func free(now leaseclock.Moment, a *attempt, o *offer) bool {
	v := a.victimOf
	return v == nil || v == o || v.state != offerQueued || v.conditional && mayRevoke(now, o, v)
}

// able returns the tasks that may be ended for an offer, in the order in which they should be ended.
func (p *preemption) able(now leaseclock.Moment, o *offer, kept []string) (out []*attempt) {
	for _, a := range p.attempts.by {
		if a.runs() && a.stop == nil && a.preemptible && a.precedence() < o.msg.Precedence() && p.helps(a, o.msg.Need) && free(now, a, o) && !overlap(a.rec.Devices, kept) {
			out = append(out, a)
		}
	}
	slices.SortFunc(out, func(a, b *attempt) int {
		return cmp.Or(cmp.Compare(a.precedence(), b.precedence()), cmp.Compare(b.began, a.began), compareAttempts(a.rec.Attempt, b.rec.Attempt))
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
func (p *preemption) suffice(o *offer, as []*attempt) bool {
	letGo(p.account, as)
	defer takeBack(p.account, as)
	_, fits := p.account.Capacity.Choose(o.msg.Need, o.msg.Device)
	return fits
}

// preempt makes room for an offer. For a gang it only promises to. kept are the devices that are kept for other offers.
// It returns why it cannot, or "".
func (p *preemption) preempt(now leaseclock.Moment, o *offer, kept []string) string {
	if o.msg.Gang > 0 {
		return p.promise(now, o, kept)
	}
	victims, enough := p.room(now, o, kept)
	if !enough {
		return noRoom(o)
	}
	o.preempted = true
	p.end(now, o, victims)
	return ""
}

// inVain reports whether tasks were ended for an offer that still waits: one before it got what they held. Then more may be
// ended. Where levels order offers, new ones come before others all the time.
func (p *preemption) inVain(o *offer) bool {
	if !o.preempted || o.msg.Gang > 0 || o.msg.Work.By == contract.ByAge || o.state != offerQueued {
		return false
	}
	for _, a := range p.attempts.by {
		if a.victimOf == o && !a.ended() {
			return false
		}
	}
	return true
}

func noRoom(o *offer) string {
	return fmt.Sprintf("no task of a lower priority than %d that may be preempted would make room", o.msg.Priority)
}

// room returns victims. If they are not enough, it also revokes the reservations of gangs that the offer may revoke.
func (p *preemption) room(now leaseclock.Moment, o *offer, kept []string) (victims []*attempt, enough bool) {
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
func (p *preemption) end(now leaseclock.Moment, o *offer, victims []*attempt) {
	for _, a := range victims {
		a.victimOf = o
		if a.stop == nil {
			p.attempts.preempt(now, a, contract.Clip(fmt.Sprintf("preempted by job %s of %s, priority %d", o.msg.Attempt.Job, o.msg.User, o.msg.Priority)))
		}
	}
}

// promise answers a gang's offer with a conditional Commit: it names the tasks that would make room, and ends them once
// the offer is firm. Until then they are not ended for any offer that ranks after this one. A promise is checked with
// each arbitration, because tasks end by themselves and offers that rank before take what is free.
func (p *preemption) promise(now leaseclock.Moment, o *offer, kept []string) string {
	switch {
	case o.conditional && p.kept(o):
		if o.firm {
			o.preempted = true
			needed := fewest(o.promised, func(some []*attempt) bool { return p.suffice(o, some) })
			o.give(needed)
			p.end(now, o, needed)
		}
		return ""
	case o.firm: // the other members' hosts end tasks by now; this one ends none in vain
		return "the tasks that were to make room do not suffice any more"
	}
	victims, enough := p.room(now, o, kept)
	if !enough {
		return noRoom(o)
	}
	if len(victims) == 0 && !o.conditional { // what ends already is enough; the Commit follows then
		return ""
	}
	o.give(append(p.ends(now, o, victims), victims...))
	if !o.conditional {
		o.conditional = true
		p.reservations.gather(now, o)
		p.queue.waitUntil(o, o.heldUntil(now))
		p.reservations.commitIf(now, o)
	}
	return ""
}

// give promises to an offer what these tasks hold, and nothing else.
func (o *offer) give(room []*attempt) {
	for _, a := range o.promised {
		if a.victimOf == o {
			a.victimOf = nil
		}
	}
	o.promised = room
	for _, a := range room {
		a.victimOf = o
	}
}

// kept reports whether the tasks of a promise still suffice.
func (p *preemption) kept(o *offer) bool {
	o.promised = slices.DeleteFunc(o.promised, func(a *attempt) bool {
		return a.victimOf != o || a.ended()
	})
	return p.suffice(o, o.promised)
}

// ends returns the ending tasks that the offer needs in addition to the victims.
func (p *preemption) ends(now leaseclock.Moment, o *offer, victims []*attempt) []*attempt {
	letGo(p.account, victims)
	defer takeBack(p.account, victims)
	ending := p.ending(now, o)
	return fewest(ending[:min(len(ending), maxVictims)], func(some []*attempt) bool { return p.suffice(o, some) })
}
