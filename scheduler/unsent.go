package scheduler

// Messages to hosts that were not sent: those that are out of bounds, and Starts that a session keeps back.
// See docs/adr, ADR 165.

import (
	"errors"
	"fmt"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler/place"
	"github.com/musterhq/muster/scheduler/step"
)

// notSent handles a message that could not be sent because it is out of bounds, or is kept back. The task waits. If the
// message is out of bounds, a notice reports the defect.
func (ds *dispatches) notSent(e step.NotSent) {
	if held, is := errors.AsType[*step.HeldBackError](e.Err); is {
		heldBack(ds, e, held)
		return
	}
	d := step.Notice{Kind: step.MessageDefect, Peer: e.To, Node: ds.hosts.nameOf(e.To), Detail: e.Err.Error()}
	switch m := e.Msg.(type) {
	case contract.Offer:
		d.Attempt = m.Attempt
		if o := ds.offers.byID[m.ID]; o != nil && o.worker.Peer == e.To {
			t := o.dispatch.task
			if o.seat != nil { // its daemon may not know gangs
				t.shape.refusedBy(o.worker.Host, d.Detail)
				ds.offerGone(o, place.Avoidance{})
				break
			}
			unsendable(ds.Turn, t)
			ds.abandon(o.dispatch)
		}
	case contract.Start:
		d.Attempt = m.Attempt
		if e := ds.entries.byID[m.Attempt.Job]; e != nil && e.job.Has(m.Attempt.Task) {
			if t := e.task(m.Attempt.Task); t.durable().Assigned && t.attempt() == m.Attempt {
				unsendable(ds.Turn, t)
				if w := ds.hosts.workers[d.Peer]; w != nil && t.shape != nil {
					t.shape.refusedBy(w.Host, d.Detail) // that session would carry no other Start of this shape either
				}
				ds.attempts.giveUp(t, job.ProofDeclined, "its start could not be sent")
			}
		}
	default: // a timer sends it again if it is needed
	}
	ds.Notify(d)
}

// heldBack takes back an attempt whose Start is kept back: its host has received nothing of it. All tasks of the job
// avoid the host meanwhile, because they have the same job file.
func heldBack(ds *dispatches, n step.NotSent, held *step.HeldBackError) {
	m, isStart := n.Msg.(contract.Start)
	if !isStart {
		return // nothing else is kept back
	}
	e := ds.entries.byID[m.Attempt.Job]
	if e == nil || !e.job.Has(m.Attempt.Task) {
		return
	}
	t := e.task(m.Attempt.Task)
	if !t.durable().Assigned || t.attempt() != m.Attempt {
		return
	}
	why := fmt.Sprintf("the session with %s broke off %d times when its start was sent", ds.hosts.nameOf(n.To), held.Times)
	if held.Times == 0 {
		why = ds.hosts.nameOf(n.To) + " gets the start of another job first, with which its session broke off"
	}
	t.leader().pause.why, e.avoidedWhy = why, why
	e.avoidedHosts.Add(ds.Now, place.Avoidance{Peer: n.To, Until: ds.Now.Add(held.Wait), Hard: true})
	ds.attempts.giveUp(t, job.ProofDeclined, why)
	ds.Notify(step.Notice{Kind: step.StartHeldBack, Attempt: m.Attempt, Peer: n.To, Node: ds.hosts.nameOf(n.To), Detail: fmt.Sprintf("%s: tried again in %s", why, job.Duration(held.Wait))})
}
