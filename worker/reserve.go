package worker

// Reservations, from the Commit until they start or lapse.

import (
	"fmt"
	"time"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker/admission"
	"github.com/musterhq/muster/worker/leaseclock"
	"github.com/musterhq/muster/worker/resources"
	"github.com/musterhq/muster/worker/step"
)

// reservations handles the attempts that hold resources but are not started.
type reservations struct {
	turn     *step.Turn
	account  *resources.Account
	sessions *sessions
	reports  *reports
	queue    *admission.Queue
	leases   *leases
	attempts *attempts
	lapses   lapses
}

// reserve makes a reservation for an offer, with the devices that are held for it. The Commit is sent once the record of
// the reservation is on disk (W2).
func (r *reservations) reserve(o *admission.Offer, devices []string) *attempt {
	r.queue.Reserve(o)
	a := r.attempts.reserve(o, devices)
	if o.RankZero() {
		r.attempts.ports.search(o.Msg.Attempt)
	}
	return a
}

// portFound sends the Commit that has waited for a port. Without one the offer is declined.
func (r *reservations) portFound(now leaseclock.Moment, e PortFound) {
	a := r.attempts.by[e.Attempt]
	switch {
	case a == nil || a.phase != reserving || a.port != 0 || !a.offer.RankZero(): // released meanwhile
	case e.Port == 0:
		r.revoke(a, fmt.Sprintf("no free port from %d to %d for the members of the gang to meet at", r.attempts.cfg.FirstPort, r.attempts.cfg.LastPort))
	case !r.attempts.ports.take(a, e.Port): // another gang got it meanwhile
		r.attempts.ports.search(e.Attempt)
	case !a.dirty:
		r.commit(now, a)
	}
}

// message returns the Commit for an offer, without devices and port.
func (r *reservations) message(now leaseclock.Moment, o *admission.Offer) contract.Commit {
	g := r.leases.claims.of(o)
	m := contract.Commit{Offer: o.Key.ID, Attempt: o.Msg.Attempt, Group: o.Msg.Group}
	if g.holds(now) {
		m.Session = g.session.id
	}
	if o.Msg.Gang > 0 {
		m.Address = r.sessions.paths[o.Key.Peer].Local
	}
	return m
}

// commit sends the Commit for an offer whose reservation is on disk. The first Commit sets the timer with which the
// reservation lapses.
func (r *reservations) commit(now leaseclock.Moment, a *attempt) {
	o := a.offer
	if o.RankZero() && a.port == 0 {
		return // portFound sends it
	}
	m := r.message(now, o)
	m.Devices, m.Port = a.rec.Devices, a.port
	r.turn.Send(o.Key.Peer, m)
	r.refresh(now, r.leases.claims.of(o))
	if a.phase != reserving {
		return
	}
	a.move(r.turn, reserved)
	if o.Msg.Gang > 0 {
		r.queue.Gather(now, o)
		r.prolong(now, a)
		return
	}
	a.lapse = r.turn.Timers.Set(now.Boot.Add(contract.ReserveFor), func(now leaseclock.Moment) {
		if r.attempts.by[a.rec.Attempt] == a && a.phase == reserved {
			r.undo(a)
			r.queue.Lapse(now, a.offer)
			r.lapsed(now, a.offer.Key.Peer, contract.ReserveFor)
		}
	})
}

// lapsed notes that a reservation has lapsed. If that happens too often, the offers of its scheduler are declined for a
// while.
func (r *reservations) lapsed(now leaseclock.Moment, p job.Peer, held time.Duration) {
	if !r.lapses.add(now, p, held, r.sessions.connected(p)) {
		return
	}
	why := job.Reason{Word: job.ReasonResources, Detail: r.lapses.why(now, p)}
	for _, o := range r.queue.All() {
		if o.Key.Peer == p && o.State == admission.Queued {
			r.queue.Remove(o)
			r.reports.decline(p, o.Msg, why, false)
		}
	}
}

// commitIf sends the conditional Commit for a gang's offer.
func (r *reservations) commitIf(now leaseclock.Moment, o *admission.Offer) {
	m := r.message(now, o)
	m.Conditional = true
	r.turn.Send(o.Key.Peer, m)
	r.refresh(now, r.leases.claims.of(o))
}

// refresh requests a renewal of the lease unless there was one lately.
func (r *reservations) refresh(now leaseclock.Moment, g *group) {
	if g.session.live && now.Boot.Sub(max(g.session.anchor, g.session.asked)) > freshEnough {
		r.leases.renew(now, g)
	}
}

// prolong lets the reservation of a gang's member last as long as its offer says, from now on. A Start that comes after
// its end is refused, because the scheduler was told of the end.
func (r *reservations) prolong(now leaseclock.Moment, a *attempt) {
	r.turn.Timers.Stop(a.lapse)
	a.lapse = r.turn.Timers.Set(a.offer.HeldUntil(now), func(now leaseclock.Moment) {
		if r.attempts.by[a.rec.Attempt] != a || a.phase != reserved {
			return
		}
		why := fmt.Sprintf("its scheduler has not renewed the offer for %s", admission.HoldOf(&a.offer.Msg))
		if now.Boot >= a.offer.Since.Add(admission.MaxGather) {
			why = fmt.Sprintf("a gang may hold a place here for %s", admission.MaxGather)
		}
		held := now.Boot.Sub(a.offer.Since)
		r.revoke(a, why)
		r.lapsed(now, a.offer.Key.Peer, held)
	})
}

// renew handles an offer that came again after its reservation.
func (r *reservations) renew(now leaseclock.Moment, a *attempt, m contract.Offer, closed job.Reason) {
	o := a.offer
	switch {
	case o.Msg.Gang == 0 || !o.Same(m):
	case closed.Word != "" && a.phase == reserved: // the Start would be refused
		r.revoke(a, closed.String())
		return
	case a.phase == reserved:
		o.Prolong(m)
		r.prolong(now, a)
	}
	if !a.dirty {
		r.commit(now, a)
	}
}

// revoke takes back the reservation of a gang's member, and tells its scheduler.
func (r *reservations) revoke(a *attempt, why string) {
	o := a.offer
	r.undo(a)
	r.reports.decline(o.Key.Peer, o.Msg, job.Reason{Word: job.ReasonResources, Detail: contract.Clip(why)}, false)
}

// again reserves resources for a Start whose reservation has lapsed. If it cannot, it returns why. It does so only if
// this run of the daemon has sent a Commit for the attempt.
func (r *reservations) again(from job.Peer, m contract.Start, closed job.Reason) (*attempt, string) {
	o := r.queue.LapsedOf(m.Attempt)
	if o == nil || o.Key != (admission.Key{Peer: from, ID: m.Offer}) {
		return nil, "nothing is reserved for it"
	}
	r.queue.Forget(o)
	if closed.Word != "" {
		return nil, "the reservation has lapsed: " + closed.String()
	}
	devices, ok := r.account.Capacity.Choose(o.Msg.Need, o.Msg.Device)
	if !ok {
		return nil, "the reservation has lapsed: " + r.account.Missing(o.Msg.Need)
	}
	if !r.account.Hold(&o.Msg, devices) {
		return nil, "the reservation has lapsed"
	}
	return r.reserve(o, devices), ""
}

// undo frees what a reservation holds, and drops its attempt.
func (r *reservations) undo(a *attempt) {
	r.queue.Gangs.HeldInVain(r.turn.Now(), a.offer, r.attempts.pace.Turn(r.attempts.cfg.SetAside))
	r.account.Release(&a.rec)
	r.attempts.ports.release(a)
	r.turn.Timers.Stop(a.lapse)
	r.queue.Forget(a.offer)
	r.attempts.drop(a)
}

// disconnected frees the places of gangs whose scheduler has lost its session. It has forgotten them, and offers the same
// attempts again.
func (r *reservations) disconnected(p job.Peer) {
	if _, held := r.queue.SizeOf(p); held == 0 {
		return
	}
	for _, o := range r.queue.Gangs.Offers() {
		if o.Key.Peer != p || o.State != admission.Reserved {
			continue
		}
		if a := r.attempts.by[o.Msg.Attempt]; a.phase == reserving || a.phase == reserved {
			r.undo(a)
		}
	}
}

// release handles a Release: it withdraws an offer, whatever its state.
func (r *reservations) release(from job.Peer, m contract.Release) {
	o := r.queue.Find(admission.Key{Peer: from, ID: m.Offer})
	if o == nil {
		return
	}
	switch o.State {
	case admission.Queued:
		r.queue.Remove(o)
	case admission.Reserved:
		r.undo(r.attempts.by[o.Msg.Attempt])
	case admission.Lapsed:
		r.queue.Forget(o)
	case admission.Gone:
	}
}
