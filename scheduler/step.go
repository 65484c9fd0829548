package scheduler

// A step of the core: each event goes to the part that it concerns. Then the waiting tasks are placed, and the effects
// are collected.

import (
	"fmt"
	"slices"
	"time"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/lease"
)

// Step takes the time and the events that have happened, in order, and returns what is to be done. A Step without
// events does what is due.
func (c *Core) Step(now time.Time, events ...Event) Effects {
	if now.After(c.now) {
		c.now = now
	}
	c.steps++
	c.runTimers()
	for _, e := range events {
		c.handle(e)
	}
	c.tellStarts()
	c.pending.parents.tell()
	c.plan.plan()
	c.search.announceWants()
	c.history.retire()
	c.history.takeRows()
	c.views.waiting = waitText{}
	for _, id := range c.fx.Changed {
		if e := c.entries.byID[id]; e != nil {
			e.showing = false
		}
	}
	fx := c.fx
	c.fx = Effects{}
	return fx
}

// Wake is when the next Step is due if nothing happens before. It is zero if no Step is due.
func (c *Core) Wake() time.Time {
	if c.plan.again {
		return c.now
	}
	next, _ := c.timers.Next()
	return next
}

// Applied is the index of the last entry that the rows in Effects reflect.
func (c *Core) Applied() uint64 { return c.entries.applied }

func (c *Core) handle(e Event) {
	switch e := e.(type) {
	case Submit:
		c.requests.take(e.Token, func() { c.requests.submit(e) })
	case Cancel:
		c.requests.take(e.Token, func() { c.requests.cancel(e) })
	case Hold:
		c.requests.take(e.Token, func() { c.requests.hold(e) })
	case DeclareDead:
		c.requests.take(e.Token, func() { c.deaths.declare(e) })
	case Committed:
		c.committed(e.Committed)
	case Deposed:
		c.deposed(e.Epoch)
	case NotProposed:
		for _, r := range e.Records {
			c.notProposed(r, e.Err)
		}
	case SessionUp:
		c.sessionUp(e.Peer)
	case SessionDown:
		c.sessionDown(e.Peer)
	case FromWorker:
		c.fromWorker(e.Peer, e.Msg)
	case NotSent:
		c.dispatches.notSent(e)
	case Found:
		c.requests.found(c.contact.found(e.Peers) || e.Cut)
	case ReadDone:
		c.renewals.readDone(e)
	case ParentSeen:
		c.pending.parents.seen(e.Progress)
	case ParentsSilent:
		c.pending.parents.silent(e.Jobs, e.Detail)
	case RowsKept:
		c.history.rowsKept(e.Applied)
	case Tick:
	}
}

// tellStarts records which jobs have started that others wait for: no other record tells that.
func (c *Core) tellStarts() {
	ps := c.pending.parents
	for _, id := range slices.Concat(ps.starts, c.fx.Changed) {
		e := c.entries.byID[id]
		if e == nil || ps.under[id] > 0 || !c.lead || !c.entries.table.Parents.Awaited(id).Start {
			continue
		}
		if since, started := startedSince(c, e); started {
			ps.learn(job.ParentRecord{Parent: id, State: c.views.stateOf(e), Started: true, Since: since, At: c.now})
		}
	}
	ps.starts = nil
}

func (c *Core) fromWorker(p job.Peer, msg lease.ToScheduler) {
	if h, ok := msg.(lease.Hello); ok {
		c.hello(p, h)
		return
	}
	w := c.hosts.workers[p]
	if w == nil || !w.Up {
		return // the session has ended; what the message says is asked for in the next session
	}
	w.Heard(c.now)
	switch m := msg.(type) {
	case lease.Availability:
		c.hosts.availability(w, m)
	case lease.Commit:
		c.dispatches.commit(w, m)
	case lease.Decline:
		c.dispatches.decline(w, m)
	case lease.Event:
		c.reports.event(w, m)
	case lease.Renew:
		c.renewals.renew(w, m)
	case lease.Stale:
		if m.Group == c.cfg.Group && c.epoch.Less(m.Epoch) {
			c.notify(Notice{Kind: NewerOwner, Peer: p, Node: w.Name(), Detail: m.Epoch.String()})
		}
	}
}

// notProposed undoes what waits for a record that the journal did not take.
func (c *Core) notProposed(r job.Record, err error) {
	if err == nil {
		err = errNotTaken
	}
	c.outgoing = max(c.outgoing-1, 0)
	switch r := r.(type) {
	case job.SubmitRecord:
		if s := c.requests.submits[r.Job]; s != nil {
			c.requests.drop(r.Job, s)
			for _, tok := range s.tokens {
				c.requests.answer(tok, nil, fmt.Errorf("scheduler: accept job: %w", err))
			}
		}
	case job.AssignRecord:
		c.dispatches.notAssigned(r.Attempt)
	case job.CancelRecord:
		c.requests.refused(toCancel, r.Job, err)
	case job.HoldRecord:
		c.requests.refused(kindOf(r), r.Job, err)
	case job.PurgeRecord:
		delete(c.history.purging, r.Job.Drawn())
	case job.ParentRecord:
		c.pending.parents.refused(r.Parent)
	case job.UnassignRecord, job.ResultRecord: // timers propose them again
	}
}

func (c *Core) committed(m job.Committed) {
	if m.Index > c.entries.applied {
		c.entries.applied = m.Index
		for i, r := range m.Records {
			c.records.apply(r, seqOf(m.Index, i), m.Epoch)
		}
		if c.lead {
			c.outgoing = max(c.outgoing-len(m.Records), 0)
		}
	}
	if m.Lead {
		c.becomeLeader(m.Epoch)
	}
}
