package scheduler

// Messages that no session would carry: a defect of this daemon, told loudly. The
// host is not to blame, and its task waits before the next try.

import (
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/lease"
)

func (c *Core) notSent(e NotSent) {
	d := Told{Kind: MessageDefect, Peer: e.To, Node: c.nameOf(e.To), Detail: e.Err.Error()}
	switch m := e.Msg.(type) {
	case lease.Offer:
		d.Attempt = m.Attempt
		if o := c.offers[m.ID]; o != nil && o.worker.Peer == e.To {
			t := o.flight.task
			c.unsendable(t)
			c.abort(o.flight)
		}
	case lease.Start:
		d.Attempt = m.Attempt
		if e := c.jobs[m.Attempt.Job]; e != nil && e.job.Has(m.Attempt.Task) {
			if t := e.task(m.Attempt.Task); t.durable().Assigned && t.attempt() == m.Attempt {
				c.unsendable(t)
				c.giveUp(t, job.ProofDeclined, "its start could not be sent")
			}
		}
	default: // it is said again by what needs an answer
	}
	c.tell(d)
}

// unsendable has the task wait.
func (c *Core) unsendable(t *task) {
	t.notBefore, t.why = c.now.Add(retryMost), "this daemon could not send a message about it: see its log"
}
