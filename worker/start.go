package worker

// Start: how a reserved attempt is started, in two steps. Between them the host's policy decides.

import (
	"fmt"
	"slices"
	"time"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker/admission"
	"github.com/musterhq/muster/worker/leaseclock"
	"github.com/musterhq/muster/worker/step"
)

// starts handles the Starts of owners.
type starts struct {
	cfg          *Config
	turn         *step.Turn
	ledger       *ledger
	sessions     *sessions
	reports      *reports
	queue        *admission.Queue
	leases       *leases
	attempts     *attempts
	reservations *reservations
	drain        *drainState
	availability *availability
}

const tooLateWhy = "too little of the lease is left"

// start handles a Start: it asks the host's policy about the attempt. For an attempt that was started before, it reports
// the state (R9). An attempt that may not start gets a tombstone.
func (s *starts) start(now leaseclock.Moment, from job.Peer, m contract.Start) {
	g, ok := s.leases.checkEpoch(now, from, m.Group, m.Epoch)
	if !ok {
		return
	}
	a := s.attempts.by[m.Attempt]
	if a != nil && a.rec.Phase != contract.PhaseReserved {
		s.reports.retell(a)
		return
	}
	why := s.mayStart(now, g, m)
	if why == "" && a == nil {
		a, why = s.reservations.again(from, m, s.availability.closed())
	}
	switch {
	case why != "":
	case a.offer.Key != (admission.Key{Peer: from, ID: m.Offer}):
		why = "the start names another offer than the committed one"
	case a.rec.User != m.User: // the quota of the offer's user was checked
		why = "the start names another user than the committed offer"
	case exceeds(m, a.offer.Msg.Limit): // bookings of other offers may rely on it
		why = "the start names a longer time limit than the committed offer"
	default:
		why = s.otherGang(a, m)
	}
	switch {
	case why != "":
		s.attempts.tombstone(g, m.Attempt, why)
	case a.phase == asked: // the policy is being asked already
		a.start.Epoch, a.start.Session = m.Epoch, m.Session
	default:
		a.start = &m
		a.move(s.turn, asked)
		if a.offer.Msg.Gang > 0 {
			s.queue.Gangs.Started()
		}
		// From here on only the answer of the policy ends the reservation.
		s.queue.Forget(a.offer)
		s.turn.Timers.Stop(a.lapse)
		if tooLate(now, g, m) {
			s.awaitLease(now, a)
			return
		}
		s.askPolicy(a)
	}
}

// exceeds reports whether the task may run for longer than its offer said; 0: it said no limit.
func exceeds(m contract.Start, limit time.Duration) bool {
	spec := m.File.Spec()
	of := contract.LimitOf(&spec)
	return limit > 0 && (of == 0 || of > limit)
}

// otherGang returns why the gang of a Start is not that of the committed offer, or "" if it is.
func (s *starts) otherGang(a *attempt, m contract.Start) string {
	n, rank := a.offer.Msg.Gang, m.Element.Rank
	switch {
	case m.Gang == nil && n == 0:
		return ""
	case m.Gang == nil || len(m.Gang.Members) != n:
		return fmt.Sprintf("the start is not for a gang of %d, as the committed offer was", n)
	case rank != m.Attempt.Task%n || m.Gang.Members[rank].Node != s.cfg.Profile.Peer:
		return fmt.Sprintf("the start names another host as rank %d of the gang", m.Attempt.Task%n)
	case rank == 0 && m.Gang.Port != a.port:
		return fmt.Sprintf("the start names port %d, and %d is kept for the gang", m.Gang.Port, a.port)
	}
	return ""
}

func (s *starts) askPolicy(a *attempt) {
	s.turn.Admit(step.Admission{Attempt: a.rec.Attempt, User: a.rec.User, Spec: a.start.File.Spec()})
}

// tooLate reports whether so little of the lease is left that the task would soon get TERM.
func tooLate(now leaseclock.Moment, g *group, m contract.Start) bool {
	spec := m.File.Spec()
	return !spec.Holds() && g.session.anchor.Add(spec.LeaseOr()).Sub(now.Boot) < minStart
}

// awaitLease lets a Start wait for the answer to a Renew. The Commit may have sent one; otherwise awaitLease does.
func (s *starts) awaitLease(now leaseclock.Moment, a *attempt) {
	g := a.group
	g.late = append(g.late, a)
	if len(g.session.outstanding) == 0 {
		s.leases.renew(now, g)
	}
	s.turn.Timers.Set(now.Boot.Add(leaseWait), func(leaseclock.Moment) {
		if i := slices.Index(g.late, a); i >= 0 {
			g.late = slices.Delete(g.late, i, i+1)
			if a.phase == asked {
				s.attempts.tombstone(g, a.rec.Attempt, tooLateWhy)
			}
		}
	})
}

// resume continues the Starts that waited for a renewal.
func (s *starts) resume(now leaseclock.Moment, g *group) {
	g.late = slices.DeleteFunc(g.late, func(a *attempt) bool {
		switch {
		case a.phase != asked: // refused meanwhile
			return true
		case tooLate(now, g, *a.start):
			return false
		}
		s.askPolicy(a)
		return true
	})
}

// admitted starts an attempt that the policy has admitted, or gives it a tombstone. Time has passed since the Start
// arrived, so it checks the lease and the owner again (R2, R5).
func (s *starts) admitted(now leaseclock.Moment, e Admitted) {
	a := s.attempts.by[e.Attempt]
	if a == nil || a.phase != asked {
		return // refused meanwhile
	}
	m, g := *a.start, a.group
	why := s.mayStart(now, g, m)
	if why == "" && tooLate(now, g, m) {
		why = tooLateWhy
	}
	switch {
	case e.Refused != "":
		why = "not admitted: " + e.Refused
	case m.Epoch.Less(g.epoch) || a.offer.Key.Peer != g.owner:
		why = "its job got a new owner before it started"
	}
	if why != "" {
		s.attempts.tombstone(g, m.Attempt, why)
		return
	}
	a.start = nil
	a.move(s.turn, starting)
	s.reservations.lapses.started(a.offer.Key.Peer)
	spec := m.File.Spec()
	a.rec.Epoch, a.rec.Session, a.rec.File, a.rec.Element = m.Epoch, m.Session, m.File, m.Element
	a.rec.Gang = m.Gang
	a.rec.Lease, a.rec.Hold = spec.LeaseOr(), spec.Holds()
	a.rec.EventN, a.rec.Recorded = 1, now.Wall
	a.expect(now, contract.LimitOf(&spec))
	if m.Gang != nil {
		s.turn.Arbitrate() // an offer may be booked for the end of this task now
	}
	g.running[m.Attempt], g.kept[m.Attempt] = a, a
	s.sessions.update(g)
	s.attempts.setPreemptible(a, spec)
	s.ledger.put(a)
	s.leases.begin(now, g, a)
}

// mayStart returns why a Start is refused, or "" if it is not. It checks that the lease is live now (R5).
func (s *starts) mayStart(now leaseclock.Moment, g *group, m contract.Start) string {
	switch {
	case m.File.Strange() != "":
		return m.File.Strange()
	case s.drain.now.On:
		return "this host is drained: " + s.drain.now.String()
	case !g.holds(now):
		return "no lease with the owner is live"
	case m.Session != g.session.id:
		return "the start belongs to an earlier session"
	}
	if m.File.Spec().Image != "" && !slices.Contains(s.cfg.Profile.Drivers, contract.DriverDocker) {
		return "this host has no container engine now"
	}
	return ""
}
