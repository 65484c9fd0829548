package worker

// Restart: what the ledger on disk says, and what is said about it to others.

import (
	"log/slog"
	"slices"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/lease"
)

// Restore takes up what an earlier life of the daemon has written. It comes
// before the first event; Adopted follows.
func (c *Core) Restore(records []lease.Record, epochs []lease.GroupEpoch) {
	for _, e := range epochs {
		g := newGroup(e.Group)
		g.epoch = e.Epoch
		c.groups[e.Group] = g
	}
	newest := map[*group]lease.Epoch{}
	for _, rec := range records {
		g := c.groups[rec.Group]
		if g == nil {
			g = newGroup(rec.Group)
			c.groups[rec.Group] = g
		}
		if g.epoch.Less(rec.Epoch) { // a lost write cannot lower what was acted on
			g.epoch, g.owner = rec.Epoch, ""
		}
		if rec.Epoch == g.epoch && g.owner == "" {
			g.owner = rec.Owner
		}
		if g.hint == "" || newest[g].Less(rec.Epoch) { // most likely the same daemon, started anew
			g.hint, newest[g] = rec.Owner, rec.Epoch
		}
		c.restore(g, rec)
	}
	for _, g := range c.groups {
		c.seek(g)
	}
	c.touch()
}

// restore takes up one record.
func (c *Core) restore(g *group, rec lease.Record) {
	a := &attempt{rec: rec, group: g, saved: true, launched: true}
	switch rec.Phase {
	case lease.PhaseReserved: // nobody can start it any more: sessions are new
		c.gone[rec.Attempt] = struct{}{}
		return
	case lease.PhaseStarted:
		g.running[rec.Attempt] = a
		if err := c.room.adopt(rec); err != nil {
			c.say(slog.LevelError, "devices of a running attempt cannot be accounted for",
				slog.String("attempt", rec.Attempt.String()), slog.Any("error", err))
		}
		c.use(rec.User, rec.Need, 1)
		for _, d := range rec.Devices {
			c.holders[d]++
		}
	case lease.PhaseDone, lease.PhaseRefused:
	}
	g.kept[rec.Attempt] = a
	c.attempts[rec.Attempt] = a
}

// byName are all attempts in order.
func (c *Core) byName() []*attempt {
	out := make([]*attempt, 0, len(c.attempts))
	for _, a := range c.attempts {
		out = append(out, a)
	}
	slices.SortFunc(out, func(a, b *attempt) int { return compareAttempts(a.rec.Attempt, b.rec.Attempt) })
	return out
}

// Attempts are the records of all attempts that are reserved, run, or are not
// yet acknowledged.
func (c *Core) Attempts() []lease.Record {
	var out []lease.Record
	for _, a := range c.byName() {
		out = append(out, a.rec)
	}
	return out
}

// View is a worker at one moment, for people.
type View struct {
	Profile  lease.Profile
	Free     lease.Free
	Draining Drain
	Closed   job.Reason          // why nothing is given away, if so
	Queued   int                 // offers that wait
	Running  int                 // attempts
	Holders  map[string][]string // GPU UUID to attempts
	Aside    map[string]string   // GPU UUID to why it is given to nobody
}

// View shows the worker as it is now.
func (c *Core) View() View {
	v := View{
		Profile: c.cfg.Profile, Free: c.freeNow(), Draining: c.draining, Closed: c.closed(),
		Queued: c.queued, Holders: map[string][]string{}, Aside: map[string]string{},
	}
	for _, a := range c.byName() {
		if a.rec.Phase == lease.PhaseStarted {
			v.Running++
		}
		if a.rec.Phase == lease.PhaseStarted || a.rec.Phase == lease.PhaseReserved {
			for _, d := range a.rec.Devices {
				v.Holders[d] = append(v.Holders[d], a.rec.Attempt.String())
			}
		}
	}
	for uuid := range c.devices {
		if why := c.room.gpus.Quarantined(uuid); why != "" {
			v.Aside[uuid] = why
		}
	}
	return v
}
