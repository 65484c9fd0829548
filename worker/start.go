package worker

// Start: how a reservation becomes an attempt, in two steps with the word of the host's policy between them.

import (
	"slices"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/lease"
)

// starts carries out the Starts of owners.
type starts struct {
	cfg          *Config
	turn         *turn
	ledger       *ledger
	sessions     *sessions
	reports      *reports
	queue        *queue
	leases       *leases
	attempts     *attempts
	reservations *reservations
	drain        *drainage
	gate         *gate
}

const tooLateWhy = "too little of the lease is left"

// start turns a reservation into an attempt once the host's policy has admitted it. A known attempt is answered with its
// state (R9); one that may not start leaves a tombstone.
func (s *starts) start(now Moment, from job.Peer, m lease.Start) {
	g, ok := s.leases.command(now, from, m.Group, m.Epoch)
	if !ok {
		return
	}
	a := s.attempts.by[m.Attempt]
	if a != nil && a.rec.Phase != lease.PhaseReserved {
		s.reports.retell(a)
		return
	}
	why := s.mayStart(now, g, m)
	if why == "" && a == nil {
		a, why = s.reservations.again(from, m, s.gate.closed())
	}
	switch {
	case why != "":
	case a.offer.key != (offerKey{from, m.Offer}):
		why = "the start names another offer than was committed"
	case a.rec.User != m.User: // the quota of the first was looked at, not the other's
		why = "the start names another user than was committed"
	}
	switch {
	case why != "":
		s.attempts.tombstone(g, m.Attempt, why)
	case a.phase == asked: // the policy has its spec; only what is newer counts
		a.start.Epoch, a.start.Session = m.Epoch, m.Session
	default:
		m.Spec.Resources = a.rec.Need
		a.start = &m
		a.move(s.turn, asked)
		// From here on the answer alone ends the reservation.
		s.queue.forget(a.offer)
		s.turn.timers.stop(a.lapse)
		if tooLate(now, g, m) {
			s.awaitLease(now, a)
			return
		}
		s.askPolicy(a)
	}
}

func (s *starts) askPolicy(a *attempt) {
	s.turn.out.Admit = append(s.turn.out.Admit, Admission{Attempt: a.rec.Attempt, User: a.rec.User, Spec: a.start.Spec})
}

// tooLate says that too little of the lease is left: the task would get its TERM at once.
func tooLate(now Moment, g *group, m lease.Start) bool {
	return m.Spec.Partition != "hold" && g.session.anchor.Add(m.Spec.LeaseOr()).Sub(now.Boot) < minStart
}

// awaitLease has a start wait for the answer to a renewal: the one that its Commit asked for is still on its way, or none
// was asked for since the lease was young.
func (s *starts) awaitLease(now Moment, a *attempt) {
	g := a.group
	g.late = append(g.late, a)
	if len(g.session.outstanding) == 0 {
		s.leases.renew(now, g)
	}
	s.turn.timers.set(now.Boot.Add(leaseWait), func(Moment) {
		if i := slices.Index(g.late, a); i >= 0 {
			g.late = slices.Delete(g.late, i, i+1)
			if a.phase == asked {
				s.attempts.tombstone(g, a.rec.Attempt, tooLateWhy)
			}
		}
	})
}

// resume goes on with the starts that waited for a renewal.
func (s *starts) resume(now Moment, g *group) {
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

// admitted starts an attempt, or leaves its tombstone. Time has passed since its Start was looked at: the lease and the
// owner are looked at again (R2, R5).
func (s *starts) admitted(now Moment, e Admitted) {
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
	case m.Epoch.Less(g.epoch):
		why = "the owner of its job was followed by another before it started"
	}
	if why != "" {
		s.attempts.tombstone(g, m.Attempt, why)
		return
	}
	a.start = nil
	a.move(s.turn, starting)
	a.rec.Epoch, a.rec.Session, a.rec.Spec = m.Epoch, m.Session, m.Spec
	a.rec.Lease, a.rec.Hold = m.Spec.LeaseOr(), m.Spec.Partition == "hold"
	a.rec.EventN, a.rec.Recorded = 1, now.Wall
	g.running[m.Attempt], g.kept[m.Attempt] = a, a
	s.sessions.follow(g)
	s.ledger.put(a)
	s.leases.begin(now, g, a)
}

// mayStart says why a Start is not obeyed; empty if it is. Whether the lease still lives is looked at here and now (R5).
func (s *starts) mayStart(now Moment, g *group, m lease.Start) string {
	switch {
	case s.drain.now.On:
		return "this host is drained: " + s.drain.now.String()
	case !g.holds(now):
		return "no lease with the owner is live"
	case m.Session != g.session.id:
		return "the start belongs to an earlier session"
	}
	if m.Spec.Image != "" && !slices.Contains(s.cfg.Profile.Drivers, lease.DriverDocker) {
		return "this host has no container engine now"
	}
	return ""
}
