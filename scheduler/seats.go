package scheduler

// Seats: what hosts answer to the offers of a gang.

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler/place"
)

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
		gs.offers.result(o, OfferCommitted)
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

// sessionless handles a Commit of a host without a live lease. The host is offered a member again once it has one.
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
	gs.offers.result(o, OfferDeclined)
	gs.offers.drop(o)
	a := place.Avoidance{Peer: w.Peer, Hard: true}
	switch {
	case m.NoUser:
		gs.hosts.refusedUser(w, t.e.job.User)
		return
	case m.Never:
		t.avoid.Add(gs.now, refusedForGood(gs.dispatches, o, m))
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
		a.Until = gs.now.Add(backoff(d.gang.revokes))
		gs.lookLater(d, a.Until)
	case preempts && m.Reason.Word == job.ReasonResources:
		t.avoid.Add(gs.now, unyieldingFor(gs.turn, w))
		if t.phase == offering {
			gs.queueAt(d, w)
		}
		return
	default:
		a = afterDecline(gs.dispatches, w, o, m)
	}
	t.avoid.Add(gs.now, a)
	if a.Hard {
		gs.hosts.askAgain(w, a.Until)
	}
}

// maxRevokes is how often hosts may take places of a gang back before it avoids each that does so for a while. Else a
// host that gives and takes could keep the owner busy.
const maxRevokes = 32

// lookLater looks at the gang again when it no longer avoids a host.
func (gs *seats) lookLater(d *dispatch, at time.Time) {
	gs.after(at.Sub(gs.now), func() {
		if d.task.dispatch == d {
			gs.offers.changed(d)
		}
	})
}
