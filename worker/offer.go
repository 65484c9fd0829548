package worker

// Arbitration: which offers get what is free, and what becomes of those.

import (
	"fmt"
	"log/slog"
	"slices"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/lease"
)

// arbitrate gives what is free to the offers by rank. One that has to wait sets
// aside what is free of what it needs, so that those after it get only what is
// left beyond that and cannot starve it. So does one whose wait is over: its
// scheduler may be about to offer it again, in the same place.
func (c *Core) arbitrate(now Moment) {
	if !c.look {
		return
	}
	late := false
	for again := true; again; {
		s := aside{failed: map[job.Resources]struct{}{}, devices: map[string]gpu.Device{}}
		c.decideAll(now, &s)
		// One who has just got what he may hold waits no longer: nothing is kept for him.
		late, again = late || s.late, s.filled
	}
	c.look = false
	if late {
		c.timers.set(now.Boot.Add(lateRenewal), func(Moment) { c.look = true })
	}
}

// decideAll decides each offer that waits, once.
func (c *Core) decideAll(now Moment, s *aside) {
	queue := c.queue
	if len(queue) > 0 {
		for _, d := range c.cfg.Profile.GPUs {
			s.devices[d.UUID] = d
		}
	}
	for _, o := range queue {
		if !o.queued {
			continue
		}
		if why := c.closed(); why.Word != "" {
			c.dequeue(o)
			c.decline(o.key.peer, o.msg, why, !c.cfg.Profile.Worker)
			continue
		}
		c.decide(now, o, s)
	}
	c.room.giveBack(s)
	c.queue = slices.DeleteFunc(queue, func(o *offer) bool { return !o.queued })
}

// decide answers an offer or keeps it.
func (c *Core) decide(now Moment, o *offer, s *aside) {
	m := &o.msg
	if m.Epoch.Less(o.group.epoch) {
		c.dequeue(o)
		c.send(o.key.peer, lease.Stale{Group: m.Group, Epoch: o.group.epoch, Owner: o.group.owner})
		return
	}
	if why := c.overQuota(m.User, m.Need); why != "" {
		c.dequeue(o)
		c.refuseQuota(o, why)
		return
	}
	devices, fit := c.fits(m.Need, s)
	if (fit || o.timer == nil) && c.attempts[m.Attempt] != nil {
		c.dequeue(o)
		c.decline(o.key.peer, o.msg, job.Reason{Word: job.ReasonResources, Detail: "this attempt is here already"}, false)
		return
	}
	if fit && c.reserve(o, devices) {
		s.filled = s.filled || len(c.limits.of(m.User)) > 0
		return
	}
	switch {
	case now.Boot >= o.until:
		c.dequeue(o)
		c.decline(o.key.peer, o.msg, job.Reason{Word: job.ReasonResources, Detail: c.missing(m.Need)}, false)
		if o.timer == nil { // it was to be answered at once, or comes too late
			return
		}
		s.late = true
	case o.timer == nil:
		c.endWait(o)
	}
	if c.room.gpus.Sound(m.Need) { // else it waits for a repair or for others, and nothing is kept for it
		c.room.setAside(s, m.Need)
	}
}

// fits looks for room. A need that did not fit does not fit later in the same
// arbitration either, as what is left only shrinks.
func (c *Core) fits(need job.Resources, s *aside) ([]string, bool) {
	if !c.room.enough(need) {
		return nil, false
	}
	if gpu.Count(need) == 0 {
		return nil, true
	}
	if _, failed := s.failed[need]; failed || s.noGPUs {
		return nil, false
	}
	devices, ok := c.room.choose(need)
	if !ok {
		s.failed[need] = struct{}{}
	}
	return devices, ok
}

// missing says for people why an offer found no room.
func (c *Core) missing(need job.Resources) string {
	if why := c.room.short(need); why != "" {
		return why
	}
	if gpu.Count(need) > 0 {
		return fmt.Sprintf("gpus: %d wanted, not free or kept for offers that came before", gpu.Count(need))
	}
	return "kept for offers that came before"
}

// reserve turns an offer into a reservation; the Commit is sent once its record
// is on disk.
func (c *Core) reserve(o *offer, devices []string) bool {
	m := o.msg
	if err := c.hold(m, devices); err != nil {
		c.say(slog.LevelError, "chosen devices cannot be held", slog.String("attempt", m.Attempt.String()), slog.Any("error", err))
		return false
	}
	c.dequeue(o)
	a := &attempt{group: o.group, offer: o, rec: lease.Record{
		Attempt: m.Attempt, Group: m.Group, Epoch: m.Epoch, Owner: o.key.peer, Phase: lease.PhaseReserved,
		Offer: m.ID, User: m.User, Need: m.Need, Devices: devices, Milli: gpu.Milli(m.Need), Boot: c.cfg.Boot,
	}}
	o.taken = a
	c.offers[o.key] = o
	c.attempts[m.Attempt] = a
	c.put(a)
	return true
}

// sendCommit answers an offer whose reservation is on disk, and lets it lapse
// in time.
func (c *Core) sendCommit(now Moment, a *attempt) {
	o, g := a.offer, a.group
	var session lease.Session
	if g.holds(now) {
		session = g.session
	}
	c.send(o.key.peer, lease.Commit{
		Offer: o.key.id, Attempt: a.rec.Attempt, Group: a.rec.Group, Devices: a.rec.Devices, Session: session,
	})
	if g.live && now.Boot.Sub(max(g.anchor, g.asked)) > freshEnough {
		c.renew(now, g)
	}
	if a.lapses {
		return
	}
	a.lapses = true
	a.lapse = c.timers.set(now.Boot.Add(lease.ReserveFor), func(now Moment) {
		if c.attempts[a.rec.Attempt] == a && a.rec.Phase == lease.PhaseReserved {
			c.lapse(now, a)
		}
	})
}

// lapse ends a reservation that nobody has used, and remembers it for a while:
// a Start that is late may find its place again.
func (c *Core) lapse(now Moment, a *attempt) {
	o := a.offer
	c.unreserve(a)
	if len(c.lapsed) >= MaxRecords {
		return
	}
	o.lapsed = true
	c.offers[o.key] = o
	c.lapsed[o.msg.Attempt] = o
	c.timers.set(now.Boot.Add(lapsedFor), func(Moment) { c.forgetLapsed(o) })
}

func (c *Core) forgetLapsed(o *offer) {
	if c.offers[o.key] == o {
		delete(c.offers, o.key)
	}
	if c.lapsed[o.msg.Attempt] == o {
		delete(c.lapsed, o.msg.Attempt)
	}
}

// unreserve gives back what a reservation holds and forgets it.
func (c *Core) unreserve(a *attempt) {
	c.give(a)
	c.timers.stop(a.lapse)
	delete(c.offers, a.offer.key)
	a.offer.taken = nil
	c.drop(a)
}

// release takes back an offer, wherever it has come to.
func (c *Core) release(from job.Peer, m lease.Release) {
	o := c.offers[offerKey{from, m.Offer}]
	switch {
	case o == nil:
	case o.lapsed:
		c.forgetLapsed(o)
	case o.taken != nil:
		c.unreserve(o.taken)
	default:
		c.dequeue(o)
	}
}

// refusal is a Decline on its way.
type refusal struct {
	to  job.Peer
	msg lease.Decline
}

// decline refuses an offer; it is sent when this round's offers are decided, so
// that what it says about free resources is true.
func (c *Core) decline(to job.Peer, m lease.Offer, why job.Reason, never bool) {
	c.declines = append(c.declines, refusal{to: to, msg: lease.Decline{
		Offer: m.ID, Attempt: m.Attempt, Reason: why, Never: never,
	}})
}

func (c *Core) sendDeclines() {
	for _, d := range c.declines {
		d.msg.Free = c.freeNow()
		c.send(d.to, d.msg)
	}
	c.declines = c.declines[:0]
}
