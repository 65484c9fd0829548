package worker

// Reservations: from the Commit to the Start, or to the lapse.

import (
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/lease"
)

// reservations are the attempts that hold what an offer asks for, and are not started.
type reservations struct {
	turn     *turn
	account  *account
	reports  *reports
	queue    *queue
	leases   *leases
	attempts *attempts
}

// reserve turns an offer into a reservation, with the devices that are held for it. The Commit is sent once its record
// is on disk.
func (r *reservations) reserve(o *offer, devices []string) *attempt {
	r.queue.reserve(o)
	return r.attempts.reserve(o, devices)
}

// commit answers an offer whose reservation is on disk. From the first time on, the reservation lapses.
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

// again finds the place of a reservation that has lapsed, if it is still free, or says why there is none. An attempt that
// was never committed in this life of the daemon has no place.
func (r *reservations) again(from job.Peer, m lease.Start, closed job.Reason) (*attempt, string) {
	o := r.queue.lapsed[m.Attempt]
	if o == nil || o.key != (offerKey{from, m.Offer}) {
		return nil, "nothing is reserved for it"
	}
	r.queue.forget(o)
	if closed.Word != "" {
		return nil, "the reservation has lapsed: " + closed.String()
	}
	devices, ok := r.account.capacity.choose(o.msg.Need)
	if !ok {
		return nil, "the reservation has lapsed: " + r.account.missing(o.msg.Need)
	}
	if !r.account.hold(&o.msg, devices) {
		return nil, "the reservation has lapsed"
	}
	return r.reserve(o, devices), ""
}

// undo gives back what a reservation holds, and forgets it.
func (r *reservations) undo(a *attempt) {
	r.account.give(&a.rec)
	r.turn.timers.stop(a.lapse)
	r.queue.forget(a.offer)
	r.attempts.drop(a)
}

// release takes back an offer, wherever it has come to.
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
