package scheduler

// Offers: a task is offered to hosts, and one of them commits. The Start is sent only when the task's Assign is in the
// journal as well (R1).

import (
	"slices"
	"time"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/lease"
	"github.com/musterhq/muster/scheduler/fleet"
)

// flight is one attempt on its way to a host: one offer to a host with room, or several that queue at full hosts. Of
// these the first to be committed wins.
type flight struct {
	task     *task
	n        int // attempt number
	since    time.Time
	offers   []*offer
	proposed bool     // its Assign has been proposed, to target
	assigned bool     // and is in the journal
	target   job.Peer // the host that is to have it
	winner   *offer   // has committed
	devices  []string
	session  lease.Session
}

// offer is one offer that was sent and is neither declined, nor taken back, nor started.
type offer struct {
	id     uint64
	flight *flight
	worker *worker
	leases uint64      // answered renewals of the host when the offer was sent
	claim  fleet.Claim // on the host; its id is the offer's
	timer  *timer      // for its answer, then for its Assign
}

// queued says whether the offer waits at a full host.
func (o *offer) queued() bool { return o.claim.State == fleet.Queued }

// request is what the task asks for, in the fleet's words. The task has a group.
func (t *task) request() fleet.Request { return fleet.Request{Shape: &t.group.Shape, Rank: placeOf(t)} }

func (c *Core) newFlight(t *task) *flight {
	f := &flight{task: t, n: t.durable().Attempt + 1, since: c.now}
	t.flight = f
	return f
}

// direct offers the task to a host where it fits, and proposes its Assign while the offer is under way. A task that
// was declined of late is assigned only when the host has committed, so that further declines cost the journal nothing.
func (c *Core) direct(t *task, w *worker, chosen []string) {
	f := c.newFlight(t)
	c.offer(f, w, fleet.Direct, chosen)
	if t.declines == 0 {
		c.assign(f, w)
	}
}

// offerQueued has the task queue at full hosts.
func (c *Core) offerQueued(t *task, hosts []*worker) {
	f := c.newFlight(t)
	for _, w := range hosts {
		c.queueAtHost(f, w)
	}
	c.queued.add(t)
}

// queueAtHost has the task queue at a full host, if need be in place of the last that queues there.
func (c *Core) queueAtHost(f *flight, w *worker) {
	if last := w.Claims.LastQueued(); last != nil {
		if o := c.offers[last.ID]; rank(f.task, o.flight.task) < 0 {
			c.release(o)
			c.offerGone(o, avoidance{})
		}
	}
	c.offer(f, w, fleet.Queued, nil)
}

// offer sends an offer to the host, and counts what it takes there.
func (c *Core) offer(f *flight, w *worker, state fleet.ClaimState, chosen []string) {
	t := f.task
	o := &offer{id: c.drawOffer(), flight: f, worker: w, leases: w.Leases}
	o.claim = fleet.Claim{ID: o.id, User: t.group.User, Rank: placeOf(t), Need: t.group.Need, Devices: chosen, State: state}
	c.offers[o.id] = o
	f.offers = append(f.offers, o)
	w.Claim(&o.claim)
	c.used(w.Peer)
	if state == fleet.Queued {
		c.sendOffer(o, queueWait)
		c.renewOffer(o)
		if w.Quotas.IsProbe(&o.claim) { // if the user held too much, the host would decline at once
			c.after(directLimit, func() { c.probed(o) })
		}
	} else {
		c.sendOffer(o, directWait)
		o.timer = c.after(directLimit, func() { c.overdue(o) })
	}
	c.changed(t.e)
}

// ageOfNew is the age of a job that was just submitted. Of several that are submitted in one moment each is born a
// nanosecond after the one before. So no age is negative, and no two are equal.
const ageOfNew = time.Millisecond

func (c *Core) sendOffer(o *offer, wait time.Duration) {
	t := o.flight.task
	j := t.e.job
	c.send(o.worker.Peer, lease.Offer{
		ID: o.id, Attempt: job.Attempt{Job: j.ID, Task: t.index, N: o.flight.n}, Group: c.cfg.Group, Epoch: c.epoch,
		Need: j.Spec.Resources, Priority: j.Spec.Priority, User: j.User, Wait: wait,
		Age: c.now.Sub(t.e.born) + ageOfNew,
	})
}

// renewOffer sends a queued offer again before it runs out, so that it keeps its place in the host's queue, and what
// the host keeps for it.
func (c *Core) renewOffer(o *offer) {
	o.timer = c.after(renewEvery, func() {
		c.sendOffer(o, queueWait)
		c.renewOffer(o)
		if f := o.flight; f.offers[0] == o {
			c.spread(f)
		}
	})
}

// spread has a task that has waited long queue at one more host. The hosts where it queues may never get room, or may
// never commit.
func (c *Core) spread(f *flight) {
	n := len(f.offers)
	if n >= spreadMost || c.now.Sub(f.since) < time.Duration(n)*spreadEvery {
		return
	}
	c.fleet.Count(c.now)
	if hosts := c.queueAt(f.task); len(hosts) > 0 {
		c.queueAtHost(f, hosts[0])
	}
}

// at says whether the task is offered to the host.
func (f *flight) at(h *fleet.Host) bool {
	return slices.ContainsFunc(f.offers, func(o *offer) bool { return o.worker.Host == h })
}

func (c *Core) assign(f *flight, w *worker) {
	f.proposed, f.target = true, w.Peer
	f.task.proposed = f.n
	c.propose(job.AssignRecord{
		Attempt: job.Attempt{Job: f.task.e.job.ID, Task: f.task.index, N: f.n},
		Node:    w.Peer, NodeName: w.Name(), Store: w.Profile.Store,
	})
}

// overdue takes back an offer that had no answer in time. The task avoids the host for a while.
func (c *Core) overdue(o *offer) {
	c.release(o)
	o.flight.task.declines++
	o.flight.task.why = o.worker.Name() + " did not answer an offer"
	c.offerGone(o, c.avoidHard(o))
}

// avoidHard avoids the offer's host, with growing back-off.
func (c *Core) avoidHard(o *offer) avoidance {
	return avoidance{peer: o.worker.Peer, until: c.now.Add(backoff(o.flight.task.declines)), hard: true}
}

func (c *Core) release(o *offer) {
	if o.worker.Up {
		c.send(o.worker.Peer, lease.Release{Offer: o.id})
	}
}

// drop forgets an offer, but not its flight.
func (c *Core) drop(o *offer) {
	c.stop(o.timer)
	delete(c.offers, o.id)
	o.worker.Unclaim(&o.claim)
	f := o.flight
	f.offers = slices.DeleteFunc(f.offers, func(x *offer) bool { return x == o })
	if f.winner == o {
		f.winner = nil
	}
	c.probed(o)
	if o.claim.State != fleet.Held {
		c.offerToFreed(o.worker)
	}
}

// offerGone ends an offer that will not be committed, and the flight if it was its last.
func (c *Core) offerGone(o *offer, a avoidance) {
	c.drop(o)
	c.avoid(o.flight.task, a)
	if len(o.flight.offers) == 0 {
		c.over(o.flight)
	}
}

// abort takes a flight back: its Start was not sent.
func (c *Core) abort(f *flight) {
	c.releaseAll(f)
	c.over(f)
}

func (c *Core) releaseAll(f *flight) {
	for _, o := range slices.Clone(f.offers) {
		c.release(o)
		c.drop(o)
	}
}

// ground forgets the task's flight, if any, and takes its offers back; what
// becomes of the task is the caller's to say.
func (c *Core) ground(t *task) {
	f := t.flight
	if f == nil {
		return
	}
	t.flight = nil
	c.queued.remove(t)
	c.releaseAll(f)
}

// over ends a flight whose Start was not sent. An attempt that is already in
// the journal is given up; one on its way there is when it arrives.
func (c *Core) over(f *flight) {
	t := f.task
	if t.flight != f {
		return
	}
	t.flight = nil
	c.queued.remove(t)
	c.changed(t.e)
	if f.assigned {
		c.giveUp(t, job.ProofDeclined, "the host did not take it")
		return
	}
	c.requeue(t)
}

// notAssigned ends the flight whose Assign the journal did not take.
func (c *Core) notAssigned(a job.Attempt) {
	e := c.jobs[a.Job]
	if e == nil || !e.job.Has(a.Task) {
		return
	}
	t := e.task(a.Task)
	if t.proposed != a.N {
		return
	}
	t.proposed = 0
	t.declines++
	t.notBefore, t.why = c.now.Add(backoff(t.declines)), "the journal did not take the placement"
	f := t.flight
	switch {
	case f == nil:
		c.requeue(t)
	case f.winner != nil: // the host holds it for a while yet: its turn is not given up for one refusal
		c.after(retryWait, func() {
			if t.flight == f && f.winner != nil && t.proposed == 0 && !f.assigned {
				c.assign(f, f.winner.worker)
			}
		})
	default:
		c.abort(f)
	}
}

func (c *Core) commit(w *worker, m lease.Commit) {
	o := c.offers[m.Offer]
	if o == nil || o.worker != w || o.flight.winner != nil && o.flight.winner != o {
		if e := c.jobs[m.Attempt.Job]; e != nil && c.current(e, w, m.Attempt) && e.task(m.Attempt.Task).started == m.Attempt.N {
			return // a second word on what has been started
		}
		c.send(w.Peer, lease.Release{Offer: m.Offer}) // too late: another was first, or nobody waits
		return
	}
	f := o.flight
	if m.Session == 0 {
		c.sessionless(o)
		return
	}
	if f.winner == o {
		return
	}
	w.Hold(&o.claim, m.Devices)
	c.probed(o)
	c.offerToFreed(w) // another may queue there
	f.winner, f.session, f.devices = o, m.Session, m.Devices
	for _, other := range slices.Clone(f.offers) {
		if other != o {
			c.release(other)
			c.drop(other)
		}
	}
	c.setWaiting(f.task, false)
	c.queued.remove(f.task)
	c.stop(o.timer)
	o.timer = c.after(commitLimit, func() { c.abort(f) }) // the host holds it no longer
	if !f.proposed {
		c.assign(f, w)
	}
	c.start(f)
}

// sessionless handles a commit of a host without a live lease: it could not
// start anything. With the answer to its renewal it is asked again.
func (c *Core) sessionless(o *offer) {
	f, w := o.flight, o.worker
	c.release(o)
	crossed := w.Leases > o.leases // the answer to its renewal crossed the commit on its way
	if crossed {
		w.Leased()
	} else {
		w.Leaseless()
	}
	c.after(sessionWait, func() { c.trusted(w) })
	if !f.proposed && len(f.offers) > 1 {
		c.offerGone(o, avoidance{})
		return
	}
	c.drop(o)
	c.queued.remove(f.task) // it waits here now
	c.setWaitingForLease(w, append(w.waiting, f))
	if crossed {
		c.leased(w)
		return
	}
	c.after(sessionWait, func() {
		if i := slices.Index(w.waiting, f); i >= 0 {
			c.setWaitingForLease(w, slices.Delete(w.waiting, i, i+1))
			if f.task.flight != f {
				return
			}
			f.task.declines++
			f.task.why = w.Name() + " has no lease"
			c.avoid(f.task, c.avoidHard(o))
			c.over(f)
		}
	})
}

// trusted has a host offered tasks again that had no lease.
func (c *Core) trusted(w *worker) {
	if w.Leased() {
		c.offerToFreed(w)
	}
}

// leased asks again what waited for a lease at the host.
func (c *Core) leased(w *worker) {
	c.trusted(w)
	waiting := w.waiting
	c.setWaitingForLease(w, nil)
	for _, f := range waiting {
		if f.task.flight == f {
			r := f.task.request()
			chosen, _ := w.Devices.Fit(r.Need, w.LeftFor(&r.Rank))
			c.offer(f, w, fleet.Direct, chosen)
		}
	}
}

// start sends the Start once both the commit and the journal have spoken (R1),
// unless the attempt has been given up (R7).
func (c *Core) start(f *flight) {
	t := f.task
	if f.winner == nil || !f.assigned || t.flight != f || t.givenUp == f.n {
		return
	}
	o, j := f.winner, t.e.job
	if j.Cancelled != "" || !o.worker.Up {
		c.abort(f)
		return
	}
	t.flight = nil
	c.drop(o)
	t.started, t.reported, t.declines = f.n, true, 0
	c.saw(t, job.Reserved)
	t.devices = f.devices
	c.send(o.worker.Peer, lease.Start{
		Offer: o.id, Attempt: t.attempt(), Group: c.cfg.Group, Epoch: c.epoch, Session: f.session, User: j.User, Spec: j.Spec,
	})
	c.tell(Told{Kind: TaskStarted, Attempt: t.attempt(), Peer: o.worker.Peer, Node: o.worker.Name(), Detail: c.whyHost(t, o.worker)})
	c.changed(t.e)
	n := f.n
	t.report = c.after(reportWait, func() {
		if t.started == n && t.seen == job.Reserved {
			t.reported = false
			c.check(t)
		}
	})
}

func (c *Core) whyHost(t *task, w *worker) string {
	return c.policy.Why(t.e.job.Spec.Resources, policyHost(w.Host, &w.Free))
}

func (c *Core) decline(w *worker, m lease.Decline) {
	w.SetFree(m.Free)
	c.offerToFreed(w)
	o := c.offers[m.Offer]
	if o == nil || o.worker != w {
		return
	}
	t := o.flight.task
	if m.Never {
		t.group.Refuse(w.Host)
		c.offerGone(o, avoidance{})
		return
	}
	c.drop(o)
	a := avoidance{}
	r := t.request()
	_, lack := w.Devices.Fit(r.Need, w.LeftFor(&r.Rank))
	switch {
	case m.Reason.Word == job.ReasonQuota:
		c.refusedQuota(w, t.e.job.User, r.Need, m.Reason.Detail)
		t.declines++ // so that the next one costs the journal nothing if it is refused, too
	case lack == "" && m.Reason.Word == job.ReasonResources && !o.queued():
		a = avoidance{peer: w.Peer, until: c.now.Add(keptFor), kept: true}
		c.askAgain(w, a.until) // those for whom it is kept may be gone then, and nothing else would tell
	case lack == "" || m.Reason.Word != job.ReasonResources:
		t.declines++ // it is not for lack of room, as far as we can see
		a = c.avoidHard(o)
		t.why = w.Name() + ": " + m.Reason.String()
	default:
		c.missed(w, o)
	}
	c.avoid(t, a)
	if len(o.flight.offers) == 0 {
		c.over(o.flight)
	}
}
