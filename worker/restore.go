package worker

// Loading the ledger after a restart, and the views of a worker for people.

import (
	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker/leaseclock"
)

// Restore loads what an earlier run of the daemon has written. It is called before the first event, which is Adopted.
func (c *Core) Restore(records []contract.Record, claims []contract.Claim) {
	groups := c.leases.claims.groups
	for _, e := range claims {
		g := newGroup(e.Group)
		g.epoch = e.Epoch
		groups[e.Group] = g
		if e.Owner != "" {
			c.leases.claims.bind(leaseclock.Moment{}, g, e.Owner)
		}
	}
	for _, g := range c.cfg.Own {
		c.leases.claims.keepOwn(g, c.cfg.Profile.Peer)
	}
	newest := map[*group]contract.Epoch{}
	for _, rec := range records {
		g := groups[rec.Group]
		if g == nil {
			g = newGroup(rec.Group)
			groups[rec.Group] = g
		}
		if !g.bound && g.epoch.Less(rec.Epoch) { // the worker has acted under this epoch, even if the epoch itself is not on disk
			g.epoch, g.owner = rec.Epoch, ""
		}
		if rec.Epoch == g.epoch && g.owner == "" {
			g.owner = rec.Owner
		}
		if g.lastOwner == "" || newest[g].Less(rec.Epoch) { // the present owner is most likely the same daemon
			g.lastOwner, newest[g] = rec.Owner, rec.Epoch
		}
		c.attempts.restore(g, rec)
	}
	for _, g := range groups {
		c.sessions.update(g)
	}
	c.account.FreeChanged()
}

// Attempts returns the records of all attempts that are reserved, run, or are not acknowledged yet.
func (c *Core) Attempts() []contract.Record {
	var out []contract.Record
	for _, a := range inOrder(c.attempts.by) {
		out = append(out, a.rec)
	}
	return out
}

// OwnerOf returns the owner of a journal group; "" if none is known.
func (c *Core) OwnerOf(g job.Group) job.Peer { return c.leases.claims.ownerOf(g) }

// View is the state of a worker at one moment, for people.
type View struct {
	Profile     contract.Profile
	Free        contract.Free
	Draining    Drain
	Closed      job.Reason          // why the host accepts no tasks, if so
	Queued      int                 // queued offers
	Running     int                 // running attempts
	Holders     map[string][]string // attempts by the UUID of a GPU that they hold
	Quarantined map[string]string   // why GPUs are in quarantine, by UUID
}

// View returns the present state of the worker.
func (c *Core) View() View {
	v := View{
		Profile: c.cfg.Profile, Free: c.account.Free(), Draining: c.drain.now, Closed: c.availability.closed(),
		Queued: c.queue.Size(), Holders: map[string][]string{}, Quarantined: c.health.Quarantined(),
	}
	for _, a := range inOrder(c.attempts.by) {
		if a.ended() {
			continue
		}
		if a.rec.Phase == contract.PhaseStarted {
			v.Running++
		}
		for _, d := range a.rec.Devices {
			v.Holders[d] = append(v.Holders[d], a.rec.Attempt.String())
		}
	}
	return v
}
