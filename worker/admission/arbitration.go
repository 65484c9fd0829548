package admission

// Arbitration decides which of the queued offers get what is free.

import (
	"fmt"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker/leaseclock"
	"github.com/musterhq/muster/worker/resources"
)

// Arbitration is one pass over the queued offers in their order. An offer that fits gets a reservation, which outlasts
// the pass. For an offer that does not fit, resources are kept; see backfill. So a later offer gets only what delays no
// earlier one, and cannot starve it.
type Arbitration struct {
	account  *resources.Account
	queue    *Queue
	backfill *backfill
	room     makeRoom
	hopeless map[askedRoom]struct{} // for these it would not be enough to revoke reservations of gangs
	late     bool                   // something is kept for an offer whose wait is over
	level    int                    // the precedence of the last offer that something was kept for; -1: none yet
	filled   bool                   // a user with a limit got a reservation
	revoked  bool                   // reservations were revoked
	rest     bool                   // the offers that got Later are decided now
}

// makeRoom makes room for an offer that does not fit.
type makeRoom struct {
	// revoke takes back reservations of gangs that rank after the offer, if the offer then fits. enough says whether it
	// would fit if its user's quota allowed that. Nil: no gang has a reservation.
	revoke  func(*Offer) (done, enough bool)
	preempt func(o *Offer, kept []string) string // ends tasks that have none of these devices, or promises to; else it returns why it cannot
}

// askedRoom is all that decides whether reservations can be revoked for an offer, except its rank. The rank does not
// matter here, because offers that come later in the pass may only revoke less.
type askedRoom struct {
	attemptedFit
	gang bool
}

func newArbitration(a *resources.Account, q *Queue, b *backfill, room makeRoom) *Arbitration {
	return &Arbitration{account: a, queue: q, backfill: b, level: -1, room: room, hopeless: map[askedRoom]struct{}{}}
}

// Verdict is what happens to an offer.
type Verdict int

// The verdicts.
const (
	Wait    Verdict = iota // it stays in the queue
	Reserve                // it gets a reservation
	Decline
	Quota // it is declined because of its user's quota
	Stale // its job group has a newer owner
	Later // it fits, and is decided again after the other offers; see others
)

// decision is a verdict with the reserved devices or the reason of a decline.
type decision struct {
	Verdict Verdict
	Devices []string
	Why     job.Reason
}

// Decide decides one offer. here says that this host already has the offer's attempt, and stale that its journal group has a
// newer owner.
//
// Resources are kept even for an offer whose wait is over, because its scheduler may be about to renew it.
func (r *Arbitration) Decide(now leaseclock.Moment, o *Offer, here, stale bool) decision {
	m := &o.Msg
	if stale {
		return decision{Verdict: Stale}
	}
	devices, fit, over := r.allowed(o)
	if fit && !here && !r.rest && r.queue.Gangs.others.before(now.Boot, o) {
		return decision{Verdict: Later}
	}
	if !fit && !here {
		if room, done := r.revoke(o); done {
			devices, fit, over = room, true, ""
		}
	}
	if over != "" {
		return decision{Verdict: Quota, Why: job.Reason{Word: job.ReasonQuota, Detail: over}}
	}
	waited := o.Timer != nil
	if here && (fit || !waited) {
		return decision{Verdict: Decline, Why: job.Reason{Word: job.ReasonResources, Detail: "this attempt is here already"}}
	}
	if fit && r.account.Hold(m, devices) {
		r.filled = r.filled || r.account.Quotas.Bounded(m.User)
		r.backfill.took(o)
		return decision{Verdict: Reserve, Devices: devices}
	}
	if m.Preempt && !o.Preempted && !fit {
		if why := r.preempt(o); why != "" {
			return decision{Verdict: Decline, Why: job.Reason{Word: job.ReasonResources, Detail: contract.Clip(why)}}
		}
	}
	return r.wait(now, o, waited)
}

// wait decides an offer that does not fit: it waits, unless its wait is over. waited says whether it has waited before.
func (r *Arbitration) wait(now leaseclock.Moment, o *Offer, waited bool) decision {
	d := decision{}
	if now.Boot >= o.until {
		d = decision{Verdict: Decline, Why: job.Reason{Word: job.ReasonResources, Detail: r.missing(o.Msg.Need)}}
		if !waited { // its scheduler wanted an answer at once, or the offer arrived too late
			return d
		}
		r.late = true
	}
	r.keep(o)
	return d
}

// preempt ends tasks for an offer, or promises to, or returns why that would not help. It does not count on what is kept
// for offers before this one, because those offers would get what the ended tasks give back.
func (r *Arbitration) preempt(o *Offer) (why string) {
	outlasted, ok := r.backfill.outlastedBy(o, true)
	if !ok {
		return "what tasks could give back is kept for offers that go first"
	}
	r.backfill.aside(r.backfill.everything(), func() { why = r.room.preempt(o, r.backfill.devicesOf(outlasted)) })
	return why
}

// keep keeps for an offer what it needs, unless something is kept for enough other offers, or another host has booked it.
// The first offer of a precedence for which something is kept gets its turn.
func (r *Arbitration) keep(o *Offer) {
	if o.elsewhere() {
		r.queue.loseTurn(o)
		r.backfill.foresee(o)
		return
	}
	wants := r.backfill.wants(o)
	switch {
	case !wants && o.turn == 0:
		r.backfill.wait(o)
	case !r.account.Capacity.Pool().Sound(o.Msg.Need): // even a host without tasks would have too few usable devices
		r.queue.loseTurn(o)
	case wants:
		if kept := r.backfill.block(o); kept && r.level != o.Msg.Precedence() && !o.Firm {
			r.level = o.Msg.Precedence()
			r.queue.takeTurn(o)
		}
	default:
		r.backfill.wait(o)
	}
}

// allowed returns the devices for an offer if it fits now, or which quota of its user it would exceed.
func (r *Arbitration) allowed(o *Offer) (devices []string, fit bool, over string) {
	if over = r.account.Quotas.Over(o.Msg.User, r.account.Capacity.Whole(o.Msg.Need)); over != "" {
		return nil, false, over
	}
	if over = r.account.Quotas.Refusals.Behind(o.Msg.User, o.Msg.Priority); over != "" {
		return nil, false, over
	}
	devices, fit = r.backfill.fits(o)
	return devices, fit, ""
}

// revoke revokes reservations of gangs for an offer that does not fit, if the offer then fits beside what is kept for
// offers before it. It returns the devices for the offer. It revokes nothing for a firm offer, because tasks end for it.
func (r *Arbitration) revoke(o *Offer) (devices []string, done bool) {
	if r.room.revoke == nil || o.Firm {
		return nil, false
	}
	which, ok := r.backfill.revocable(o)
	asked := askedRoom{attemptedFit{o.Msg.Need, which}, o.Msg.Gang > 0}
	if _, vain := r.hopeless[asked]; vain || !ok {
		return nil, false
	}
	enough := false
	r.backfill.aside(which, func() {
		if done, enough = r.room.revoke(o); done {
			devices, _ = r.account.Capacity.Choose(o.Msg.Need, o.Msg.Device)
		}
	})
	if !enough {
		r.hopeless[asked] = struct{}{}
	}
	if done {
		r.revoked = true
		r.backfill.gained()
	}
	return devices, done
}

// missing returns why a need does not fit, for people.
func (r *Arbitration) missing(need job.Resources) string {
	if a := r.backfill.exclusive(); a != (job.Attempt{}) && r.account.Capacity.Short(need) == "" {
		return fmt.Sprintf("this host is kept for task %s, which wants it for itself", a)
	}
	return r.account.Missing(need)
}
