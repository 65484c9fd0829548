package worker

// Offers: receiving them, and carrying out what the arbitration decides about them.

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker/admission"
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
	queue        *admission.Queue
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
	key := admission.Key{Peer: from, ID: m.ID}
	if o := f.queue.Find(key); o != nil {
		switch o.State {
		case admission.Queued:
			f.queue.Renew(now, o, m)
			if f.preemption.overtaken(o) {
				f.queue.PreemptAgain(o)
			}
			return
		case admission.Reserved:
			f.reservations.renew(now, f.attempts.by[o.Msg.Attempt], m, f.availability.closed())
			return
		case admission.Lapsed: // it counts as a new offer
			f.queue.Forget(o)
		case admission.Gone:
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
		queued, gangs := f.queue.SizeOf(from)
		detail := fmt.Sprintf("%d offers of this scheduler are queued here, %d in all; %d hold a place for gangs",
			queued, f.queue.Size(), gangs)
		f.reports.decline(from, m, job.Reason{Word: job.ReasonResources, Detail: detail}, false)
		return
	}
	f.queue.Add(now, key, m)
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
	for _, o := range slices.Clone(f.queue.All()) {
		if o.State == admission.Queued && o.Msg.User == e.User {
			f.queue.Remove(o)
			f.reports.declineUser(o.Key.Peer, o.Msg)
		}
	}
}

// outOfBounds returns why nothing is reserved for a scheduler now, or "".
func (f *offers) outOfBounds(now leaseclock.Moment, from job.Peer, g *group) string {
	if n := f.attempts.refusals.ended(g); n >= maxEnded {
		return fmt.Sprintf("%d attempts of this scheduler have ended here, and it has not acknowledged that", n)
	}
	return f.reservations.lapses.why(now, from)
}

// makeRoom reports whether one more offer of a scheduler may be queued. If the queue is full, it may decline an offer of
// another scheduler for that.
func (f *offers) makeRoom(from job.Peer) bool {
	if queued, gangs := f.queue.SizeOf(from); queued+gangs >= contract.MaxOffers {
		return false
	}
	if f.queue.Size() < maxQueued {
		return true
	}
	o := f.queue.MakeRoom(from)
	if o == nil {
		return false
	}
	detail := fmt.Sprintf("%d offers are queued here, most of them of this scheduler: its last one made room for another scheduler", maxQueued)
	f.reports.decline(o.Key.Peer, o.Msg, job.Reason{Word: job.ReasonResources, Detail: detail}, false)
	return true
}

// arbitrate runs an arbitration if offers or what is free have changed.
func (f *offers) arbitrate(now leaseclock.Moment) {
	if !f.turn.Arbitrates() {
		return
	}
	passes := admission.Passes{
		Account: f.account, Queue: f.queue, Gpus: f.cfg.Profile.GPUs, Pace: &f.attempts.pace, SetAside: f.cfg.SetAside,
		Releases: func() []admission.Release { return f.attempts.releases(now) },
		Revoke:   func(o *admission.Offer) (bool, bool) { return f.wounds.revoke(now, o) },
		Preempt:  func(o *admission.Offer, kept []string) string { return f.preemption.preempt(now, o, kept) },
	}
	out := passes.Run(now, func(r *admission.Arbitration, o *admission.Offer) admission.Verdict { return f.decide(now, r, o) })
	f.reports.forecasts.Update(now, out.Forecasts)
	f.reports.keeping.Update(now, out.Kept)
	f.turn.Timers.Stop(f.turns)
	if out.Next != admission.Never {
		f.turns = f.turn.Timers.Set(out.Next, func(leaseclock.Moment) { f.turn.Arbitrate() })
	}
	f.turn.Arbitrated()
	if out.Late {
		f.turn.Timers.Set(now.Boot.Add(lateRenewal), func(leaseclock.Moment) { f.turn.Arbitrate() })
	}
}

// decide decides one offer, and answers it unless it stays in the queue.
func (f *offers) decide(now leaseclock.Moment, r *admission.Arbitration, o *admission.Offer) admission.Verdict {
	if why := f.availability.closed(); why.Word != "" {
		f.decline(o, why, !f.cfg.Profile.Worker)
		return admission.Decline
	}
	g := f.leases.claims.of(o)
	d := r.Decide(now, o, f.attempts.by[o.Msg.Attempt] != nil, o.Msg.Epoch.Less(g.epoch) || o.Key.Peer != g.owner)
	switch d.Verdict {
	case admission.Wait:
		if o.Timer == nil {
			f.queue.EndWait(o)
		}
	case admission.Reserve:
		f.reservations.reserve(o, d.Devices).expect(now, o.Msg.Limit)
	case admission.Decline:
		f.decline(o, d.Why, false)
	case admission.Quota:
		f.decline(o, d.Why, false)
		if f.sessions.connected(o.Key.Peer) {
			f.account.Quotas.Refusals.Add(o.Msg.User, o.Key.Peer, o.Msg.Priority)
		}
	case admission.Stale:
		f.queue.Remove(o)
		f.leases.stale(o.Key.Peer, g)
	case admission.Later:
	}
	return d.Verdict
}

func (f *offers) decline(o *admission.Offer, why job.Reason, never bool) {
	f.queue.Remove(o)
	f.reports.decline(o.Key.Peer, o.Msg, why, never)
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
	for _, o := range f.queue.All() {
		if o.State != admission.Queued {
			continue
		}
		if why := f.never(o.Key.Peer, &o.Msg); why.Word != "" {
			f.decline(o, why, true)
		}
	}
}
