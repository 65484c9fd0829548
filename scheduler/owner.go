package scheduler

// How ownership begins and ends: the core acts from the moment its own Lead entry is committed, until it is deposed (R10).

import (
	"maps"
	"slices"
	"time"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler/step"
)

// becomeLeader begins the ownership (R10). Attempts of an earlier owner are not started; the hosts are asked about them
// (R8).
func (c *Core) becomeLeader(epoch job.Epoch) {
	c.turn.Lead, c.turn.Epoch, c.turn.LeadAt, c.turn.Outgoing = true, epoch, c.turn.Now, 0
	c.forgetUnconfirmed()
	for _, j := range c.entries.table.Jobs() {
		c.records.adopt(c.entries.byID[j.ID])
	}
	for _, p := range slices.Sorted(maps.Keys(c.contact.sessions)) {
		c.turn.Send(p, c.turn.Owns())
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
	if !c.turn.Lead || epoch != c.turn.Epoch {
		return
	}
	c.turn.Lead, c.turn.Outgoing = false, 0
	c.plan.allotments.reset()
	c.dispatches.lostLead()
	c.forgetUnconfirmed()
	c.deaths.lostLead()
	c.placement.leftOut.lostLead()
	c.requests.lostLead()
	c.records.reset.lostLead()
	c.search.LostLead()
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
	if m.Group != c.turn.Config.Group || !c.turn.Epoch.Less(m.Epoch) {
		return
	}
	if m.Owner != c.turn.Config.Self || m.Epoch.Generation != c.turn.Epoch.Generation {
		c.turn.Notify(step.Notice{Kind: step.NewerOwner, Peer: w.Peer, Node: w.Name(), Detail: m.Epoch.String()})
		return
	}
	if !c.turn.Lead || c.turn.Now.Before(c.turn.Raises.Next) {
		return
	}
	c.turn.Raises.Pause = min(max(2*c.turn.Raises.Pause, raiseFirst), raiseMost)
	c.turn.Raises.Next = c.turn.Now.Add(c.turn.Raises.Pause)
	c.turn.Effects.Raise = m.Epoch
	c.turn.Notify(step.Notice{Kind: step.CopyHasLed, Peer: w.Peer, Node: w.Name(), Detail: m.Epoch.String()})
}

// adopt prepares a job for a new ownership: the hosts are asked about its attempts (R8).
func (rc *records) adopt(e *entry) {
	for _, t := range slices.Clone(e.tasks) {
		rc.dispatches.takeBack(t)
		t.unpropose(rc.Turn)
		rc.attempts.stopReport(t)
		t.setHeard(0)
		if !t.queued && !t.pause.until.After(rc.Now) {
			t.backOff(rc.Turn)
		}
		rc.settle(t)
		if t.durable().Assigned {
			rc.attempts.watch(t, rc.Now.Add(reportWait))
		}
	}
	rc.pending.followAll(e)
}
