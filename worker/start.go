package worker

// Start: how a reservation becomes an attempt, in two steps with the word of
// the host's policy between them.

import (
	"slices"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/lease"
)

// start turns a reservation into an attempt once the host's policy has admitted
// it. A known attempt is answered with its state (R9); whatever may not start
// leaves a tombstone.
func (c *Core) start(now Moment, from job.Peer, m lease.Start) {
	g, ok := c.command(now, from, m.Group, m.Epoch)
	if !ok {
		return
	}
	a := c.attempts[m.Attempt]
	if a != nil && a.rec.Phase != lease.PhaseReserved {
		c.retell(a)
		return
	}
	if why := c.mayStart(now, g, m); why != "" {
		c.tombstone(g, m.Attempt, why)
		return
	}
	if a == nil {
		var why string
		if a, why = c.again(from, m); why != "" {
			c.tombstone(g, m.Attempt, why)
			return
		}
	}
	switch {
	case a.offer.key != (offerKey{from, m.Offer}):
		c.tombstone(g, m.Attempt, "the start names another offer than was committed")
	case a.rec.User != m.User: // his quota was looked at, not another's
		c.tombstone(g, m.Attempt, "the start names another user than was committed")
	case a.asked != nil: // the policy has its spec; only what is newer counts
		a.asked.Epoch, a.asked.Session = m.Epoch, m.Session
	default:
		m.Spec.Resources = a.rec.Need
		a.asked = &m
		// From here on the answer alone ends the reservation.
		delete(c.offers, a.offer.key)
		c.timers.stop(a.lapse)
		if tooLate(now, g, m) {
			c.awaitLease(now, a)
			return
		}
		c.askPolicy(a)
	}
}

func (c *Core) askPolicy(a *attempt) {
	c.out.Admit = append(c.out.Admit, Admission{Attempt: a.rec.Attempt, User: a.rec.User, Spec: a.asked.Spec})
}

// tooLate says that too little of the lease is left: the task would get its TERM
// at once.
func tooLate(now Moment, g *group, m lease.Start) bool {
	return m.Spec.Partition != "hold" && g.anchor.Add(m.Spec.LeaseOr()).Sub(now.Boot) < minStart
}

// awaitLease has a start wait for the answer to a renewal: that of its commit has
// crossed it, or none was asked for since the lease was young.
func (c *Core) awaitLease(now Moment, a *attempt) {
	g := a.group
	g.late = append(g.late, a)
	if len(g.outstanding) == 0 {
		c.renew(now, g)
	}
	c.timers.set(now.Boot.Add(leaseWait), func(Moment) {
		if i := slices.Index(g.late, a); i >= 0 {
			g.late = slices.Delete(g.late, i, i+1)
			if a.asked != nil {
				c.tombstone(g, a.rec.Attempt, "too little of the lease is left")
			}
		}
	})
}

// startLate goes on with the starts that waited for a renewal.
func (c *Core) startLate(now Moment, g *group) {
	g.late = slices.DeleteFunc(g.late, func(a *attempt) bool {
		switch {
		case a.asked == nil: // refused meanwhile
			return true
		case tooLate(now, g, *a.asked):
			return false
		}
		c.askPolicy(a)
		return true
	})
}

// admitted starts an attempt, or leaves its tombstone. Time has passed since its
// Start was looked at: the lease and the owner are looked at again (R2, R5).
func (c *Core) admitted(now Moment, e Admitted) {
	a := c.attempts[e.Attempt]
	if a == nil || a.asked == nil {
		return // refused meanwhile
	}
	m, g := *a.asked, a.group
	a.asked = nil
	why := c.mayStart(now, g, m)
	if why == "" && tooLate(now, g, m) {
		why = "too little of the lease is left"
	}
	switch {
	case e.Refused != "":
		why = "not admitted: " + e.Refused
	case m.Epoch.Less(g.epoch):
		why = "the owner of its job was followed by another before it started"
	}
	if why != "" {
		c.tombstone(g, m.Attempt, why)
		return
	}
	a.rec.Phase, a.rec.Epoch, a.rec.Session = lease.PhaseStarted, m.Epoch, m.Session
	a.rec.Spec = m.Spec
	a.rec.Lease, a.rec.Hold = m.Spec.LeaseOr(), m.Spec.Partition == "hold"
	a.rec.EventN, a.rec.Recorded = 1, now.Wall
	if !a.rec.Hold {
		a.deadline = g.anchor.Add(a.rec.Lease)
	}
	g.running[m.Attempt], g.kept[m.Attempt] = a, a
	c.seek(g)
	c.put(a)
	if a.rec.Hold {
		return
	}
	// The deadline counts from a renewal that may be old: the next is asked well
	// before the task would get its TERM, so that an answer may be lost.
	left := a.deadline.Sub(now.Boot) - FenceLead
	if pace := min(a.rec.Lease, left) / 3; now.Boot.Add(pace) < g.next {
		c.renewIn(now, g, pace)
	}
}

// mayStart says why a Start is not obeyed. Whether the lease still lives is
// looked at here and now (R5).
func (c *Core) mayStart(now Moment, g *group, m lease.Start) string {
	switch {
	case c.draining.On:
		return "this host is drained: " + c.draining.String()
	case !g.holds(now):
		return "no lease with the owner is live"
	case m.Session != g.session:
		return "the start belongs to an earlier session"
	}
	if m.Spec.Image != "" && !slices.Contains(c.cfg.Profile.Drivers, lease.DriverDocker) {
		return "this host has no container engine now"
	}
	return ""
}

// again finds the place of a reservation that has lapsed, if it is still free.
// What was never committed in this life of the daemon has no place.
func (c *Core) again(from job.Peer, m lease.Start) (*attempt, string) {
	o := c.lapsed[m.Attempt]
	if o == nil || o.key != (offerKey{from, m.Offer}) {
		return nil, "nothing is reserved for it"
	}
	c.forgetLapsed(o)
	if why := c.closed(); why.Word != "" {
		return nil, "the reservation has lapsed: " + why.String()
	}
	devices, ok := c.room.choose(o.msg.Need)
	if !ok {
		return nil, "the reservation has lapsed: " + c.missing(o.msg.Need)
	}
	if !c.reserve(o, devices) {
		return nil, "the reservation has lapsed"
	}
	o.taken.lapses = true
	return o.taken, ""
}
