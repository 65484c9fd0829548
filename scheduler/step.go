package scheduler

// A step of the core: each event goes to the part that it concerns. Then the waiting tasks are placed, and the effects
// are collected.

import (
	"fmt"
	"slices"
	"time"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler/step"
)

// standStill is how late a step may be before this daemon counts as having stood still, because it was stopped or had no
// CPU. Messages that its hosts sent meanwhile may not have been read yet.
const standStill = 10 * time.Second

// Step takes the time and the events that have happened, in order, and returns what is to be done. A Step without
// events does what is due.
func (c *Core) Step(now time.Time, events ...step.Event) step.Effects {
	due := c.Wake()
	if now.After(c.turn.Now) {
		c.turn.Now = now
	}
	c.turn.Steps++
	if c.turn.Lead && !due.IsZero() && c.turn.Now.Sub(due) >= standStill {
		c.turn.LeadAt = c.turn.Now // like a new owner, it first has to hear from its hosts
	}
	c.turn.RunTimers()
	for _, e := range events {
		c.handle(e)
	}
	tellStarts(c)
	c.pending.parents.tell()
	c.pending.rerank()
	c.plan.plan()
	c.search.AnnounceWants()
	c.history.retire()
	c.history.takeRows()
	c.views.waiting = waitText{}
	for _, id := range c.turn.Effects.Changed {
		if e := c.entries.byID[id]; e != nil {
			e.showing = false
		}
	}
	fx := c.turn.Effects
	c.turn.Effects = step.Effects{}
	return fx
}

// Wake returns when the next Step is due if nothing happens before. It is zero if no Step is due.
func (c *Core) Wake() time.Time {
	if c.plan.again {
		return c.turn.Now
	}
	next, _ := c.turn.Timers.Next()
	return next
}

// Applied returns the index of the last entry that the rows in Effects reflect.
func (c *Core) Applied() uint64 { return c.entries.applied }

func (c *Core) handle(e step.Event) {
	switch e := e.(type) {
	case step.Submit, step.Cancel, step.Hold, step.Requeue, step.Forget, step.Schedule, step.DeclareDead:
		takeRequest(c, e)
	case step.Unarchived:
		c.history.unarchive(e)
	case step.Committed:
		c.committed(e.Committed)
	case step.Deposed:
		c.deposed(e.Epoch)
	case step.NotProposed:
		for _, r := range e.Records {
			c.notProposed(r, e.Err)
		}
	case step.SessionUp:
		c.sessionUp(e.Peer, e.Path)
	case step.Measured:
		measured(c, e.Peer, e.RoundTrip)
	case step.SessionDown:
		c.sessionDown(e.Peer)
	case step.Revoked:
		revoked(c, e.Peer)
	case step.FromWorker:
		c.fromWorker(e.Peer, e.Msg)
	case step.NotSent:
		c.dispatches.notSent(e)
	case step.Found:
		c.requests.found(c.contact.found(e.Peers) || e.Cut)
	case step.ReadDone:
		c.renewals.readDone(e)
	case step.ParentSeen:
		c.pending.parents.seen(e.Progress)
	case step.AllotmentsHeard:
		c.plan.allotments.answered(e)
	case step.ParentsSilent:
		c.pending.parents.silent(e.Jobs, e.Detail)
	case step.FileRead:
		c.dispatches.files.take(e)
	case step.RowsKept:
		c.history.rowsKept(e.Applied)
	case step.Tick:
	}
}

// takeRequest takes a request, which is answered later.
func takeRequest(c *Core, e step.Event) {
	switch e := e.(type) {
	case step.Submit:
		c.requests.take(e.Token, func() { c.requests.submit(e) })
	case step.Cancel:
		c.requests.take(e.Token, func() { c.requests.cancel(e) })
	case step.Hold:
		c.requests.take(e.Token, func() { c.requests.hold(e) })
	case step.Requeue:
		c.requests.take(e.Token, func() { c.requests.requeue(e) })
	case step.Forget:
		c.requests.take(e.Token, func() { forgetJob(c.requests, e) })
	case step.Schedule:
		c.requests.take(e.Token, func() { c.records.reset.ask(e) })
	case step.DeclareDead:
		c.requests.take(e.Token, func() { c.deaths.declare(e) })
	}
}

// tellStarts proposes records of the jobs that have started and whose start other jobs wait for: no other record tells
// that.
func tellStarts(c *Core) {
	ps := c.pending.parents
	for _, id := range slices.Concat(ps.starts, c.turn.Effects.Changed) {
		e := c.entries.byID[id]
		if e == nil || ps.under[id] > 0 || !c.turn.Lead || !c.entries.table.Parents.Awaited(id).Start {
			continue
		}
		if since, started := c.View().startedSince(e); started {
			ps.learn(job.ParentRecord{Parent: id, State: c.views.stateOf(e), Started: true, Since: since, At: c.turn.Now})
		}
	}
	ps.starts = nil
}

func (c *Core) fromWorker(p job.Peer, msg contract.ToScheduler) {
	if h, ok := msg.(contract.Hello); ok {
		c.hello(p, h)
		return
	}
	w := c.hosts.workers[p]
	if w == nil || !w.Up {
		return // the session has ended; what the message says is asked for in the next session
	}
	w.Heard(c.turn.Now)
	preemptible := w.Free.Preemptible
	defer func() {
		if !slices.Equal(preemptible, w.Free.Preemptible) { // a Decline reports them, too
			c.dispatches.yielding(w)
		}
	}()
	switch m := msg.(type) {
	case contract.Availability:
		c.hosts.availability(w, m)
		c.offers.expect(w, m.Forecasts)
		c.pending.shares.Hear(&w.Profile, m.Usage)
	case contract.Commit:
		if o := c.offers.byID[m.Offer]; o != nil && o.worker == w && o.seat != nil {
			c.plan.gangs.seats.commit(w, o, m)
		} else {
			c.dispatches.commit(w, m)
		}
	case contract.Decline:
		if o := c.offers.byID[m.Offer]; o != nil && o.worker == w && o.seat != nil {
			c.plan.gangs.seats.decline(w, o, m)
		} else {
			c.dispatches.decline(w, m)
		}
	case contract.Event:
		c.reports.event(w, m)
	case contract.Renew:
		c.renewals.renew(w, m)
	case contract.Stale:
		stale(c, w, m)
	}
}

// notProposed undoes what waits for a record that the journal did not take.
func (c *Core) notProposed(r job.Record, err error) {
	if err == nil {
		err = errNotTaken
	}
	c.turn.Outgoing = max(c.turn.Outgoing-1, 0)
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
	case job.AssignGangRecord:
		c.plan.gangs.starts.notAssigned(r.Attempt)
	case job.CancelRecord:
		c.requests.refused(toCancel, r.Job, err)
	case job.HoldRecord:
		c.requests.refused(holdKind(r.Release), r.Job, err)
	case job.RequeueRecord:
		c.requests.refused(toRequeue, r.Job, err)
	case job.PurgeRecord:
		delete(c.history.purging, r.Job.Drawn())
		answerAll(c.requests, toForget, r.Job, err)
	case job.ParentRecord:
		c.pending.parents.refused(r.Parent)
	case job.UnassignRecord, job.UnassignGangRecord, job.ResultRecord: // timers propose them again
	}
}

func (c *Core) committed(m job.Committed) {
	if m.Index > c.entries.applied {
		c.entries.applied = m.Index
		for i, r := range m.Records {
			c.records.apply(r, seqOf(m.Index, i), m.Epoch)
		}
		if c.turn.Lead {
			c.turn.Outgoing = max(c.turn.Outgoing-len(m.Records), 0)
		}
	}
	if m.Lead {
		c.becomeLeader(m.Epoch)
	}
}

// AddRows adds an Unarchived event before each Committed event that may change archived jobs. read returns the rows of a
// job. A caller that gives Committed events to the core must call AddRows with the events of each step.
// See docs/adr, ADR 84.
func AddRows(c *Core, events []step.Event, read func(job.ID) ([]job.Row, error)) ([]step.Event, error) {
	var out []step.Event
	for i, e := range events {
		if m, ok := e.(step.Committed); ok {
			for _, id := range needsRows(c, m.Committed) {
				rows, err := read(id)
				if err != nil {
					return nil, fmt.Errorf("scheduler: read job %s: %w", id, err)
				}
				if out == nil {
					out = slices.Clone(events[:i])
				}
				out = append(out, step.Unarchived{Job: id, Rows: rows})
			}
		}
		if out != nil {
			out = append(out, e)
		}
	}
	if out == nil {
		return events, nil
	}
	return out, nil
}

// needsRows returns the archived jobs that an entry may change. The rows of an archived job do not change, so a replay
// finds the same.
func needsRows(c *Core, m job.Committed) (ids []job.ID) {
	if m.Index <= c.entries.applied {
		return nil
	}
	for _, r := range m.Records {
		if r, ok := r.(job.RequeueRecord); ok {
			if _, archived := c.entries.table.Archived(r.Job); archived && !slices.Contains(ids, r.Job) {
				ids = append(ids, r.Job)
			}
		}
	}
	return ids
}
