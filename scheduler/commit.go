package scheduler

// What committed entries set off: the journal's word becomes the jobs' state,
// and what waited for it goes on.

import (
	"slices"
	"time"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/lease"
)

// ack is an event that its worker keeps until its record is applied.
type ack struct {
	peer  job.Peer
	n     uint64
	timer *timer // to propose the record again
}

// seqOf is the place of a record in the journal: an entry has fewer than 4,096.
func seqOf(index uint64, record int) uint64 { return index<<12 | uint64(record) }

func (c *Core) committed(m job.Committed) {
	if m.Index > c.applied {
		c.applied = m.Index
		for i, r := range m.Records {
			c.seq = seqOf(m.Index, i)
			c.apply(r, m.Epoch)
		}
		if c.lead {
			c.outgoing = max(c.outgoing-len(m.Records), 0)
		}
	}
	if m.Lead {
		c.takeOffice(m.Epoch)
	}
}

// takeOffice begins ownership: from here on the core acts (R10). Nothing that
// an older owner started is started again (R8): it is asked for.
func (c *Core) takeOffice(epoch job.Epoch) {
	c.lead, c.epoch, c.leadAt, c.outgoing = true, epoch, c.now, 0
	for _, k := range c.acks {
		c.stop(k.timer)
	}
	clear(c.acks)
	for _, a := range slices.Concat(c.renewals.waiting, c.renewals.next) {
		a.worker.renewing--
	}
	c.renewals = renewals{}
	clear(c.purging)
	c.archive.cards.Reverse(func(x card) bool {
		if e := c.archive.entry(x); e != nil {
			c.inherit(e)
		}
		return true
	})
	peers := make([]job.Peer, 0, len(c.sessions))
	for p := range c.sessions {
		peers = append(peers, p)
	}
	slices.Sort(peers)
	for _, p := range peers {
		c.send(p, c.owns())
	}
	c.seekAll()
	early := c.asks.early
	c.asks.early = nil
	for _, ask := range early {
		ask()
	}
}

// inherit begins anew with a job that an older owner looked after.
func (c *Core) inherit(e *entry) {
	for _, t := range e.tasks {
		c.ground(t)
		t.proposed, t.started, t.reported = 0, 0, false
		c.settle(t)
		if t.durable().Assigned {
			c.watch(t, c.now.Add(reportWait))
		}
	}
}

// apply changes the jobs as one record says, if it still may.
func (c *Core) apply(r job.Record, epoch job.Epoch) {
	switch r := r.(type) {
	case job.SubmitRecord:
		c.appliedSubmit(r)
	case job.AssignRecord:
		if e := c.jobs[r.Attempt.Job]; e != nil {
			c.appliedAssign(e, r, c.moved(e, applyAssign(&e.job, r, epoch)))
		}
	case job.UnassignRecord:
		a := r.Attempt
		if e := c.jobs[a.Job]; e != nil && applyUnassign(&e.job, r) {
			c.appliedUnassign(e, r)
			c.moved(e, true)
		}
		c.acknowledge(a)
	case job.ResultRecord:
		if e := c.jobs[r.Attempt.Job]; e != nil {
			c.appliedResult(e, r)
		}
		c.acknowledge(r.Attempt)
	case job.CancelRecord:
		if e := c.jobs[r.Job]; e != nil {
			c.appliedCancel(e, c.moved(e, applyCancel(&e.job, r)))
		} else {
			c.asks.left(c, askCancel, r.Job)
		}
	case job.HoldRecord:
		if e := c.jobs[r.Job]; e != nil {
			c.appliedHold(e, r, c.moved(e, applyHold(&e.job, r)))
		} else {
			c.asks.left(c, kindOf(r), r.Job)
		}
	case job.PurgeRecord:
		c.purged(r.Job)
	}
}

// moved brings the soft half in line after a record that changed the job.
func (c *Core) moved(e *entry, changed bool) bool {
	if changed {
		c.save(e)
		for _, t := range e.tasks {
			c.settle(t)
		}
	}
	return changed
}

// settle brings a task's soft half in line with its durable one.
func (c *Core) settle(t *task) {
	d := t.durable()
	node := d.Node
	if !d.Assigned {
		node = ""
		c.leftNode(t)
		t.started, t.reported, t.cancelSent = 0, false, false
		c.saw(t, "")
		t.pid, t.isolation, t.devices, t.since = 0, "", nil, time.Time{}
	}
	if t.node != node {
		delete(c.byNode[t.node], t)
		if len(c.byNode[t.node]) == 0 {
			delete(c.byNode, t.node)
		}
		if t.node = node; node != "" {
			if c.byNode[node] == nil {
				c.byNode[node] = map[*task]bool{}
			}
			c.byNode[node][t] = true
			if c.sessions[node] == 0 {
				c.seek(node)
			}
		}
	}
	if d.State == job.Pending {
		c.requeue(t)
	} else {
		if f := t.flight; f != nil && (!d.Assigned || d.Attempt != f.n) {
			c.ground(t) // it waits no longer
		}
		c.dequeue(t)
		c.setWaiting(t, false)
	}
	c.noteEnd(t.e)
}

// noteEnd has the job forgotten in its turn once it has ended, and archived once
// nothing can change it.
func (c *Core) noteEnd(e *entry) {
	if e.ended.IsZero() && ended(&e.job) {
		e.ended = c.now
		at := c.steady()
		if closed := c.endOf(e); !c.lead && closed.Before(at) {
			at = closed // as an earlier life recorded it
		}
		c.ended = append(c.ended, ending{e.job.ID.Drawn(), at.UnixNano()})
		for _, t := range e.tasks {
			c.leaveGroup(t)
		}
		c.purgeSurplus()
	}
	if !e.final && final(&e.job) {
		e.final = true
		c.final = append(c.final, e)
	}
}

// bornAt is when a job of this submission was born, in terms of this life's clock:
// now, if it is new, and else as long ago as the wall clocks of both lives tell.
// Jobs are added in their order, and none is younger than one that came later.
func (c *Core) bornAt(submitted time.Time) time.Time {
	c.wrote(submitted)
	born := c.now
	if !c.lead {
		born = c.now.Add(-max(0, c.wall().Sub(submitted)))
	}
	if !born.After(c.youngest) {
		born = c.youngest.Add(1)
	}
	c.youngest = born
	return born
}

// setBackMost is how far the wall clock may lie behind what the journal tells for
// the journal to be believed: beyond, it was the older clock that was wrong.
const setBackMost = 24 * time.Hour

// wall is the wall clock, or what the journal tells if that is later: the clock was
// set back since, and no job is younger for it.
func (c *Core) wall() time.Time {
	now := c.now.Round(0)
	if c.newest.After(now) && c.newest.Sub(now) < setBackMost {
		return c.newest
	}
	return now
}

// wrote notes a time that an earlier life wrote down.
func (c *Core) wrote(at time.Time) {
	if at.After(c.newest) {
		c.newest = at.Round(0)
	}
}

func (c *Core) addEntry(j job.Job) *entry {
	e := &entry{job: j, born: c.bornAt(j.Submitted)}
	for i := range j.Tasks {
		e.tasks = append(e.tasks, &task{e: e, index: i})
	}
	c.jobs[j.ID] = e
	c.archive.add(e)
	if j.Key != "" {
		c.keys[keyOf(j.User, j.Key)] = j.ID
	}
	return e
}

// forgetEntry drops all of the job but its card.
func (c *Core) forgetEntry(e *entry) {
	j := &e.job
	delete(c.jobs, j.ID)
	delete(c.archive.whole, j.ID.Drawn())
	if j.Key != "" && c.keys[keyOf(j.User, j.Key)] == j.ID {
		delete(c.keys, keyOf(j.User, j.Key))
	}
}

func (c *Core) appliedSubmit(r job.SubmitRecord) {
	if _, archived := c.archived(r.Job); c.jobs[r.Job] == nil && !archived {
		j := newJob(r, c.cfg.Self)
		j.Seq = c.seq
		e := c.addEntry(j)
		c.moved(e, true)
	}
	c.asks.submitted(c, r.Job)
}

// appliedAssign goes on with the flight that proposed it. Without one the
// attempt has been dropped meanwhile, and no Start was sent or ever will be.
func (c *Core) appliedAssign(e *entry, r job.AssignRecord, ok bool) {
	if !c.lead {
		return
	}
	t := e.tasks[min(r.Attempt.Task, len(e.tasks)-1)]
	if t.proposed == r.Attempt.N {
		t.proposed = 0
	}
	f := t.flight
	mine := f != nil && f.n == r.Attempt.N && f.target == r.Node
	switch {
	case !ok && mine:
		c.abort(f)
	case !ok:
		c.settle(t)
	case !mine:
		c.giveUp(t, job.ProofDeclined, "the offer was dropped before its record was committed")
	default:
		f.assigned = true
		c.start(f)
	}
}

func (c *Core) appliedUnassign(e *entry, r job.UnassignRecord) {
	t := e.tasks[r.Attempt.Task]
	d := t.durable()
	switch r.Proof {
	case job.ProofDeclined:
	case job.ProofNeverStarted:
		t.declines++
		t.why = d.NodeName + " did not start it"
		c.avoid(t, avoidance{peer: d.Node, until: c.now.Add(backoff(t.declines)), hard: true})
	case job.ProofOperator: // who says so waits for it
		c.avoid(t, avoidance{peer: d.Node, until: c.now.Add(avoidFor)})
	case job.ProofDead, job.ProofExpired:
		c.lostHost(t, d.Node, d.NodeName)
	}
}

// lostHost has a task wait whose host was lost, longer with every host.
func (c *Core) lostHost(t *task, p job.Peer, name string) {
	t.notBefore = c.now.Add(c.jitter(doubled(lossFirst, len(t.durable().Lost), lossMost)))
	t.why = "after " + name + " was lost"
	c.avoid(t, avoidance{peer: p, until: c.now.Add(avoidFor)})
}

func (c *Core) appliedResult(e *entry, r job.ResultRecord) {
	t := e.tasks[min(max(r.Attempt.Task, 0), len(e.tasks)-1)]
	before := *t.durable()
	if !applyResult(&e.job, r) {
		return
	}
	d := t.durable()
	if c.lead {
		if before.Assigned && before.Attempt != r.Attempt.N {
			c.surplus(t, before)
		}
		switch {
		case d.State != job.Pending || r.Exit.State == job.Preempted:
		case r.Exit.State == job.NodeFail:
			c.lostHost(t, before.Node, before.NodeName)
		default:
			t.notBefore, t.why = c.now.Add(c.jitter(backoff(d.Runs))), "after "+describe(r.Exit)
			c.avoid(t, avoidance{peer: before.Node, until: c.now.Add(avoidFor)})
		}
		c.tell(Told{Kind: TaskEnded, Attempt: r.Attempt, Peer: before.Node, Node: before.NodeName, State: d.State, Detail: describe(r.Exit)})
	}
	c.moved(e, true)
}

// surplus ends a newer attempt of a task that an older one has finished.
func (c *Core) surplus(t *task, before job.Task) {
	if t.flight != nil {
		c.ground(t)
		return
	}
	c.send(before.Node, lease.Cancel{
		Attempt: job.Attempt{Job: t.e.job.ID, Task: t.index, N: before.Attempt},
		Group:   c.cfg.Group, Epoch: c.epoch, Grace: t.e.job.Spec.GraceOr(), Reason: "an earlier attempt succeeded",
	})
}

func (c *Core) appliedCancel(e *entry, ok bool) {
	c.asks.settled(c, askCancel, e, nil)
	if !ok || !c.lead {
		return
	}
	for _, t := range e.tasks {
		if t.flight != nil {
			c.abort(t.flight)
		} else if t.durable().Assigned {
			c.cancelAttempt(t)
		}
	}
}

func (c *Core) appliedHold(e *entry, r job.HoldRecord, ok bool) {
	kind := kindOf(r)
	var err error
	if !ok {
		err = conflict(&e.job, kind)
	}
	c.asks.settled(c, kind, e, err)
	if !ok || r.Release {
		return
	}
	for _, t := range e.tasks {
		if t.flight != nil {
			c.abort(t.flight)
		}
	}
}

// acknowledge lets the worker forget the events that a record was made of.
func (c *Core) acknowledge(a job.Attempt) {
	k, there := c.acks[a]
	if !there {
		return
	}
	c.stop(k.timer)
	delete(c.acks, a)
	if w := c.workers[k.peer]; w != nil && w.Up {
		c.send(k.peer, lease.Ack{Attempt: a, Group: c.cfg.Group, Epoch: c.epoch, N: k.n})
	}
}
