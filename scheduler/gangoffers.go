package scheduler

// The offers of a gang: which rank is offered to a host, when an offer is sent again, and what hosts answer.
// See docs/adr, ADR 89.

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler/fleet"
	"github.com/musterhq/muster/scheduler/place"
	"github.com/musterhq/muster/scheduler/step"
)

// seats offers the members of gangs to hosts, and hears their answers.
type seats struct {
	*step.Turn
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

// makeRoom takes one queued offer back if the gang has as many offers as it may have. It returns false if none of them
// may be taken back.
func (gs *seats) makeRoom(d *dispatch) bool {
	if len(d.offers) < d.gang.most() {
		return true
	}
	for _, booked := range []bool{false, true} { // first those that are not elected: other hosts keep what they need
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

// offer offers a host the rank that most needs an offer.
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
			gs.After(directLimit, func() { gs.hosts.probed(o) })
		}
	} else {
		o.timer = gs.After(directLimit, func() { gs.dispatches.overdue(o) })
	}
	gs.entries.changed(t)
}

// renew sends the offer again before it, or the reservation, runs out. With the first offer of the gang it looks for
// more hosts.
func (gs *seats) renew(o *offer) {
	gs.Stop(o.timer)
	o.timer = gs.After(renewEvery, func() {
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

// commit handles a Commit to an offer of a gang. A host answers each renewal of an offer with a Commit again.
func (gs *seats) commit(w *worker, o *offer, m contract.Commit) {
	d, s := o.dispatch, o.seat
	switch wrong := wrong(w, o, &m); {
	case wrong != "":
		gs.offers.release(o)
		d.task.declines++
		d.task.pause.why = w.Name() + " " + wrong
		gs.dispatches.offerGone(o, gs.dispatches.avoidHard(o))
		return
	case m.Session == 0 && !m.Conditional:
		gs.sessionless(o)
		return
	}
	if other := d.holder(s.rank); other != nil && other != o {
		gs.offers.release(o)
		gs.offers.drop(o)
		gs.offer(d, w, &seat{why: s.why}, m.Devices) // of a rank that is open, if any is
		return
	}
	before := s.state
	s.state, s.session, s.address, s.port, s.devices = seated, m.Session, m.Address, m.Port, m.Devices
	if m.Conditional {
		s.state = promised
	}
	if s.state == before {
		return
	}
	if s.state == seated {
		w.Hold(&o.claim, m.Devices)
		gs.offers.result(o, step.OfferCommitted)
	}
	gs.hosts.taken(o)
	gs.hosts.offerToFreed(w) // another task may queue there
	gs.renew(o)
	gs.offers.changed(d)
}

// wrong says what is wrong with a Commit; empty if nothing is.
func wrong(w *worker, o *offer, m *contract.Commit) string {
	t, s := o.dispatch.task, o.seat
	a := job.Attempt{Job: t.e.job.ID, Task: t.index + s.rank, N: o.dispatch.n}
	switch {
	case m.Attempt != a:
		return fmt.Sprintf("committed to %s, and was offered %s", m.Attempt, a)
	case m.Conditional && (!s.preempt || s.firm || s.state == seated):
		return "committed on a condition that it was not asked for"
	case !m.Conditional && s.rank == 0 && (m.Port < 1 || m.Port > 65535):
		return fmt.Sprintf("named port %d for the gang", m.Port)
	case w.Local && m.Address == "":
		return ""
	case !sameAddress(m.Address, w.Address):
		return fmt.Sprintf("says that its address is %q, and is reached at %q", contract.Clip(m.Address), w.Address)
	}
	for _, other := range o.dispatch.offers { // 127.0.0.1 of one host is not that of another
		if x := other.seat; other != o && x.state >= promised && x.address != "" && loopback(x.address) != loopback(m.Address) {
			return fmt.Sprintf("is reached at %s, where %s does not reach it", m.Address, other.worker.Name())
		}
	}
	return ""
}

func sameAddress(a, b string) bool {
	x, err1 := netip.ParseAddr(a)
	y, err2 := netip.ParseAddr(b)
	return err1 == nil && err2 == nil && x.Unmap() == y.Unmap()
}

func loopback(address string) bool {
	a, err := netip.ParseAddr(address)
	return err == nil && a.Unmap().IsLoopback()
}

// sessionless handles a Commit of a host without a live lease. The host is offered a member again once it has a lease.
func (gs *seats) sessionless(o *offer) {
	gs.offers.release(o)
	gs.hosts.sessionless(o)
	gs.offers.drop(o)
}

// decline handles a Decline of an offer of a gang. A host may take back a place that it held: an older gang gets it.
func (gs *seats) decline(w *worker, o *offer, m contract.Decline) {
	w.SetFree(m.Free)
	gs.hosts.offerToFreed(w)
	d, t := o.dispatch, o.dispatch.task
	held, preempts := o.seat.state >= promised, o.seat.preempt
	gs.offers.result(o, step.OfferDeclined)
	gs.offers.drop(o)
	a := place.Avoidance{Peer: w.Peer, Hard: true}
	switch {
	case m.NoUser:
		gs.hosts.refusedUser(w, t.e.job.User)
		return
	case m.Never:
		t.avoid.Add(gs.Now, refusedForGood(gs.dispatches, o, m))
		return
	case held:
		t.pause.why = w.Name() + ": " + m.Reason.String()
		d.gang.revokes++
		if _, lack := w.Devices.Fit(t.shape.Need, &m.Free); lack != "" && d.gang.revokes <= maxRevokes {
			if t.phase == offering { // it waits there for the gang that got the place
				gs.queueAt(d, w)
			}
			return
		}
		a.Until = gs.Now.Add(backoff(d.gang.revokes))
		gs.lookLater(d, a.Until)
	case preempts && m.Reason.Word == job.ReasonResources:
		t.avoid.Add(gs.Now, unyieldingFor(gs.Turn, w))
		if t.phase == offering {
			gs.queueAt(d, w)
		}
		return
	default:
		a = afterDecline(gs.dispatches, w, o, m)
	}
	t.avoid.Add(gs.Now, a)
	if a.Hard {
		gs.hosts.askAgain(w, a.Until)
	}
}

// maxRevokes is how often hosts may take places of a gang back. After that the gang avoids each host that does so, for
// a while. Otherwise a host that gives and takes places could keep the owner busy.
const maxRevokes = 32

// lookLater looks at the gang again when it no longer avoids a host.
func (gs *seats) lookLater(d *dispatch, at time.Time) {
	gs.After(at.Sub(gs.Now), func() {
		if d.task.dispatch == d {
			gs.offers.changed(d)
		}
	})
}
