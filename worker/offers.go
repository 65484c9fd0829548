package worker

// Offers: receiving them, and carrying out what the arbitration decides about them.

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker/leaseclock"
	"github.com/musterhq/muster/worker/resources"
	"github.com/musterhq/muster/worker/step"
	"github.com/musterhq/muster/worker/useraccounts"
)

// offers answers the offers of schedulers.
type offers struct {
	cfg          *Config
	turn         *step.Turn
	account      *resources.Account
	sessions     *sessions
	reports      *reports
	queue        *queue
	leases       *leases
	attempts     *attempts
	reservations *reservations
	wounds       *wounds
	preemption   *preemption
	availability *availability
	residents    *useraccounts.Accounts
	turns        *step.Timer // fires when a turn of setting aside, or of sharing, ends
}

// offer handles an offer: it queues a new one, renews a queued one, and declines one that this host can never accept.
func (f *offers) offer(now leaseclock.Moment, from job.Peer, m contract.Offer) {
	g, ok := f.leases.checkEpoch(now, from, m.Group, m.Epoch)
	if !ok {
		return
	}
	key := offerKey{from, m.ID}
	if o := f.queue.offers[key]; o != nil {
		switch o.state {
		case offerQueued:
			f.queue.renew(now, o, m)
			if f.preemption.inVain(o) {
				o.preempted = false
				f.turn.Arbitrate()
			}
			return
		case offerReserved:
			f.reservations.renew(now, f.attempts.by[o.msg.Attempt], m, f.availability.closed())
			return
		case offerLapsed: // it counts as a new offer
			f.queue.forget(o)
		case offerGone:
		}
	}
	if why := f.availability.closed(); why.Word != "" {
		f.reports.decline(from, m, why, !f.cfg.Profile.Worker)
		return
	}
	if why := f.outOfBounds(now, from, g); why != "" {
		f.reports.decline(from, m, job.Reason{Word: job.ReasonResources, Detail: why}, false)
		return
	}
	if why := f.never(from, &m); why.Word != "" {
		f.reports.decline(from, m, why, true)
		return
	}
	switch is, held := f.residents.Hold(now, from, m, f.offer); {
	case held:
		return
	case is == useraccounts.Absent:
		f.reports.declineUser(from, m)
		return
	}
	if m.Firm {
		f.reports.decline(from, m, job.Reason{Word: job.ReasonResources, Detail: "what a Commit promised to this offer is not kept any more"}, false)
		return
	}
	if !f.makeRoom(from) {
		detail := fmt.Sprintf("%d offers of this scheduler are queued here, %d in all; %d hold a place for gangs",
			f.queue.perPeer[from], f.queue.waiting, f.queue.gangs.held[from])
		f.reports.decline(from, m, job.Reason{Word: job.ReasonResources, Detail: detail}, false)
		return
	}
	f.queue.add(now, key, m, g)
}

// never returns why this host can never accept the offer, if it cannot.
func (f *offers) never(from job.Peer, m *contract.Offer) job.Reason {
	if why := f.account.Capacity.Never(m.Need); why != "" {
		return job.Reason{Word: job.ReasonNoMatch, Detail: contract.Clip(why)}
	}
	if why := f.cfg.refuses(from, m.User); why != "" {
		return job.Reason{Word: job.ReasonNoMatch, Detail: contract.Clip(why)}
	}
	if why := cmp.Or(f.account.Quotas.Never(m.User, f.account.Capacity.Whole(m.Need), m.Limit), f.above(from, m)); why != "" {
		return job.Reason{Word: job.ReasonQuota, Detail: why}
	}
	return job.Reason{}
}

// lookedUp takes in whether a user has an account here, and declines the queued offers of one that has none.
func (f *offers) lookedUp(now leaseclock.Moment, e LookedUp) {
	if !f.residents.Answer(now, e.User, e.Is, f.offer) {
		return
	}
	for _, o := range slices.Clone(f.queue.ranked) {
		if o.state == offerQueued && o.msg.User == e.User {
			f.queue.remove(o)
			f.reports.declineUser(o.key.peer, o.msg)
		}
	}
}

// outOfBounds returns why nothing is reserved for a scheduler now, or "".
func (f *offers) outOfBounds(now leaseclock.Moment, from job.Peer, g *group) string {
	if n := f.attempts.graves.ended(g); n >= maxEnded {
		return fmt.Sprintf("%d attempts of this scheduler have ended here, and it has not acknowledged that", n)
	}
	return f.reservations.lapses.why(now, from)
}

// makeRoom reports whether one more offer of a scheduler may be queued. If the queue is full, it may decline an offer of
// another scheduler for that.
func (f *offers) makeRoom(from job.Peer) bool {
	if f.queue.perPeer[from]+f.queue.gangs.held[from] >= contract.MaxOffers {
		return false
	}
	if f.queue.waiting < maxQueued {
		return true
	}
	o := f.queue.makeRoom(from)
	if o == nil {
		return false
	}
	detail := fmt.Sprintf("%d offers are queued here, most of them of this scheduler: its last one made room for another scheduler", maxQueued)
	f.reports.decline(o.key.peer, o.msg, job.Reason{Word: job.ReasonResources, Detail: detail}, false)
	return true
}

// arbitrate runs an arbitration if offers or what is free have changed.
func (f *offers) arbitrate(now leaseclock.Moment) {
	if !f.turn.Arbitrates() {
		return
	}
	late, known, kept, next := false, []forecast(nil), []keptFor(nil), never
	for again := len(f.queue.ranked) > 0; again; {
		f.queue.order()
		keeps := newBackfill(newKeeps(now, &f.account.Capacity, f.cfg.Profile.GPUs, f.attempts.by), &f.attempts.pace, f.cfg.SetAside)
		room := makeRoom{preempt: func(o *offer, kept []string) string { return f.preemption.preempt(now, o, kept) }}
		if len(f.queue.gangs.held) > 0 {
			room.revoke = func(o *offer) (bool, bool) { return f.wounds.revoke(now, o) }
		}
		r := newArbitration(f.account, f.queue, keeps, room)
		for _, o := range f.queue.gangs.firm() { // what ended tasks give back for them is for nobody else
			f.decide(now, r, o)
		}
		f.decideRanked(now, r, keeps)
		known, kept, next = keeps.forecasts(), keeps.kept(), keeps.next
		f.queue.sweep()
		// A reservation may have brought a user to a limit. Another pass then declines that user's other offers, so that
		// nothing is held back for them. The revoked reservations may have held more than the offer needed.
		late, again = late || r.late, r.filled || r.revoked
	}
	f.reports.forecasts.update(now, known)
	f.reports.keeping.update(now, kept)
	f.turn.Timers.Stop(f.turns)
	if next != never {
		f.turns = f.turn.Timers.Set(next, func(leaseclock.Moment) { f.turn.Arbitrate() })
	}
	f.turn.Arbitrated()
	if late {
		f.turn.Timers.Set(now.Boot.Add(lateRenewal), func(leaseclock.Moment) { f.turn.Arbitrate() })
	}
}

// decideRanked decides the offers in their order. It completes each priority before it goes on with a lower one.
func (f *offers) decideRanked(now leaseclock.Moment, r *arbitration, keeps *backfill) {
	var later []*offer
	for _, o := range f.queue.ranked {
		if o.state != offerQueued || o.firm {
			continue
		}
		if len(later) > 0 && o.msg.Priority < later[0].msg.Priority {
			later = f.decideRest(now, r, later)
		}
		keeps.descend(o.msg.Priority)
		if f.decide(now, r, o) == verdictLater {
			later = append(later, o)
		}
	}
	f.decideRest(now, r, later)
}

// decideRest decides the offers of one priority that had to wait for the others of it. It returns the empty list.
func (f *offers) decideRest(now leaseclock.Moment, r *arbitration, later []*offer) []*offer {
	r.rest = true
	for _, o := range later {
		f.decide(now, r, o)
	}
	r.rest = false
	return later[:0]
}

// decide decides one offer, and answers it unless it stays in the queue.
func (f *offers) decide(now leaseclock.Moment, r *arbitration, o *offer) verdict {
	if why := f.availability.closed(); why.Word != "" {
		f.decline(o, why, !f.cfg.Profile.Worker)
		return verdictDecline
	}
	d := r.decide(now, o, f.attempts.by[o.msg.Attempt] != nil)
	switch d.verdict {
	case verdictWait:
		if o.timer == nil {
			f.queue.endWait(o)
		}
	case verdictReserve:
		f.reservations.reserve(o, d.devices).expect(now, o.msg.Limit)
	case verdictDecline:
		f.decline(o, d.why, false)
	case verdictQuota:
		f.decline(o, d.why, false)
		if f.sessions.connected(o.key.peer) {
			f.account.Quotas.Refusals.Add(o.msg.User, o.key.peer, o.msg.Priority)
		}
	case verdictStale:
		f.queue.remove(o)
		f.leases.stale(o.key.peer, o.group)
	case verdictLater:
	}
	return d.verdict
}

func (f *offers) decline(o *offer, why job.Reason, never bool) {
	f.queue.remove(o)
	f.reports.decline(o.key.peer, o.msg, why, never)
}

// above returns why the priority of an offer is too high here, or "".
func (f *offers) above(from job.Peer, m *contract.Offer) string {
	if from == f.cfg.Profile.Peer {
		from = ""
	}
	return f.cfg.Priorities.Declines(from, m)
}

// declineImpossible declines the queued offers that this host can never accept now that the host or its limits have
// changed.
func (f *offers) declineImpossible() {
	for _, o := range f.queue.ranked {
		if o.state != offerQueued {
			continue
		}
		if why := f.never(o.key.peer, &o.msg); why.Word != "" {
			f.decline(o, why, true)
		}
	}
}
