package scheduler

// What committed records set off: the jobs change, and what waited for the record goes on.

import (
	"fmt"
	"slices"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/lease"
	"github.com/musterhq/muster/scheduler/place"
)

// records brings all parts in line with the records that were committed.
type records struct {
	*turn
	entries    *entries
	history    *history
	assigned   *assigned
	contact    *contact
	pending    *pending
	attempts   *attempts
	dispatches *dispatches
	reports    *reports
	requests   *requests
	deaths     *deaths
}

// seqOf is the place of a record in the journal: an entry has fewer than 4,096.
func seqOf(index uint64, record int) uint64 { return index<<12 | uint64(record) }

// apply changes the jobs as one record says, if it still may, and goes on with what
// waited for the record.
func (rc *records) apply(r job.Record, seq uint64, epoch job.Epoch) {
	x := rc.entries.table.Apply(r, seq, epoch)
	var e *entry
	if x.Job != nil {
		e = rc.entries.byID[x.Job.ID]
	}
	switch r := r.(type) {
	case job.SubmitRecord:
		if x.Moved {
			rc.moved(rc.entries.add(x.Job))
		}
		rc.requests.submitted(r.Job)
	case job.AssignRecord:
		if e != nil && e.job.Has(r.Attempt.Task) {
			rc.appliedAssign(e, r, epoch, x.Moved)
		}
	case job.UnassignRecord:
		if x.Moved {
			rc.appliedUnassign(e, r)
		}
		rc.reports.acknowledge(r.Attempt)
	case job.ResultRecord:
		if x.Moved {
			rc.appliedResult(e, r, x.Before)
		}
		rc.reports.acknowledge(r.Attempt)
	case job.CancelRecord:
		if e == nil {
			rc.requests.left(toCancel, r.Job)
			return
		}
		rc.appliedCancel(e, x.Moved)
	case job.HoldRecord:
		if e == nil {
			rc.requests.left(kindOf(r), r.Job)
			return
		}
		rc.appliedHold(e, r, x.Moved)
	case job.PurgeRecord:
		if x.Moved {
			rc.history.purged(r.Job)
		}
	}
}

// moved updates the soft half of a job after a record that changed the job.
func (rc *records) moved(e *entry) {
	rc.entries.save(e)
	rc.settleAll(e)
}

// movedTask does so after a record that changed one task.
func (rc *records) movedTask(e *entry, index int) {
	rc.entries.save(e)
	rc.settle(e.task(index))
	rc.history.noteEnd(e)
}

// settleAll updates the soft halves of all tasks that have not ended.
func (rc *records) settleAll(e *entry) {
	for _, t := range slices.Clone(e.tasks) {
		rc.settle(t)
	}
	rc.history.noteEnd(e)
}

// settle updates the soft half of a task to what the records say of it.
func (rc *records) settle(t *task) {
	d := t.durable()
	node := d.Node
	if !d.Assigned {
		node = ""
		rc.deaths.left(t)
		t.started, t.reported, t.cancelSent = 0, false, false
		rc.attempts.saw(t, "")
		t.process = process{}
	}
	if t.node != node {
		delete(rc.assigned.byNode[t.node], t)
		if len(rc.assigned.byNode[t.node]) == 0 {
			delete(rc.assigned.byNode, t.node)
		}
		if t.node = node; node != "" {
			if rc.assigned.byNode[node] == nil {
				rc.assigned.byNode[node] = map[*task]bool{}
			}
			rc.assigned.byNode[node][t] = true
			if rc.contact.sessions[node] == 0 {
				rc.contact.seek(node)
			}
		}
	}
	if d.State == job.Pending {
		rc.pending.requeue(t)
	} else {
		if t.dispatch != nil && (!d.Assigned || d.Attempt != t.dispatch.n) {
			rc.dispatches.takeBack(t) // it waits no longer
		}
		rc.pending.dequeue(t)
		rc.pending.setWaiting(t, false)
	}
	if d.State.Ended() {
		rc.pending.leave(t)
		t.e.drop(t)
	}
}

// appliedAssign goes on with the dispatch that proposed it. Without one the
// attempt has been dropped meanwhile, and no Start was sent or ever will be. An
// entry of another epoch starts nothing: whoever wrote it acts on it.
func (rc *records) appliedAssign(e *entry, r job.AssignRecord, epoch job.Epoch, ok bool) {
	if ok {
		rc.movedTask(e, r.Attempt.Task)
	}
	if !rc.lead {
		return
	}
	t := e.task(r.Attempt.Task)
	if t.proposed == r.Attempt.N {
		t.proposed = 0
	}
	d := t.dispatch
	mine := d != nil && d.n == r.Attempt.N && d.target == r.Node
	switch {
	case epoch != rc.epoch:
		rc.dispatches.takeBack(t)
		rc.settle(t)
	case !ok && mine:
		rc.dispatches.abandon(d)
	case !ok:
		rc.settle(t)
	case !mine:
		rc.attempts.giveUp(t, job.ProofDeclined, "the offer was dropped before its record was committed")
	default:
		d.move(rc.turn, recorded)
		rc.dispatches.start(d)
	}
}

func (rc *records) appliedUnassign(e *entry, r job.UnassignRecord) {
	t := e.task(r.Attempt.Task)
	d := t.durable()
	switch r.Proof {
	case job.ProofDeclined:
	case job.ProofNeverStarted:
		t.declines++
		t.pause.why = d.NodeName + " did not start it"
		t.avoid.Add(rc.now, place.Avoidance{Peer: d.Node, Until: rc.now.Add(backoff(t.declines)), Hard: true})
	case job.ProofOperator: // who says so waits for it
		t.avoid.Add(rc.now, place.Avoidance{Peer: d.Node, Until: rc.now.Add(avoidFor)})
	case job.ProofDead, job.ProofExpired:
		rc.attempts.lostHost(t, d.Node, d.NodeName)
	}
	rc.movedTask(e, r.Attempt.Task)
}

func (rc *records) appliedResult(e *entry, r job.ResultRecord, before job.Task) {
	t := e.task(r.Attempt.Task)
	d := t.durable()
	if rc.lead {
		if before.Assigned && before.Attempt != r.Attempt.N {
			rc.surplus(t, before)
		}
		switch {
		case d.State != job.Pending || r.Exit.State == job.Preempted:
		case r.Exit.State == job.NodeFail:
			rc.attempts.lostHost(t, before.Node, before.NodeName)
		default:
			t.pause.until, t.pause.why = rc.now.Add(rc.jitter(backoff(d.Runs))), "after "+describe(r.Exit)
			t.avoid.Add(rc.now, place.Avoidance{Peer: before.Node, Until: rc.now.Add(avoidFor)})
		}
		rc.notify(Notice{Kind: TaskEnded, Attempt: r.Attempt, Peer: before.Node, Node: before.NodeName, State: d.State, Detail: describe(r.Exit)})
	}
	rc.movedTask(e, r.Attempt.Task)
}

// surplus ends a newer attempt of a task that an older one has finished.
func (rc *records) surplus(t *task, before job.Task) {
	if t.dispatch != nil {
		rc.dispatches.takeBack(t)
		return
	}
	rc.send(before.Node, lease.Cancel{
		Attempt: job.Attempt{Job: t.e.job.ID, Task: t.index, N: before.Attempt},
		Group:   rc.cfg.Group, Epoch: rc.epoch, Grace: t.e.job.Spec.GraceOr(), Reason: "an earlier attempt succeeded",
	})
}

func (rc *records) appliedCancel(e *entry, ok bool) {
	if ok {
		rc.moved(e)
	}
	rc.requests.settled(toCancel, e, nil)
	if !ok || !rc.lead {
		return
	}
	for _, t := range slices.Clone(e.tasks) {
		if t.dispatch != nil {
			rc.dispatches.abandon(t.dispatch)
		} else if t.durable().Assigned {
			rc.attempts.cancel(t)
		}
	}
}

func (rc *records) appliedHold(e *entry, r job.HoldRecord, ok bool) {
	kind := kindOf(r)
	var err error
	if ok {
		rc.moved(e)
	} else {
		err = conflict(e.job.ID, e.job.State(), kind)
	}
	rc.requests.settled(kind, e, err)
	if !ok || r.Release {
		return
	}
	for _, t := range slices.Clone(e.tasks) {
		if t.dispatch != nil {
			rc.dispatches.abandon(t.dispatch)
		}
	}
}

// describe is how an attempt ended, in a few words.
func describe(x job.Exit) string {
	switch {
	case x.Reason != "":
		return x.Reason
	case x.Signal != 0:
		return fmt.Sprintf("signal %d", x.Signal)
	}
	return fmt.Sprintf("exit code %d", x.Code)
}

// adopt begins anew with a job that an older owner looked after.
func (rc *records) adopt(e *entry) {
	for _, t := range slices.Clone(e.tasks) {
		rc.dispatches.takeBack(t)
		t.proposed, t.started, t.reported = 0, 0, false
		rc.settle(t)
		if t.durable().Assigned {
			rc.attempts.watch(t, rc.now.Add(reportWait))
		}
	}
}
