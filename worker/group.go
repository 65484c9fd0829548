package worker

// Journal groups: the newest owner of each (R2), and the lease with it (R3, R5).

import (
	"log/slog"
	"slices"
	"time"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/lease"
)

// group is what a worker knows about one journal group.
type group struct {
	id      job.Group
	epoch   lease.Epoch // the newest seen
	unsaved bool        // epoch is newer than on disk
	owner   job.Peer    // under that epoch; empty after a restart without attempts of it
	hint    job.Peer    // the owner under an older epoch, from a restart
	sought  job.Peer    // with whom a session is wanted for it
	greeted bool        // events and a renewal were sent in this session of the owner

	// The lease: live until anchor + SessionLease.
	live        bool
	session     lease.Session
	anchor      BootTime   // clock of the newest Renew that was answered
	outstanding []BootTime // clocks of Renews of this session, not answered
	asked       BootTime   // of the newest
	late        []*attempt // starts that wait for a renewal
	next        BootTime   // when the next Renew is due
	timer       *timer     // for next

	running map[job.Attempt]*attempt // started and not ended
	kept    map[job.Attempt]*attempt // all that has events to tell
}

// holds says whether the lease with the group is live, and ends it for good if
// it has run out: no timer is trusted with that (R5).
func (g *group) holds(now Moment) bool {
	if g.live && now.Boot >= g.anchor.Add(SessionLease) {
		g.live, g.session, g.outstanding = false, 0, nil
	}
	return g.live
}

// command admits a command under an epoch, or answers it with Stale (R2). A
// newer epoch is written down; what follows from it waits for that.
func (c *Core) command(now Moment, from job.Peer, id job.Group, epoch lease.Epoch) (*group, bool) {
	g := c.groups[id]
	if g == nil {
		if len(c.groups) >= maxGroups {
			c.say(slog.LevelWarn, "command of a group beyond the bound", slog.String("group", id.String()), slog.String("peer", string(from)))
			return nil, false
		}
		g = newGroup(id)
		c.groups[id] = g
	}
	switch {
	case epoch.Less(g.epoch):
		c.send(from, lease.Stale{Group: id, Epoch: g.epoch, Owner: g.owner})
		return nil, false
	case g.epoch.Less(epoch):
		g.epoch = epoch
		c.own(g, from)
		if !g.unsaved {
			g.unsaved = true
			c.epochs = append(c.epochs, g)
		}
		c.greet(now, g)
	case g.owner == "":
		c.own(g, from)
		c.greet(now, g)
	}
	return g, true
}

func newGroup(id job.Group) *group {
	return &group{id: id, running: map[job.Attempt]*attempt{}, kept: map[job.Attempt]*attempt{}}
}

// owns hears whose word counts for a group.
func (c *Core) owns(now Moment, from job.Peer, m lease.Owns) {
	for _, ge := range m.Groups {
		g, ok := c.command(now, from, ge.Group, ge.Epoch)
		if !ok {
			continue
		}
		if g.owner != from { // an epoch has one owner: the one that came first
			c.say(slog.LevelWarn, "another member claims the epoch of a group's owner", slog.String("group", ge.Group.String()), slog.String("peer", string(from)))
			continue
		}
		c.greet(now, g)
	}
}

// greet tells the owner of a group, once in a session, what it has not
// acknowledged, and asks for renewal.
func (c *Core) greet(now Moment, g *group) {
	if g.greeted || !c.connected(g.owner) {
		return
	}
	g.greeted = true
	list := make([]*attempt, 0, len(g.kept))
	for _, a := range g.kept {
		list = append(list, a)
	}
	slices.SortFunc(list, func(a, b *attempt) int { return compareAttempts(a.rec.Attempt, b.rec.Attempt) })
	for _, a := range list {
		a.told = a.rec.AckedN
		c.tell(a)
	}
	c.renew(now, g)
}

// renew asks the owner of a group to extend the lease. Without a live lease the
// session is drawn anew, so that no answer to an earlier request and no Start of
// an earlier session can count (R5).
func (c *Core) renew(now Moment, g *group) {
	if !c.connected(g.owner) {
		return // greet asks as soon as it is
	}
	pause := c.pace(g)
	if !g.holds(now) {
		g.session = c.draw(g.session)
		g.outstanding = g.outstanding[:0]
		pause = min(pause, retryRenew)
	}
	live := make([]job.Attempt, 0, len(g.running))
	for id := range g.running {
		live = append(live, id)
	}
	slices.SortFunc(live, compareAttempts)
	if n := len(g.outstanding); n == 0 || g.outstanding[n-1] != now.Boot {
		if n == maxOutstanding {
			g.outstanding = slices.Delete(g.outstanding, 0, 1)
		}
		g.outstanding = append(g.outstanding, now.Boot)
	}
	g.asked = now.Boot
	c.renewals = append(c.renewals, lease.Renew{
		Group: g.id, Store: c.cfg.Profile.Store, Clock: int64(now.Boot), Session: g.session, Live: live,
	})
	c.renewIn(now, g, pause)
}

// renewIn sets when the next renewal is asked, a little earlier by chance so
// that the groups do not all ask at once; it replaces what was set before.
func (c *Core) renewIn(now Moment, g *group, after time.Duration) {
	after = time.Duration(float64(after) * (1 - c.chance.Float64()/10))
	g.next = now.Boot.Add(after)
	c.timers.stop(g.timer)
	g.timer = c.timers.set(g.next, func(now Moment) { c.renew(now, g) })
}

// draw gives a session that is neither zero nor the one before.
func (c *Core) draw(before lease.Session) lease.Session {
	for {
		if s := lease.Session(c.chance.Uint64()); s != 0 && s != before {
			return s
		}
	}
}

// renewed takes the owner's answer. It counts only for the session that is
// current now and for a request that is still open; deadlines are anchored at
// the asking (R3).
func (c *Core) renewed(now Moment, from job.Peer, m lease.Renewed) {
	g, ok := c.command(now, from, m.Group, m.Epoch)
	if !ok {
		return
	}
	g.holds(now)
	clock := BootTime(m.Clock)
	i := slices.Index(g.outstanding, clock)
	if m.Session != g.session || i < 0 || now.Boot >= clock.Add(SessionLease) {
		c.say(slog.LevelDebug, "renewal answered too late", slog.String("group", m.Group.String()), slog.String("peer", string(from)))
		return
	}
	g.outstanding = slices.Delete(g.outstanding, 0, i+1)
	if !g.live {
		g.live, g.anchor = true, clock
		c.renewIn(now, g, c.pace(g))
	}
	g.anchor = max(g.anchor, clock)
	c.startLate(now, g)
	for _, v := range m.Verdicts {
		a := g.running[v.Attempt]
		switch {
		case a == nil:
		case !v.Keep:
			c.end(now, a, a.rec.Spec.GraceOr(), "not wanted by its owner any more")
		default:
			c.keep(now, g, a, clock)
		}
	}
}

// pace is how often a live lease of the group is renewed.
func (c *Core) pace(g *group) time.Duration {
	pause := lease.RenewEvery
	for _, a := range g.running {
		if !a.rec.Hold {
			pause = min(pause, a.rec.Lease/3)
		}
	}
	return pause
}

// keep moves the deadline of an attempt whose own lease has not run out.
func (c *Core) keep(now Moment, g *group, a *attempt, clock BootTime) {
	until := clock.Add(a.rec.Lease)
	lapsed := a.deadline != 0 && now.Boot >= a.deadline
	if a.rec.Hold || a.rec.Exit != nil || lapsed || until <= a.deadline {
		return
	}
	a.deadline = until
	switch {
	case !a.launched: // its Start will carry the deadline
	case g.unsaved:
		if c.gated.Extend == nil {
			c.gated.Extend = map[job.Attempt]BootTime{}
		}
		c.gated.Extend[a.rec.Attempt] = until
	default:
		c.extend(a.rec.Attempt, until)
	}
}

func (c *Core) extend(a job.Attempt, until BootTime) {
	if c.out.Extend == nil {
		c.out.Extend = map[job.Attempt]BootTime{}
	}
	c.out.Extend[a] = until
}
