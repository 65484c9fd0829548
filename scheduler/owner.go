package scheduler

// Ownership begins and ends: the core acts from its Lead entry on, and no longer when another daemon owns the jobs (R10).

import (
	"maps"
	"slices"

	"github.com/musterhq/muster/job"
)

// becomeLeader begins ownership: from here on the core acts (R10). It starts nothing that an older owner has started
// (R8), but asks the hosts about it.
func (c *Core) becomeLeader(epoch job.Epoch) {
	c.lead, c.epoch, c.leadAt, c.outgoing = true, epoch, c.now, 0
	c.forgetUnconfirmed()
	for _, j := range c.entries.table.Jobs() {
		c.records.adopt(c.entries.byID[j.ID])
	}
	for _, p := range slices.Sorted(maps.Keys(c.contact.sessions)) {
		c.send(p, c.owns())
	}
	c.contact.seekAll()
	c.requests.takeEarly()
}

// forgetUnconfirmed drops what waits for the journal or for a quorum round under an epoch that is over.
func (c *Core) forgetUnconfirmed() {
	c.reports.lostLead()
	c.renewals.lostLead()
	c.history.lostLead()
}

// deposed takes back all offers, answers all requests, and forgets what only an owner does. The jobs stay: entries that
// the new owner writes keep them up to date.
func (c *Core) deposed(epoch job.Epoch) {
	if !c.lead || epoch != c.epoch {
		return
	}
	c.lead, c.outgoing = false, 0
	c.dispatches.lostLead()
	c.forgetUnconfirmed()
	c.deaths.lostLead()
	c.requests.lostLead()
	c.search.lostLead()
}
