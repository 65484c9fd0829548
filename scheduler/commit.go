package scheduler

// What committed entries set off: the journal's word becomes the jobs' state,
// and what waited for it goes on.

import (
	"slices"
	"time"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/jobs"
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
			c.apply(r, seqOf(m.Index, i), m.Epoch)
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
	c.forgetUnconfirmed()
	for _, j := range c.table.Jobs() {
		c.inherit(c.jobs[j.ID])
	}
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

// forgetUnconfirmed drops what waits for the journal or for a quorum round under an epoch that is over.
func (c *Core) forgetUnconfirmed() {
	for _, k := range c.acks {
		c.stop(k.timer)
	}
	clear(c.acks)
	for _, a := range slices.Concat(c.renewals.waiting, c.renewals.next) {
		a.worker.renewing--
	}
	c.renewals = renewals{}
	clear(c.purging)
}

// inherit begins anew with a job that an older owner looked after.
func (c *Core) inherit(e *entry) {
	for _, t := range slices.Clone(e.tasks) {
		c.ground(t)
		t.proposed, t.started, t.reported = 0, 0, false
		c.settle(t)
		if t.durable().Assigned {
			c.watch(t, c.now.Add(reportWait))
		}
	}
}

// apply changes the jobs as one record says, if it still may, and goes on with what
// waited for the record.
func (c *Core) apply(r job.Record, seq uint64, epoch job.Epoch) {
	x := c.table.Apply(r, seq, epoch)
	var e *entry
	if x.Job != nil {
		e = c.jobs[x.Job.ID]
	}
	switch r := r.(type) {
	case job.SubmitRecord:
		if x.Moved {
			c.moved(c.addEntry(x.Job))
		}
		c.asks.submitted(c, r.Job)
	case job.AssignRecord:
		if e != nil && e.job.Has(r.Attempt.Task) {
			c.appliedAssign(e, r, epoch, x.Moved)
		}
	case job.UnassignRecord:
		if x.Moved {
			c.appliedUnassign(e, r)
		}
		c.acknowledge(r.Attempt)
	case job.ResultRecord:
		if x.Moved {
			c.appliedResult(e, r, x.Before)
		}
		c.acknowledge(r.Attempt)
	case job.CancelRecord:
		if e == nil {
			c.asks.left(c, askCancel, r.Job)
			return
		}
		c.appliedCancel(e, x.Moved)
	case job.HoldRecord:
		if e == nil {
			c.asks.left(c, kindOf(r), r.Job)
			return
		}
		c.appliedHold(e, r, x.Moved)
	case job.PurgeRecord:
		if x.Moved {
			c.purged(r.Job)
		}
	}
}

// moved brings the soft half in line after a record that changed the job.
func (c *Core) moved(e *entry) {
	c.save(e)
	c.settleAll(e)
}

// movedTask does so after a record that changed one task.
func (c *Core) movedTask(e *entry, index int) {
	c.save(e)
	c.settle(e.task(index))
	c.noteEnd(e)
}

// settleAll brings the soft halves of all tasks in line that have not ended.
func (c *Core) settleAll(e *entry) {
	for _, t := range slices.Clone(e.tasks) {
		c.settle(t)
	}
	c.noteEnd(e)
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
	if d.State.Ended() {
		c.leaveGroup(t)
		t.e.drop(t)
	}
}

// noteEnd has the job forgotten in its turn once it has ended, and archived once
// nothing can change it.
func (c *Core) noteEnd(e *entry) {
	if e.ended.IsZero() && e.job.Ended() {
		e.ended = c.now
		at := c.steady()
		if closed := c.endOf(e); !c.lead && closed.Before(at) {
			at = closed // as an earlier life recorded it
		}
		c.ended = append(c.ended, ending{e.job.ID.Drawn(), at.UnixNano()})
		c.purgeSurplus()
	}
	if !e.final && e.job.Final() {
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

// addEntry makes the soft half of a job, and of its tasks that have not ended.
func (c *Core) addEntry(j *jobs.Job) *entry {
	e := &entry{job: j, priority: j.Spec.Priority, born: c.bornAt(j.Submitted)}
	for i := range j.Len() {
		if !j.Brief(i).State.Ended() {
			e.tasks = append(e.tasks, &task{e: e, index: i})
		}
	}
	c.jobs[j.ID] = e
	return e
}

// appliedAssign goes on with the flight that proposed it. Without one the
// attempt has been dropped meanwhile, and no Start was sent or ever will be. An
// entry of another epoch starts nothing: whoever wrote it acts on it.
func (c *Core) appliedAssign(e *entry, r job.AssignRecord, epoch job.Epoch, ok bool) {
	if ok {
		c.movedTask(e, r.Attempt.Task)
	}
	if !c.lead {
		return
	}
	t := e.task(r.Attempt.Task)
	if t.proposed == r.Attempt.N {
		t.proposed = 0
	}
	f := t.flight
	mine := f != nil && f.n == r.Attempt.N && f.target == r.Node
	switch {
	case epoch != c.epoch:
		c.ground(t)
		c.settle(t)
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
	t := e.task(r.Attempt.Task)
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
	c.movedTask(e, r.Attempt.Task)
}

// lostHost has a task wait whose host was lost, longer with every host.
func (c *Core) lostHost(t *task, p job.Peer, name string) {
	t.notBefore = c.now.Add(c.jitter(doubled(lossFirst, len(t.e.job.Lost(t.index)), lossMost)))
	t.why = "after " + name + " was lost"
	c.avoid(t, avoidance{peer: p, until: c.now.Add(avoidFor)})
}

func (c *Core) appliedResult(e *entry, r job.ResultRecord, before job.Task) {
	t := e.task(r.Attempt.Task)
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
	c.movedTask(e, r.Attempt.Task)
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
	if ok {
		c.moved(e)
	}
	c.asks.settled(c, askCancel, e, nil)
	if !ok || !c.lead {
		return
	}
	for _, t := range slices.Clone(e.tasks) {
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
	if ok {
		c.moved(e)
	} else {
		err = conflict(e.job.ID, e.job.State(), kind)
	}
	c.asks.settled(c, kind, e, err)
	if !ok || r.Release {
		return
	}
	for _, t := range slices.Clone(e.tasks) {
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
