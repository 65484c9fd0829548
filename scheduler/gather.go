package scheduler

// The offers of a gang: which rank is offered to a host, and when an offer is sent again.
// See docs/adr, ADR 89.

import (
	"slices"

	"github.com/musterhq/muster/scheduler/fleet"
	"github.com/musterhq/muster/scheduler/place"
)

// seats offers the members of gangs to hosts, and hears their answers.
type seats struct {
	*turn
	entries    *entries
	hosts      *hosts
	contact    *contact
	offers     *offers
	dispatches *dispatches
}

func (gs *seats) offerFits(d *dispatch, fits []place.Spot) {
	for _, x := range fits {
		if !gs.makeRoom(d) {
			return
		}
		gs.offer(d, gs.hosts.workers[x.Host.Peer], &seat{why: x.Why}, x.Devices)
	}
}

func (gs *seats) offerQueue(d *dispatch, hosts []*fleet.Host) {
	for _, h := range hosts {
		if len(d.offers) < d.gang.most() {
			gs.queueAt(d, gs.hosts.workers[h.Peer])
		}
	}
}

func (gs *seats) queueAt(d *dispatch, w *worker) {
	makePlace(gs.dispatches, d, w)
	gs.offer(d, w, &seat{state: inQueue, waits: true}, nil)
}

// makeRoom takes one queued offer back if the gang has as many offers as it may have. It returns false if it has none.
func (gs *seats) makeRoom(d *dispatch) bool {
	if len(d.offers) < d.gang.most() {
		return true
	}
	for _, booked := range []bool{false, true} { // where others keep what it needs, none is lost
		for _, o := range slices.Backward(d.offers) {
			if o.replaceable() && slices.Contains(d.election.booked, o) == booked {
				gs.offers.release(o)
				gs.offers.drop(o)
				return true
			}
		}
	}
	return false
}

// replaceable reports whether the offer of a member may be taken back for one to another host: it only queues there.
func (o *offer) replaceable() bool { return o.seat.state == inQueue && !o.seat.preempt }

// offerMore offers a member to a host that got room.
func (gs *seats) offerMore(d *dispatch, w *worker) {
	if gs.makeRoom(d) {
		gs.offer(d, w, &seat{waits: true}, nil)
	}
}

// offer offers the rank that needs it most to a host.
func (gs *seats) offer(d *dispatch, w *worker, s *seat, chosen []string) {
	rank, open := d.openRank()
	if !open {
		return
	}
	t := d.task
	s.rank = rank
	o := &offer{id: gs.offers.draw(), dispatch: d, worker: w, leases: w.Leases, seat: s}
	r := t.request()
	o.claim = fleet.Claim{
		ID: o.id, User: r.User, Project: r.Project, Rank: r.Rank, Need: r.Need, Devices: chosen, State: fleet.Direct, Limited: r.Limited, Gang: r.Gang, Gathers: r.Gathers,
	}
	wait := directWait
	if s.waits {
		o.claim.State, wait = fleet.Queued, queueWait
	}
	gs.offers.byID[o.id] = o
	d.offers = append(d.offers, o)
	w.Claim(&o.claim)
	o.markElsewhere(s.waits && !s.preempt && d.election.silences())
	gs.contact.used(w.Peer)
	gs.offers.sendOffer(o, wait)
	if s.waits {
		gs.renew(o)
		if w.Quotas.IsProbe(&o.claim) {
			gs.after(directLimit, func() { gs.hosts.probed(o) })
		}
	} else {
		o.timer = gs.after(directLimit, func() { gs.dispatches.overdue(o) })
	}
	gs.entries.changed(t)
}

// renew sends the offer again before it, or the reservation, runs out. With the first offer of the gang it looks for
// more hosts.
func (gs *seats) renew(o *offer) {
	gs.stop(o.timer)
	o.timer = gs.after(renewEvery, func() {
		if o.seat.state == asked { // the host had no room any more
			o.seat.state = inQueue
			gs.offers.changed(o.dispatch)
		}
		gs.offers.sendOffer(o, queueWait)
		gs.renew(o)
		if d := o.dispatch; d.offers[0] == o {
			gs.offers.changed(d)
		}
	})
}
