package worker

// Sessions to schedulers: who hears of this host, and what they are told of it.

import (
	"cmp"
	"fmt"
	"log/slog"
	"slices"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/lease"
)

func (c *Core) send(to job.Peer, msg lease.ToScheduler) {
	c.out.Send = append(c.out.Send, Outgoing{To: to, Msg: msg})
}

func (c *Core) connected(p job.Peer) bool {
	_, ok := slices.BinarySearch(c.peers, p)
	return ok
}

// up opens a session: who this is, then whatever the peer has not acknowledged,
// then what asks for renewal.
func (c *Core) up(now Moment, p job.Peer) {
	c.down(p)
	i, _ := slices.BinarySearch(c.peers, p)
	c.peers = slices.Insert(c.peers, i, p)
	c.hello(p)
	for _, g := range c.groupsOf(p) {
		c.greet(now, g)
	}
}

// hello says who this is and what it has, and if need be why none of it is
// given away: a Hello alone means that it is.
func (c *Core) hello(to job.Peer) {
	c.send(to, lease.Hello{Profile: c.cfg.Profile, Free: c.freeNow()})
	if c.closed().Word == job.ReasonNodesDraining {
		c.seq++
		c.send(to, c.availability())
	}
}

// availability is what is free now, or why nothing is.
func (c *Core) availability() lease.Availability {
	why := c.closed()
	return lease.Availability{Seq: c.seq, Free: c.freeNow(), Draining: why.Word == job.ReasonNodesDraining, Detail: why.Detail}
}

func (c *Core) down(p job.Peer) {
	i, ok := slices.BinarySearch(c.peers, p)
	if !ok {
		return
	}
	c.peers = slices.Delete(c.peers, i, i+1)
	for _, g := range c.groupsOf(p) {
		g.greeted = false
	}
	c.forgetRefusals(p)
	if c.perPeer[p] == 0 {
		return
	}
	for _, o := range c.queue {
		if o.key.peer == p {
			c.dequeue(o)
		}
	}
}

// groupsOf are the groups that a peer is known to own, in order.
func (c *Core) groupsOf(p job.Peer) []*group {
	var out []*group
	for _, g := range c.groups {
		if g.owner == p {
			out = append(out, g)
		}
	}
	slices.SortFunc(out, func(a, b *group) int { return cmp.Compare(a.id, b.id) })
	return out
}

// announce tells every scheduler what is free, if that has changed and was not
// told a moment ago. Those that were refused for a user's quota hear in it that
// he may hold more.
func (c *Core) announce(now Moment) {
	if c.waiting || !c.changed && len(c.eased) == 0 {
		return
	}
	if due := c.announced.Add(announceEvery); c.seq > 0 && now.Boot < due {
		c.announceAt(due)
		return
	}
	all := c.changed
	c.changed = false
	c.announced = now.Boot
	c.seq++
	if len(c.peers) == 0 {
		return
	}
	msg := c.availability()
	for _, p := range c.peers {
		if msg.UnderQuota = c.takeEased(p); all || msg.UnderQuota != nil {
			c.send(p, msg)
		}
	}
	if len(c.eased) > 0 { // more than one message holds
		c.announceAt(now.Boot.Add(announceEvery))
	}
}

func (c *Core) announceAt(due BootTime) {
	c.waiting = true
	c.timers.set(due, func(Moment) { c.waiting = false })
}

// closed is why nothing is given away at all; an empty word if something is.
func (c *Core) closed() job.Reason {
	switch {
	case !c.cfg.Profile.Worker:
		return job.Reason{Word: job.ReasonNoMatch, Detail: "this host runs no tasks"}
	case c.draining.On:
		return job.Reason{Word: job.ReasonNodesDraining, Detail: c.draining.String()}
	case c.broken != "":
		return job.Reason{Word: job.ReasonNodesDraining, Detail: c.broken}
	case c.failed != nil:
		return job.Reason{Word: job.ReasonResources, Detail: lease.Clip("ledger: " + c.failed.Error())}
	case len(c.attempts) >= MaxRecords:
		return job.Reason{Word: job.ReasonResources, Detail: fmt.Sprintf("%d attempts are kept, most of them not acknowledged", len(c.attempts))}
	}
	return job.Reason{}
}

func (c *Core) profileChanged(p lease.Profile) {
	if err := c.room.setProfile(p); err != nil {
		c.say(slog.LevelError, "profile of this host is not usable", slog.Any("error", err))
		return
	}
	c.cfg.Profile = p
	c.learnDevices()
	c.touch()
	c.look = true
	c.declineImpossible()
	for _, to := range c.peers {
		c.hello(to)
	}
}

// hold takes resources for the attempt of an offer.
func (c *Core) hold(m lease.Offer, devices []string) error {
	if err := c.room.hold(m.Attempt, m.Need, devices); err != nil {
		return err
	}
	c.use(m.User, m.Need, 1)
	for _, d := range devices {
		c.holders[d]++
	}
	c.touch()
	return nil
}

// give takes back what an attempt holds.
func (c *Core) give(a *attempt) {
	c.room.release(a.rec.Attempt, a.rec.Need, a.rec.Devices)
	c.use(a.rec.User, a.rec.Need, -1)
	for _, d := range a.rec.Devices {
		if c.holders[d]--; c.holders[d] == 0 {
			delete(c.holders, d)
		}
	}
	c.touch()
	c.look = true
}

// touch says that what is free has changed.
func (c *Core) touch() { c.stale, c.changed = true, true }

// freeNow is what is left.
func (c *Core) freeNow() lease.Free {
	if c.stale {
		c.free, c.stale = c.room.free(), false
	}
	return c.free
}
