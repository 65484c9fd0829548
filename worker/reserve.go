package worker

// Reservations, from the Commit until they start or lapse.

import (
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/lease"
)

// reservations handles the attempts that hold resources but are not started.
type reservations struct {
	turn     *turn
	account  *account
	reports  *reports
	queue    *queue
	leases   *leases
	attempts *attempts
}

// reserve makes a reservation for an offer, with the devices that are held for it. The Commit is sent once the record of
// the reservation is on disk (W2).
func (r *reservations) reserve(o *offer, devices []string) *attempt {
	r.queue.reserve(o)
	return r.attempts.reserve(o, devices)
}

// commit sends the Commit for an offer whose reservation is on disk. The first Commit sets the timer with which the
// reservation lapses.
func (r *reservations) commit(now Moment, a *attempt) {
	o, g := a.offer, a.group
	var id lease.Session
	if g.holds(now) {
		id = g.session.id
	}
	r.turn.send(o.key.peer, lease.Commit{
		Offer: o.key.id, Attempt: a.rec.Attempt, Group: a.rec.Group, Devices: a.rec.Devices, Session: id,
	})
	if g.session.live && now.Boot.Sub(max(g.session.anchor, g.session.asked)) > freshEnough {
		r.leases.renew(now, g)
	}
	if a.phase != reserving {
		return
	}
	a.move(r.turn, reserved)
	a.lapse = r.turn.timers.set(now.Boot.Add(lease.ReserveFor), func(now Moment) {
		if r.attempts.by[a.rec.Attempt] == a && a.phase == reserved {
			r.undo(a)
			r.queue.lapse(now, a.offer)
		}
	})
}

// again reserves resources for a Start whose reservation has lapsed. If it cannot, it returns why. It does so only if
// this run of the daemon has sent a Commit for the attempt.
func (r *reservations) again(from job.Peer, m lease.Start, closed job.Reason) (*attempt, string) {
	o := r.queue.lapsed[m.Attempt]
	if o == nil || o.key != (offerKey{from, m.Offer}) {
		return nil, "nothing is reserved for it"
	}
	r.queue.forget(o)
	if closed.Word != "" {
		return nil, "the reservation has lapsed: " + closed.String()
	}
	devices, ok := r.account.capacity.choose(o.msg.Need, o.msg.Device)
	if !ok {
		return nil, "the reservation has lapsed: " + r.account.missing(o.msg.Need)
	}
	if !r.account.hold(&o.msg, devices) {
		return nil, "the reservation has lapsed"
	}
	return r.reserve(o, devices), ""
}

// undo frees what a reservation holds, and drops its attempt.
func (r *reservations) undo(a *attempt) {
	r.account.release(&a.rec)
	r.turn.timers.stop(a.lapse)
	r.queue.forget(a.offer)
	r.attempts.drop(a)
}

// release handles a Release: it withdraws an offer, whatever its state.
func (r *reservations) release(from job.Peer, m lease.Release) {
	o := r.queue.offers[offerKey{from, m.Offer}]
	if o == nil {
		return
	}
	switch o.state {
	case offerQueued:
		r.queue.remove(o)
	case offerReserved:
		r.undo(r.attempts.by[o.msg.Attempt])
	case offerLapsed:
		r.queue.forget(o)
	case offerGone:
	}
}
