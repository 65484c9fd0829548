package scheduler

// Dispatches: a task is offered to hosts, and one of them commits. The Start is sent once the Assign is in the journal
// too (R1).

import (
	"slices"
	"time"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler/fleet"
	"github.com/musterhq/muster/scheduler/place"
	"github.com/musterhq/muster/scheduler/state"
	"github.com/musterhq/muster/scheduler/step"
)

const (
	directWait  = time.Second      // how long a worker may keep an offer that fits as far as we know
	directLimit = 5 * time.Second  // then the answer is overdue: two bad round trips; a silent session is found before
	renewEvery  = 20 * time.Second // how often a queued offer is renewed: long before queueWait is over
	spreadEvery = time.Minute      // how often a waiting task is queued at one more host
	commitLimit = contract.ReserveFor - time.Second
)

// dispatches offers tasks to hosts and starts them there.
type dispatches struct {
	*step.Turn
	entries   *entries
	hosts     *hosts
	contact   *contact
	pending   *pending
	placement *placement
	attempts  *attempts
	offers    *offers
	setAsides *setAsides
	elections *elections
	files     *files
}

// begin makes a dispatch for the next attempt of the task. why tells people why the task goes there.
func (ds *dispatches) begin(t *task, why string) *dispatch {
	d := &dispatch{task: t, n: t.durable().Attempt + 1, since: ds.Now, why: why}
	t.dispatch = d
	t.move(ds.Turn, offering)
	return d
}

// direct offers the task to a host where it fits, and proposes its Assign while the offer is under way. A task that was
// declined lately is assigned only when the host has committed, so that further declines cost the journal nothing.
func (ds *dispatches) direct(t *task, w *worker, chosen []string, why string) {
	d := ds.begin(t, why)
	ds.offer(d, w, fleet.Direct, chosen, false)
	if t.declines == 0 {
		ds.assign(d, w)
	}
}

// offerQueued lets the task queue at full hosts. Preemptible tasks make room for it at the host preempt; nil means at
// no host. The task also queues at the hosts in passed, so that no tasks of a lower priority pass it there.
func (ds *dispatches) offerQueued(t *task, hosts, passed []*fleet.Host, preempt *fleet.Host, why string) {
	d := ds.begin(t, why)
	d.preempt = preempt
	stand := ds.setAsides.choose(hosts)
	for _, h := range hosts {
		ds.queueAtHost(d, ds.hosts.workers[h.Peer], slices.Contains(stand, h))
	}
	queueWhere(ds, d, passed)
	ds.pending.queued.add(t)
}

// queueWhere lets the task queue at hosts where tasks of a lower priority would pass it. Such a host keeps nothing free
// for the task before the time at which spread would queue it there anyway. Otherwise many hosts would keep something
// free for one task.
func queueWhere(ds *dispatches, d *dispatch, passed []*fleet.Host) {
	for _, h := range passed {
		from := d.since.Add(time.Duration(len(d.offers)) * spreadEvery)
		ds.queueAtHost(d, ds.hosts.workers[h.Peer], false)
		d.offers[len(d.offers)-1].from = from
	}
}

// queueAtHost lets the task queue at a full host.
func (ds *dispatches) queueAtHost(d *dispatch, w *worker, stands bool) {
	makePlace(ds, d, w)
	o := ds.offer(d, w, fleet.Queued, nil, stands)
	o.settle()
}

// makePlace makes a place in the queue of a host. If the queue is full, the task of the dispatch displaces another one.
func makePlace(ds *dispatches, d *dispatch, w *worker) {
	r := d.task.request()
	if c := w.Displaced(&r); c != nil {
		o := ds.offers.byID[c.ID]
		ds.offers.release(o)
		ds.offerGone(o, place.Avoidance{})
	}
}

// offer sends an offer to the host, and adds a claim there for what the offer takes.
func (ds *dispatches) offer(d *dispatch, w *worker, state fleet.ClaimState, chosen []string, stands bool) *offer {
	t := d.task
	o := &offer{id: ds.offers.draw(), dispatch: d, worker: w, leases: w.Leases}
	o.claim = fleet.Claim{
		ID: o.id, User: t.shape.User, Project: t.shape.Project, Rank: placeOf(t), Need: t.shape.Need, Devices: chosen, State: state,
		Limited: t.request().Limited, Gang: t.request().Gang,
	}
	ds.offers.byID[o.id] = o
	d.offers = append(d.offers, o)
	w.Claim(&o.claim)
	if stands {
		ds.offers.keep(o)
	}
	o.markElsewhere(state == fleet.Queued && d.election.silences())
	ds.contact.used(w.Peer)
	ds.placement.leftOut.tried(t, w.Peer, ds.Now)
	if state == fleet.Queued {
		ds.offers.sendOffer(o, queueWait)
		ds.renew(o)
		if w.Quotas.IsProbe(&o.claim) { // if the user held too much, the host would decline at once
			ds.After(directLimit, func() { ds.hosts.probed(o) })
		}
	} else {
		ds.offers.sendOffer(o, directWait)
		o.timer = ds.After(directLimit, func() { ds.overdue(o) })
	}
	ds.entries.changed(t)
	return o
}

// renew sends a queued offer again before it runs out. So the offer keeps its place in the host's queue, and the host
// keeps what it has set aside for it.
func (ds *dispatches) renew(o *offer) {
	o.timer = ds.After(renewEvery, func() {
		o.settle()
		ds.offers.sendOffer(o, queueWait)
		ds.renew(o)
		if d := o.dispatch; d.offers[0] == o {
			ds.spread(d)
			ds.preempt(d)
			ds.elections.look(d)
		}
	})
}

// spread lets a task also queue at hosts where tasks of a lower priority have come that would pass it. If it has waited
// for long, it queues at one more host, because its present hosts may never get room or never commit.
func (ds *dispatches) spread(d *dispatch) {
	n := len(d.offers)
	long := n < spreadMost && ds.Now.Sub(d.since) >= time.Duration(n)*spreadEvery
	if passed := n < place.QueueWide && ds.pending.queued.lowest() < d.task.priority(); !long && !passed {
		return
	}
	ds.hosts.fleet.Count(ds.Now)
	next, passed := ds.placement.more(d, ds.hosts.anySlot())
	if long && next != nil {
		ds.queueAtHost(d, ds.hosts.workers[next.Peer], false)
		passed = slices.DeleteFunc(passed, func(h *fleet.Host) bool { return h == next })
	}
	queueWhere(ds, d, passed)
}

// assign proposes the Assign of the task to the host.
func (ds *dispatches) assign(d *dispatch, w *worker) {
	ds.files.has(d.task.e) // the file is read meanwhile
	if d.winner != nil {
		d.task.move(ds.Turn, confirming)
	} else {
		d.task.move(ds.Turn, proposing)
	}
	d.target = w.Peer
	ds.Propose(job.AssignRecord{
		Attempt: job.Attempt{Job: d.task.e.job.ID, Task: d.task.index, N: d.n},
		Node:    w.Peer, NodeName: w.Name(), Store: w.Profile.Store, Fencing: w.Profile.Fencing, At: ds.Now,
	})
}

// overdue takes back an offer that was not answered in time. The task avoids the host for a while.
func (ds *dispatches) overdue(o *offer) {
	ds.offers.result(o, step.OfferUnanswered)
	ds.offers.release(o)
	o.dispatch.task.declines++
	o.dispatch.task.pause.why = o.worker.Name() + " did not answer an offer"
	ds.offerGone(o, ds.avoidHard(o))
}

// avoidHard is an avoidance of the offer's host, with growing back-off.
func (ds *dispatches) avoidHard(o *offer) place.Avoidance {
	return place.Avoidance{Peer: o.worker.Peer, Until: ds.Now.Add(backoff(o.dispatch.task.declines)), Hard: true}
}

// offerGone ends an offer that its host will not commit to, and the dispatch if that was its last offer.
func (ds *dispatches) offerGone(o *offer, a place.Avoidance) {
	ds.offers.drop(o)
	o.dispatch.task.avoid.Add(ds.Now, a)
	if len(o.dispatch.offers) == 0 && o.dispatch.gang == nil {
		ds.over(o.dispatch)
	}
}

// abandon takes back all offers of a dispatch whose Start was not sent, and ends it.
func (ds *dispatches) abandon(d *dispatch) {
	ds.releaseAll(d)
	ds.over(d)
}

// releaseAll takes back all offers of a dispatch.
func (ds *dispatches) releaseAll(d *dispatch) {
	for _, o := range slices.Clone(d.offers) {
		ds.offers.release(o)
		ds.offers.drop(o)
	}
}

// takeBack takes back all offers of the task's dispatch, if there is one, and ends it. The caller decides what becomes
// of the task.
func (ds *dispatches) takeBack(t *task) {
	d := t.dispatch
	if d == nil {
		return
	}
	t.endDispatch(ds.Turn)
	ds.pending.queued.remove(t)
	ds.releaseAll(d)
}

// over ends a dispatch whose Start was not sent. If the attempt is assigned already, it is given up. If its Assign is
// under way, it is given up when the Assign is committed. Else the task waits again.
func (ds *dispatches) over(d *dispatch) {
	t := d.task
	if t.dispatch != d {
		return
	}
	t.endDispatch(ds.Turn)
	ds.pending.queued.remove(t)
	ds.entries.changed(t)
	if t.phase == unknown {
		ds.attempts.giveUp(t, job.ProofDeclined, "the host did not take it")
		return
	}
	ds.pending.requeue(t)
}

// notAssigned handles an Assign that the journal has refused.
func (ds *dispatches) notAssigned(a job.Attempt) {
	t := refused(ds.Turn, ds.entries, a)
	if t == nil {
		return
	}
	d := t.dispatch
	switch {
	case d == nil:
		ds.pending.requeue(t)
	case t.phase == held: // the host keeps the reservation for a while, so the Assign is proposed once more
		ds.After(retryWait, func() {
			if t.dispatch == d && t.phase == held {
				ds.assign(d, d.winner.worker)
			}
		})
	default:
		ds.abandon(d)
	}
}

// commit handles a Commit: the host has reserved what the offer needs. The first host to commit gets the task.
func (ds *dispatches) commit(w *worker, m contract.Commit) {
	o := ds.offers.byID[m.Offer]
	if o == nil || o.worker != w || o.dispatch.winner != nil && o.dispatch.winner != o {
		if e := ds.entries.byID[m.Attempt.Job]; e != nil && e.current(w, m.Attempt) && ds.attempts.started(e.task(m.Attempt.Task)) {
			return // a second Commit for an attempt that was started
		}
		ds.Send(w.Peer, contract.Release{Offer: m.Offer}) // another host was first, or the dispatch is over
		return
	}
	d := o.dispatch
	if m.Session == 0 {
		ds.sessionless(o)
		return
	}
	if d.winner == o {
		return
	}
	if until, left := ds.placement.leaves(d.task, w.Peer); left {
		ds.offers.release(o)
		ds.offerGone(o, place.Avoidance{Peer: w.Peer, Failed: true, Until: until, WaitUntil: until})
		return
	}
	w.Hold(&o.claim, m.Devices)
	ds.offers.result(o, step.OfferCommitted)
	ds.hosts.taken(o)
	ds.hosts.offerToFreed(w) // another task may queue there
	d.winner, d.session, d.devices = o, m.Session, m.Devices
	for _, other := range slices.Clone(d.offers) {
		if other != o {
			ds.offers.release(other)
			ds.offers.drop(other)
		}
	}
	ds.pending.setWaiting(d.task, false)
	ds.pending.queued.remove(d.task)
	ds.Stop(o.timer)
	o.timer = ds.After(commitLimit, func() { ds.abandon(d) }) // then the reservation lapses
	if t := d.task; t.phase == offering {
		t.move(ds.Turn, held)
		ds.assign(d, w)
	} else if t.phase == proposing {
		t.move(ds.Turn, confirming)
	}
	ds.start(d)
}

// sessionless handles a Commit of a host without a live lease: the host could not start the task. The task is offered
// to it again when its renewal is answered.
func (ds *dispatches) sessionless(o *offer) {
	d, w := o.dispatch, o.worker
	ds.offers.release(o)
	crossed := ds.hosts.sessionless(o)
	if d.task.phase == offering && len(d.offers) > 1 {
		ds.offerGone(o, place.Avoidance{})
		return
	}
	ds.offers.drop(o)
	ds.pending.queued.remove(d.task) // it waits for the lease of this host now
	ds.hosts.setWaitingForLease(w, append(w.waiting, d))
	if crossed {
		ds.leased(w)
		return
	}
	ds.After(sessionWait, func() {
		if i := slices.Index(w.waiting, d); i >= 0 {
			ds.hosts.setWaitingForLease(w, slices.Delete(w.waiting, i, i+1))
			if d.task.dispatch != d {
				return
			}
			d.task.declines++
			d.task.pause.why = w.Name() + " has no lease"
			d.task.avoid.Add(ds.Now, ds.avoidHard(o))
			ds.over(d)
		}
	})
}

// leased offers the host again the tasks that waited for its lease.
func (ds *dispatches) leased(w *worker) {
	ds.hosts.trusted(w)
	waiting := w.waiting
	ds.hosts.setWaitingForLease(w, nil)
	for _, d := range waiting {
		if d.task.dispatch == d {
			ds.offer(d, w, fleet.Direct, ds.placement.devicesAt(d.task, w.Host), false)
		}
	}
}

// start sends the Start, provided a host has committed and the Assign is in the journal (R1). If the job file is only
// on disk, start returns, and fileReady calls it again once the file is read. An attempt that was given up has no
// dispatch any more, so it is never started (R7).
func (ds *dispatches) start(d *dispatch) {
	t := d.task
	if d.winner == nil || t.phase != recorded || t.dispatch != d || !ds.files.has(t.e) {
		return
	}
	o, j := d.winner, t.e.job
	if j.Ending(t.index) != job.NotEnding || !o.worker.Up {
		ds.abandon(d)
		return
	}
	t.dispatch, t.offered = nil, false
	t.move(ds.Turn, startSent)
	ds.offers.drop(o)
	t.declines = 0
	t.setHeard(ds.attempts.sessionOf(t))
	t.setReported(job.Reserved)
	t.process.devices = d.devices
	ds.Send(o.worker.Peer, contract.Start{
		Offer: o.id, Attempt: t.attempt(), Group: ds.Config.Group, Epoch: ds.Epoch, Session: d.session, User: j.User,
		File: t.e.taskFile(), Element: t.e.element(t.index, state.Preempted(j, t.index)),
	})
	ds.files.started(t.e)
	placed(ds.Turn, t)
	ds.Notify(step.Notice{Kind: step.TaskStarted, Attempt: t.attempt(), Peer: o.worker.Peer, Node: o.worker.Name(), Detail: d.why})
	ds.entries.changed(t)
	t.report = ds.After(reportWait, func() {
		t.setHeard(0)
		ds.attempts.check(t)
	})
}

// preempt lets preemptible tasks make room for a queued task at one host, unless they do so already or no host has such
// tasks.
func (ds *dispatches) preempt(d *dispatch) {
	if d.preempt != nil || d.winner != nil {
		return
	}
	ds.hosts.fleet.Count(ds.Now)
	h := ds.placement.preempt(d, ds.hosts.anySlot())
	if h == nil {
		return
	}
	d.preempt = h
	for _, o := range d.offers {
		if o.worker.Host == h {
			o.markElsewhere(false)
			ds.offers.sendOffer(o, queueWait)
			return
		}
	}
	ds.queueAtHost(d, ds.hosts.workers[h.Peer], false)
}

// lostLead takes back all offers.
func (ds *dispatches) lostLead() {
	for _, j := range ds.entries.table.Jobs() {
		for _, t := range slices.Clone(ds.entries.byID[j.ID].tasks) {
			ds.takeBack(t)
			t.unpropose(ds.Turn)
		}
	}
}
