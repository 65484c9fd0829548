package scheduler

// Offers: each is sent to one host, which commits to it or declines it.

import (
	"slices"
	"time"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler/fleet"
	"github.com/musterhq/muster/scheduler/step"
)

const queueWait = 30 * time.Second // how long an offer may queue at a full worker

// offers keeps the offers that were sent, until they are declined or taken back or their task is started.
type offers struct {
	*step.Turn
	hosts *hosts

	byID map[uint64]*offer
	due  []*dispatch     // of gangs whose offers have changed
	kept map[*worker]int // for how many offers a host keeps what is free; see setAsides
	news []*dispatch     // with news from their hosts, or with offers that are gone; see elections
}

// keep makes the host of an offer keep its free capacity for this offer. The host learns of it when the offer is sent.
func (os *offers) keep(o *offer) {
	o.keeps, o.claim.Spare = true, false
	os.kept[o.worker]++
	o.worker.Touch()
}

// unkeep undoes keep. The host learns of it when the offer is sent.
func (os *offers) unkeep(o *offer) {
	o.keeps = false
	o.settle()
	if os.kept[o.worker]--; os.kept[o.worker] == 0 {
		delete(os.kept, o.worker)
	}
}

// settle updates the claim of an offer that queues at a full host: what is free there is for other tasks, unless the
// host keeps it for this offer.
func (o *offer) settle() {
	if o.queued() && !o.claim.Limited && o.claim.Spare == o.keeps { // an offer with a time limit may be booked
		o.claim.Spare = !o.keeps
		o.worker.Touch()
	}
}

// hear notes that a host has sent news of a waiting task, or that one of the task's offers is gone.
func (os *offers) hear(d *dispatch) {
	if !d.news {
		d.news = true
		os.news = append(os.news, d)
	}
}

// changed notes that the offers of a gang have changed.
func (os *offers) changed(d *dispatch) {
	if !d.gang.due {
		d.gang.due = true
		os.due = append(os.due, d)
	}
}

// draw draws an id for a new offer.
func (os *offers) draw() uint64 {
	for {
		if id := os.Rand.Uint64(); id != 0 && os.byID[id] == nil {
			return id
		}
	}
}

// to returns the offers to the host, the oldest first.
func (os *offers) to(w *worker) []*offer {
	ids := w.Claims.IDs()
	out := make([]*offer, len(ids))
	for i, id := range ids {
		out[i] = os.byID[id]
	}
	return out
}

func (os *offers) sendOffer(o *offer, wait time.Duration) {
	t := o.dispatch.task
	j := t.e.job
	m := contract.Offer{
		ID: o.id, Attempt: job.Attempt{Job: j.ID, Task: t.index, N: o.dispatch.n}, Group: os.Config.Group, Epoch: os.Epoch,
		Need: j.Spec.Need(), Device: o.device(), Priority: t.priority(), User: j.User, Project: j.Spec.Project, Wait: wait,
		Age: os.Now.Sub(t.e.born) + ageOfNew, Preempt: o.dispatch.preempt == o.worker.Host, Limit: contract.LimitOf(&j.Spec),
		Keeping: contract.Keeping{Spare: !o.keeps && o.seat == nil, Elsewhere: o.elsewhere, Private: os.Config.Private}, Ordered: contract.Ordered{Level: t.level, Work: t.work},
	}
	if s := o.seat; s != nil {
		m.Attempt.Task += s.rank
		m.Gang, m.Hold, m.Preempt, m.Firm = o.dispatch.gang.size, gangHold, s.preempt, s.firm
		m.Order = t.e.order // hosts compare the elements of one job by their index
	}
	os.Send(o.worker.Peer, m)
}

// gangHold is how long a host holds the place of a member. An offer is sent again long before (renewEvery).
const gangHold = time.Minute

func (os *offers) release(o *offer) {
	if o.worker.Up {
		os.Send(o.worker.Peer, contract.Release{Offer: o.id})
	}
}

// result counts what became of an offer. Only the first result of an offer counts.
func (os *offers) result(o *offer, r step.OfferResult) {
	if !o.counted {
		o.counted = true
		os.Totals.Offers[r]++
	}
}

// drop deletes an offer. Its dispatch stays.
func (os *offers) drop(o *offer) {
	os.result(o, step.OfferWithdrawn)
	os.Stop(o.timer)
	delete(os.byID, o.id)
	if o.keeps {
		os.unkeep(o)
	}
	o.worker.Unclaim(&o.claim)
	d := o.dispatch
	d.offers = slices.DeleteFunc(d.offers, func(x *offer) bool { return x == o })
	if d.winner == o {
		d.lose(os.Turn)
	}
	if d.preempt == o.worker.Host {
		d.preempt = nil
	}
	if i := slices.Index(d.election.booked, o); i >= 0 {
		d.election.booked = slices.Delete(d.election.booked, i, i+1)
		os.hear(d)
	}
	if d.gang != nil {
		os.changed(d)
	}
	os.hosts.probed(o)
	if o.claim.State != fleet.Held {
		os.hosts.offerToFreed(o.worker)
	}
}

// ageOfNew is the age of a job at its submission. If several jobs are submitted at the same moment, each is born a
// nanosecond after the one before. So no age is negative, and no two ages are equal.
const ageOfNew = time.Millisecond
