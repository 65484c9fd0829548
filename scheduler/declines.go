package scheduler

// Declines: a host refuses an offer, and the task avoids the host for a while, or for good.

import (
	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler/place"
	"github.com/musterhq/muster/scheduler/step"
)

// decline handles a Decline: the host refuses an offer. It decides whether the task avoids the host.
func (ds *dispatches) decline(w *worker, m contract.Decline) {
	w.SetFree(m.Free)
	ds.hosts.offerToFreed(w)
	o := ds.offers.byID[m.Offer]
	if o == nil || o.worker != w {
		return
	}
	ds.offers.result(o, step.OfferDeclined)
	t := o.dispatch.task
	if m.NoUser {
		ds.hosts.refusedUser(w, t.e.job.User)
		t.declines++ // as for a quota
		ds.offerGone(o, place.Avoidance{})
		return
	}
	if m.Never {
		ds.offerGone(o, refusedForGood(ds, o, m))
		return
	}
	unyielding, stood := o.dispatch.preempt == w.Host && m.Reason.Word == job.ReasonResources, o.keeps
	ds.offers.drop(o)
	if unyielding {
		t.avoid.Add(ds.Now, unyieldingFor(ds.Turn, w))
		ds.queueAtHost(o.dispatch, w, stood)
		ds.preempt(o.dispatch)
		return
	}
	t.avoid.Add(ds.Now, afterDecline(ds, w, o, m))
	if len(o.dispatch.offers) == 0 {
		ds.over(o.dispatch)
	}
}

// refusedForGood notes that the host never takes the shape of the offer. A task whose priority was raised because it
// has waited for long is an exception. The host may refuse only that priority, because it may allow less than this
// daemon. Such a task avoids the host for a while.
func refusedForGood(ds *dispatches, o *offer, m contract.Decline) place.Avoidance {
	t := o.dispatch.task
	if t.raised > t.e.priority {
		t.declines++
		t.pause.why = o.worker.Name() + ": " + m.Reason.String()
		return ds.avoidHard(o)
	}
	t.shape.refusedBy(o.worker.Host, contract.Clip(m.Reason.Detail))
	return place.Avoidance{}
}

// unyieldingFor returns an avoidance: for a while, the task does not ask the host to end other tasks for it. The host
// knows better what their end would free. The task queues there like any other.
func unyieldingFor(tn *step.Turn, w *worker) place.Avoidance {
	return place.Avoidance{Peer: w.Peer, Until: tn.Now.Add(askAgainFor), Unyielding: true}
}

// afterDecline returns how the task avoids the host that has declined its offer, and notes what the decline says about
// the host.
func afterDecline(ds *dispatches, w *worker, o *offer, m contract.Decline) place.Avoidance {
	t := o.dispatch.task
	a := place.Avoidance{}
	r := t.request()
	_, lack := w.Devices.Fit(r.Need, w.LeftFor(&r.Rank))
	switch {
	case m.Reason.Word == job.ReasonQuota:
		ds.hosts.refusedQuota(w, t.e.job.User, r.Need, m.Reason.Detail)
		t.declines++ // so that the next Assign is proposed only after a Commit
	case lack == "" && m.Reason.Word == job.ReasonResources && !o.queued():
		a = place.Avoidance{Peer: w.Peer, Until: ds.Now.Add(keptFor), Kept: true}
		ds.hosts.askAgain(w, a.Until) // the other tasks may be gone by then, and the host does not say so
	case lack == "" || m.Reason.Word != job.ReasonResources:
		t.declines++ // as far as this daemon knows there was room
		a = ds.avoidHard(o)
		t.pause.why = w.Name() + ": " + m.Reason.String()
	default:
		ds.hosts.missed(w, o)
	}
	return a
}
