package admission

// Passes over the queue: each decides all queued offers in their order.

import (
	"time"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/worker/leaseclock"
	"github.com/musterhq/muster/worker/resources"
)

// Passes is what a pass needs.
type Passes struct {
	Account  *resources.Account
	Queue    *Queue
	Gpus     []gpu.Device // of this host
	Pace     *Pace
	SetAside time.Duration    // the longest first turn of setting aside
	Releases func() []Release // what attempts give back
	// Revoke takes back reservations of gangs that rank after an offer, if the offer then fits. enough says whether it would fit if
	// its user's quota allowed that.
	Revoke func(*Offer) (done, enough bool)
	// Preempt ends tasks that have none of these devices, or promises to; else it returns why it cannot.
	Preempt func(o *Offer, kept []string) string
}

// outcome is what is known after the last pass.
type outcome struct {
	Forecasts []forecast
	Kept      []keptFor
	Next      leaseclock.BootTime // when a turn of setting aside ends; never if there is none
	Late      bool                // something is kept for an offer whose wait is over
}

// Run makes passes until one changes nothing for others. decide decides one offer, and carries out the decision.
func (p *Passes) Run(now leaseclock.Moment, decide func(*Arbitration, *Offer) Verdict) outcome {
	out := outcome{Next: Never}
	for again := len(p.Queue.ranked) > 0; again; {
		p.Queue.order()
		keeps := newBackfill(newKeeps(now, &p.Account.Capacity, p.Gpus, p.Releases), p.Pace, p.SetAside)
		room := makeRoom{preempt: p.Preempt}
		if len(p.Queue.Gangs.held) > 0 {
			room.revoke = p.Revoke
		}
		r := newArbitration(p.Account, p.Queue, keeps, room)
		for _, o := range p.Queue.Gangs.firm() { // what ended tasks give back for them is for nobody else
			decide(r, o)
		}
		r.decideRanked(decide)
		out.Forecasts, out.Kept, out.Next = keeps.forecasts(), keeps.kept(), keeps.next
		p.Queue.sweep()
		// A reservation may have brought a user to a limit. Another pass then declines that user's other offers, so that
		// nothing is held back for them. The revoked reservations may have held more than the offer needed.
		out.Late, again = out.Late || r.late, r.filled || r.revoked
	}
	return out
}

// decideRanked decides the offers in their order. It completes each priority before it goes on with a lower one.
func (r *Arbitration) decideRanked(decide func(*Arbitration, *Offer) Verdict) {
	var later []*Offer
	for _, o := range r.queue.ranked {
		if o.State != Queued || o.Firm {
			continue
		}
		if len(later) > 0 && o.Msg.Priority < later[0].Msg.Priority {
			later = r.decideRest(later, decide)
		}
		r.backfill.descend(o.Msg.Priority)
		if decide(r, o) == Later {
			later = append(later, o)
		}
	}
	r.decideRest(later, decide)
}

// decideRest decides the offers of one priority that had to wait for the others of it. It returns the empty list.
func (r *Arbitration) decideRest(later []*Offer, decide func(*Arbitration, *Offer) Verdict) []*Offer {
	r.rest = true
	for _, o := range later {
		decide(r, o)
	}
	r.rest = false
	return later[:0]
}
