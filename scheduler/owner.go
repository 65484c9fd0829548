package scheduler

// How ownership begins and ends: the core acts from the moment its own Lead entry is committed, until it is deposed (R10).

import (
	"maps"
	"slices"
	"time"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
)

// becomeLeader begins the ownership (R10). Attempts of an earlier owner are not started; the hosts are asked about them
// (R8).
func (c *Core) becomeLeader(epoch job.Epoch) {
	c.lead, c.epoch, c.leadAt, c.outgoing = true, epoch, c.now, 0
	c.forgetUnconfirmed()
	for _, j := range c.entries.table.Jobs() {
		c.records.adopt(c.entries.byID[j.ID])
	}
	for _, p := range slices.Sorted(maps.Keys(c.contact.sessions)) {
		c.send(p, c.owns())
	}
	c.pending.parents.takeOver()
	c.contact.seekAll()
	c.requests.takeEarly()
}

// forgetUnconfirmed drops whatever waits for the journal or for a quorum round of an epoch that is over.
func (c *Core) forgetUnconfirmed() {
	c.reports.lostLead()
	c.renewals.lostLead()
	c.history.lostLead()
}

// deposed ends the ownership: it takes back all offers, answers all requests, and drops what only an owner needs. The
// jobs stay, and the entries of the new owner keep them up to date.
func (c *Core) deposed(epoch job.Epoch) {
	if !c.lead || epoch != c.epoch {
		return
	}
	c.lead, c.outgoing = false, 0
	c.plan.allotments.reset()
	c.dispatches.lostLead()
	c.forgetUnconfirmed()
	c.deaths.lostLead()
	c.placement.leftOut.lostLead()
	c.requests.lostLead()
	c.records.anew.lostLead()
	c.search.lostLead()
	c.pending.parents.lostLead()
}

const (
	// raiseFirst is the least time between two raises of the epoch because a host knows a higher one. The time doubles
	// with each raise, up to raiseMost: a host can claim any epoch, and after each raise all hosts are asked again about
	// what runs.
	raiseFirst = time.Minute
	raiseMost  = 24 * time.Hour
)

// stale handles a host's answer that it knows a newer epoch of the group. If that epoch names this daemon as the owner,
// a copy of this daemon has led: one with the same key and another log. See docs/adr, ADR 166.
func stale(c *Core, w *worker, m contract.Stale) {
	if m.Group != c.cfg.Group || !c.epoch.Less(m.Epoch) {
		return
	}
	if m.Owner != c.cfg.Self || m.Epoch.Generation != c.epoch.Generation {
		c.notify(Notice{Kind: NewerOwner, Peer: w.Peer, Node: w.Name(), Detail: m.Epoch.String()})
		return
	}
	if !c.lead || c.now.Before(c.raises.next) {
		return
	}
	c.raises.pause = min(max(2*c.raises.pause, raiseFirst), raiseMost)
	c.raises.next = c.now.Add(c.raises.pause)
	c.fx.Raise = m.Epoch
	c.notify(Notice{Kind: CopyHasLed, Peer: w.Peer, Node: w.Name(), Detail: m.Epoch.String()})
}
