package worker

// Offers: how they come in, and what the arbitration's decisions do to them.

import (
	"fmt"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/lease"
)

// offers answers the offers of schedulers.
type offers struct {
	cfg          *Config
	turn         *turn
	account      *account
	sessions     *sessions
	reports      *reports
	queue        *queue
	leases       *leases
	attempts     *attempts
	reservations *reservations
	gate         *gate
}

// offer takes an offer in, renews it, or declines what could never be.
func (f *offers) offer(now Moment, from job.Peer, m lease.Offer) {
	g, ok := f.leases.command(now, from, m.Group, m.Epoch)
	if !ok {
		return
	}
	key := offerKey{from, m.ID}
	if o := f.queue.offers[key]; o != nil {
		switch o.state {
		case offerQueued:
			f.queue.renew(now, o, m)
			return
		case offerReserved:
			if a := f.attempts.by[o.msg.Attempt]; !a.dirty {
				f.reservations.commit(now, a)
			}
			return
		case offerLapsed: // it is made anew
			f.queue.forget(o)
		case offerGone:
		}
	}
	if why := f.gate.closed(); why.Word != "" {
		f.reports.decline(from, m, why, !f.cfg.Profile.Worker)
		return
	}
	if why := f.account.capacity.never(m.Need); why != "" {
		f.reports.decline(from, m, job.Reason{Word: job.ReasonNoMatch, Detail: lease.Clip(why)}, true)
		return
	}
	if !f.makeRoom(from) {
		detail := fmt.Sprintf("%d offers of this scheduler wait here, %d of all", f.queue.perPeer[from], f.queue.waiting)
		f.reports.decline(from, m, job.Reason{Word: job.ReasonResources, Detail: detail}, false)
		return
	}
	f.queue.add(now, key, m, g)
}

// makeRoom says whether one more offer of a scheduler may wait here. If the queue is full, another scheduler's offer may
// have to go.
func (f *offers) makeRoom(from job.Peer) bool {
	if f.queue.perPeer[from] >= lease.MaxOffers {
		return false
	}
	if f.queue.waiting < maxQueued {
		return true
	}
	o := f.queue.makeRoom(from)
	if o == nil {
		return false
	}
	detail := fmt.Sprintf("%d offers wait here, most of them from this scheduler: the last gave way to another's", maxQueued)
	f.reports.decline(o.key.peer, o.msg, job.Reason{Word: job.ReasonResources, Detail: detail}, false)
	return true
}

// arbitrate gives what is free to the offers by rank, if offers or what is free have changed.
func (f *offers) arbitrate(now Moment) {
	if !f.turn.arbitrate {
		return
	}
	late := false
	for again := len(f.queue.ranked) > 0; again; {
		r := newArbitration(f.account, f.cfg.Profile.GPUs)
		for _, o := range f.queue.ranked {
			if o.state == offerQueued {
				f.decide(now, r, o)
			}
		}
		r.end()
		f.queue.sweep()
		// A user who has just reached a limit waits no longer: nothing is held back for that user's other offers.
		late, again = late || r.late, r.filled
	}
	f.turn.arbitrate = false
	if late {
		f.turn.timers.set(now.Boot.Add(lateRenewal), func(Moment) { f.turn.arbitrate = true })
	}
}

// decide has one offer decided, and answers it unless it waits on.
func (f *offers) decide(now Moment, r *arbitration, o *offer) {
	if why := f.gate.closed(); why.Word != "" {
		f.decline(o, why, !f.cfg.Profile.Worker)
		return
	}
	d := r.decide(now, o, f.attempts.by[o.msg.Attempt] != nil)
	switch d.verdict {
	case verdictWait:
		if o.timer == nil {
			f.queue.endWait(o)
		}
	case verdictReserve:
		f.reservations.reserve(o, d.devices)
	case verdictDecline:
		f.decline(o, d.why, false)
	case verdictQuota:
		f.decline(o, d.why, false)
		if f.sessions.connected(o.key.peer) {
			f.account.quotas.refusals.add(o.msg.User, o.key.peer)
		}
	case verdictStale:
		f.queue.remove(o)
		f.leases.stale(o.key.peer, o.group)
	}
}

func (f *offers) decline(o *offer, why job.Reason, never bool) {
	f.queue.remove(o)
	f.reports.decline(o.key.peer, o.msg, why, never)
}

// declineImpossible answers the offers that wait for what this host no longer has.
func (f *offers) declineImpossible() {
	for _, o := range f.queue.ranked {
		if o.state != offerQueued {
			continue
		}
		if why := f.account.capacity.never(o.msg.Need); why != "" {
			f.decline(o, job.Reason{Word: job.ReasonNoMatch, Detail: lease.Clip(why)}, true)
		}
	}
}
