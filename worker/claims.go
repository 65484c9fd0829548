package worker

// Claims: which daemon owns each journal group. Only its commands count for the group. See docs/adr, ADR 114 and 157.

import (
	"log/slog"
	"maps"
	"slices"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker/admission"
	"github.com/musterhq/muster/worker/leaseclock"
	"github.com/musterhq/muster/worker/step"
)

// claims holds the journal groups that have tasks here or have offered some, and their owners.
type claims struct {
	turn     *step.Turn
	ledger   *ledger
	sessions *sessions
	groups   map[job.Group]*group
	by       map[job.Peer][]*group // the groups that are bound to an owner, by owner; at most maxGroupsOf each
	ignored  map[job.Peer]uint64   // how many commands of a scheduler were ignored in its session
	sweeping bool                  // a timer for the next sweep is set
}

func newClaims(t *step.Turn, l *ledger, s *sessions) *claims {
	return &claims{turn: t, ledger: l, sessions: s, groups: map[job.Group]*group{}, by: map[job.Peer][]*group{}, ignored: map[job.Peer]uint64{}}
}

// take returns the group of a command if its sender owns it, else nil. A sender that proves that it has founded the group
// owns it, whatever was known before. Then the epoch is that of the claim, and isNew is true.
func (c *claims) take(now leaseclock.Moment, from job.Peer, m contract.GroupEpoch) (g *group, isNew bool) {
	g = c.groups[m.Group]
	switch {
	case g != nil && g.bound && g.owner == from:
		g.used = now.Boot
		return g, false
	case !m.Founding.Proves(from, m.Group):
		c.ignore(from, m.Group, "it does not prove that it has founded the group")
		return nil, false
	}
	if why := c.noRoom(now, from, g == nil); why != "" {
		c.ignore(from, m.Group, why)
		return nil, false
	}
	if g == nil {
		g = newGroup(m.Group)
		c.groups[m.Group] = g
	}
	if g.epoch = m.Epoch; g.owner != from {
		g.session = session{} // a lease with the earlier owner is not one with the new owner
	}
	c.bind(now, g, from)
	c.sweepLater(now)
	c.ledger.claim(g)
	return g, true
}

// bind makes a daemon the only one whose commands count for the group.
func (c *claims) bind(now leaseclock.Moment, g *group, owner job.Peer) {
	c.unbind(g)
	g.bound, g.used = true, now.Boot
	c.by[owner] = append(c.by[owner], g)
	c.sessions.setOwner(g, owner)
}

// keepOwn binds a group of this daemon's own schedulers, before any other daemon can claim it.
func (c *claims) keepOwn(id job.Group, self job.Peer) {
	g := c.groups[id]
	if g != nil && g.bound && g.owner == self {
		return
	}
	if g == nil {
		g = newGroup(id)
		c.groups[id] = g
	}
	g.epoch = contract.Epoch{} // the epoch that an earlier version has on disk may be that of any daemon
	c.bind(leaseclock.Moment{}, g, self)
}

// begin starts the sweeps after a restart. Every group counts as used now.
func (c *claims) begin(now leaseclock.Moment) {
	for _, g := range c.groups {
		g.used = now.Boot
	}
	c.sweepLater(now)
}

func (c *claims) unbind(g *group) {
	if !g.bound {
		return
	}
	g.bound = false
	c.by[g.owner] = slices.DeleteFunc(c.by[g.owner], func(x *group) bool { return x == g })
	if len(c.by[g.owner]) == 0 {
		delete(c.by, g.owner)
	}
}

// noRoom returns why no further group can be bound to an owner, or "" if one can. It may drop another group of the same
// owner for that.
func (c *claims) noRoom(now leaseclock.Moment, owner job.Peer, isNew bool) string {
	theirs := c.by[owner]
	if len(theirs) >= maxGroupsOf {
		i := slices.IndexFunc(theirs, func(g *group) bool { return len(g.kept) == 0 && now.Boot.Sub(g.used) >= groupRests })
		if i < 0 {
			return "it has claimed too many groups"
		}
		c.drop(theirs[i])
	}
	if isNew && len(c.groups) >= maxGroups {
		return "too many groups are known"
	}
	return ""
}

// drop forgets a group, also on disk. No attempt and no offer of it may be left.
func (c *claims) drop(g *group) {
	c.unbind(g)
	delete(c.groups, g.id)
	c.turn.Timers.Stop(g.timer)
	g.epoch = contract.Epoch{}
	c.ledger.claim(g)
}

// of returns the group of an offer. It is known as long as the offer is: see groupRests.
func (c *claims) of(o *admission.Offer) *group { return c.groups[o.Msg.Group] }

// ownerOf returns the owner of a group; "" if none is known.
func (c *claims) ownerOf(id job.Group) job.Peer {
	if g := c.groups[id]; g != nil {
		return g.owner
	}
	return ""
}

// forget forgets the epoch of a group, as an operator says. Its owner and its attempts stay.
func (c *claims) forget(id job.Group) {
	g := c.groups[id]
	if g == nil {
		return
	}
	c.turn.Log(slog.LevelInfo, "claim forgotten", slog.String("group", id.String()), slog.String("owner", string(g.owner)))
	g.epoch = contract.Epoch{}
	c.ledger.claim(g)
}

// sweepLater sets the timer of the next sweep.
func (c *claims) sweepLater(now leaseclock.Moment) {
	if c.sweeping || len(c.groups) == 0 {
		return
	}
	c.sweeping = true
	c.turn.Timers.Set(now.Boot.Add(sweepGroups), c.sweep)
}

// sweep drops the groups that nobody has used for groupExpires, if no attempt of them is left here and there is no session
// with their owner.
func (c *claims) sweep(now leaseclock.Moment) {
	c.sweeping = false
	for _, id := range slices.Sorted(maps.Keys(c.groups)) {
		g := c.groups[id]
		if len(g.kept) == 0 && now.Boot.Sub(g.used) >= groupExpires && !c.sessions.connected(g.owner) {
			c.drop(g)
		}
	}
	c.sweepLater(now)
}

// ignore counts an ignored command. It logs the first one of a session, the tenth, the hundredth, and so on.
func (c *claims) ignore(from job.Peer, id job.Group, why string) {
	c.ignored[from]++
	n := c.ignored[from]
	for n%10 == 0 {
		n /= 10
	}
	if n == 1 {
		c.turn.Log(slog.LevelWarn, "command ignored: its sender does not own the group", slog.String("group", id.String()),
			slog.String("peer", string(from)), slog.String("reason", why), slog.Uint64("times", c.ignored[from]))
	}
}
