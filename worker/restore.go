package worker

// Restart and views: what the ledger on disk says, and what people see of a worker.

import (
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/lease"
)

// Restore takes up what an earlier life of the daemon has written. It comes before the first event; Adopted follows.
func (c *Core) Restore(records []lease.Record, epochs []lease.GroupEpoch) {
	groups := c.leases.groups
	for _, e := range epochs {
		g := newGroup(e.Group)
		g.epoch = e.Epoch
		groups[e.Group] = g
	}
	newest := map[*group]lease.Epoch{}
	for _, rec := range records {
		g := groups[rec.Group]
		if g == nil {
			g = newGroup(rec.Group)
			groups[rec.Group] = g
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
		c.attempts.restore(g, rec)
	}
	for _, g := range groups {
		c.sessions.follow(g)
	}
	c.account.touch()
}

// Attempts are the records of all attempts that are reserved, run, or are not yet acknowledged.
func (c *Core) Attempts() []lease.Record {
	var out []lease.Record
	for _, a := range inOrder(c.attempts.by) {
		out = append(out, a.rec)
	}
	return out
}

// View is a worker at one moment, for people.
type View struct {
	Profile     lease.Profile
	Free        lease.Free
	Draining    Drain
	Closed      job.Reason          // why nothing is given away, if so
	Queued      int                 // offers that wait
	Running     int                 // attempts
	Holders     map[string][]string // GPU UUID to attempts
	Quarantined map[string]string   // GPU UUID to why it is given to nobody
}

// View shows the worker as it is now.
func (c *Core) View() View {
	v := View{
		Profile: c.cfg.Profile, Free: c.account.free(), Draining: c.drain.now, Closed: c.gate.closed(),
		Queued: c.queue.waiting, Holders: map[string][]string{}, Quarantined: c.health.quarantined(),
	}
	for _, a := range inOrder(c.attempts.by) {
		if a.ended() {
			continue
		}
		if a.rec.Phase == lease.PhaseStarted {
			v.Running++
		}
		for _, d := range a.rec.Devices {
			v.Holders[d] = append(v.Holders[d], a.rec.Attempt.String())
		}
	}
	return v
}
