package scheduler

// How ownership begins and ends: the core acts from its Lead entry on, until it is deposed (R10).

import (
	"maps"
	"slices"

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
	c.dispatches.lostLead()
	c.forgetUnconfirmed()
	c.deaths.lostLead()
	c.placement.leftOut.lostLead()
	c.requests.lostLead()
	c.records.anew.lostLead()
	c.search.lostLead()
	c.pending.parents.lostLead()
}
