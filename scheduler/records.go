package scheduler

// What happens when a record is committed: the jobs change, and whatever waited for the record goes on.

import (
	"slices"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler/place"
	"github.com/musterhq/muster/scheduler/state"
	"github.com/musterhq/muster/scheduler/step"
)

// records applies committed records to all parts.
type records struct {
	*step.Turn
	policies   *policies
	entries    *entries
	history    *history
	assigned   *assigned
	contact    *contact
	pending    *pending
	attempts   *attempts
	dispatches *dispatches
	leftOut    *leftOut
	gangStarts *gangStarts
	reports    *reports
	requests   *requests
	deaths     *deaths
	reset      *backoffReset
}

// seqOf numbers the records of the journal in order. An entry has fewer than 4,096 records.
func seqOf(index uint64, record int) uint64 { return index<<12 | uint64(record) }

// apply applies one record: it changes the jobs if the record is still valid, and then whatever waited for the record
// goes on.
func (rc *records) apply(r job.Record, seq uint64, epoch job.Epoch) {
	x := rc.entries.table.Apply(r, seq, epoch)
	for _, id := range x.Parents {
		rc.pending.parents.update(id)
	}
	rc.applied(r, x, epoch)
	rc.dependents(x)
}

// dependents updates the jobs that have changed with a job that they depend on.
func (rc *records) dependents(x state.Change) {
	for _, o := range x.Others {
		e := rc.entries.byID[o.Job.ID]
		if e == nil {
			continue
		}
		if !o.All {
			rc.entries.save(e)
			rc.pending.freed(e, o.Freed)
			continue
		}
		rc.moved(e, nil)
		if rc.Lead {
			rc.endActive(e, nil)
		}
	}
}

// applied goes on with whatever waited for a record that was applied.
func (rc *records) applied(r job.Record, x state.Change, epoch job.Epoch) {
	var e *entry
	if x.Job != nil {
		e = rc.entries.byID[x.Job.ID]
	}
	switch r := r.(type) {
	case job.SubmitRecord:
		if x.Moved {
			rc.moved(rc.add(x.Job), nil)
		}
		rc.requests.submitted(r.Job)
	case job.AssignRecord, job.AssignGangRecord, job.UnassignGangRecord:
		if e != nil {
			rc.appliedOwn(e, r, x, epoch)
		}
	case job.UnassignRecord:
		if x.Moved {
			rc.appliedUnassign(e, r, x)
		}
		rc.reports.acknowledge(r.Attempt)
	case job.ResultRecord:
		if x.Moved {
			rc.appliedResult(e, r, x)
		}
		rc.reports.acknowledge(r.Attempt)
	case job.CancelRecord:
		if e == nil {
			rc.requests.left(toCancel, r.Job)
			return
		}
		rc.appliedCancel(e, r, x.Moved)
	case job.HoldRecord:
		if e == nil {
			rc.requests.left(holdKind(r.Release), r.Job)
			return
		}
		rc.appliedHold(e, r, x.Moved)
	case job.RequeueRecord:
		if e == nil {
			rc.requests.notRequeued(r.Job)
			return
		}
		rc.appliedRequeue(e, r, x.Moved)
	case job.ParentRecord:
		rc.pending.parents.applied(r.Parent)
	case job.PurgeRecord:
		if x.Moved {
			rc.history.purged(r.Job)
		} else {
			delete(rc.history.purging, r.Job.Drawn()) // it was requeued before
		}
		forgotten(rc.requests, r.Job, e)
	}
}

// add makes the soft state of a job. Its request counts among the usual ones.
func (rc *records) add(j *state.Job) *entry {
	rc.policies.asked(&j.Spec, j.Len())
	return rc.entries.add(j)
}

// appliedOwn goes on with an applied record about attempts that acknowledges no event of a host.
func (rc *records) appliedOwn(e *entry, r job.Record, x state.Change, epoch job.Epoch) {
	switch r := r.(type) {
	case job.AssignRecord:
		if e.job.Has(r.Attempt.Task) {
			rc.appliedAssign(e, r, epoch, x.Moved)
		}
	case job.AssignGangRecord:
		if e.job.Has(r.Attempt.Task) {
			rc.appliedGang(e, r, epoch, x.Moved)
		}
	case job.UnassignGangRecord:
		if x.Moved {
			rc.movedGang(e, x)
		}
	}
}

// moved updates the soft state of a job after a record that changed tasks of these ranges; none means all.
func (rc *records) moved(e *entry, ranges []job.Range) {
	rc.entries.save(e)
	rc.settleAll(e, ranges)
}

// movedTask updates the soft state of a job after a record that changed one task.
func (rc *records) movedTask(e *entry, index int) {
	rc.entries.save(e)
	rc.settle(e.task(index))
	rc.pending.follow(e)
	rc.leftOut.noteEnd(e)
	rc.history.noteEnd(e)
}

// settleAll updates the soft state of the tasks of these ranges that have one; no ranges means all.
func (rc *records) settleAll(e *entry, ranges []job.Range) {
	for _, t := range e.in(ranges) {
		rc.settle(t)
	}
	rc.pending.followAll(e)
	rc.leftOut.noteEnd(e)
	rc.history.noteEnd(e)
}

// settle updates the soft state of a task to its durable state.
func (rc *records) settle(t *task) {
	d := t.durable()
	updateCounts(t)
	t.markChanged()
	if d.Assigned {
		if rc.assigned.put(t, d.Node) && rc.contact.sessions[d.Node] == 0 {
			rc.contact.seek(d.Node)
		}
	} else {
		if x := t.dispatch; x != nil && x.n <= d.Attempt {
			rc.dispatches.takeBack(t) // the host has reported the end of an attempt that it was not told to start
		}
		t.updateShown("")
		rc.deaths.left(t)
		rc.attempts.left(t)
		rc.assigned.remove(t)
	}
	if d.State == job.Pending {
		rc.pending.requeue(t)
	} else {
		if x := t.dispatch; x != nil && (!d.Assigned || d.Attempt != x.n || d.Node != x.target) {
			rc.dispatches.takeBack(t) // the task waits no longer
		}
		rc.pending.dequeue(t)
		rc.pending.setWaiting(t, false)
	}
	if d.Assigned {
		rc.attempts.assigned(t)
	}
	if d.State != job.Pending {
		rc.pending.unbar(t)
	}
	switch follows := !t.leads(); {
	case d.Assigned, state.Unsettled(t.e.job, t.index):
	case d.State.Ended():
		rc.pending.leave(t)
		t.e.drop(t)
	case follows: // rank 0 stands for it
		t.e.drop(t)
	}
}

// movedGang updates the soft state of a job after a record that changed a gang or a member. If members are to end
// because of another one, their hosts are told.
func (rc *records) movedGang(e *entry, x state.Change) {
	if lead := e.task(x.Gang.First); x.Settled && rc.Lead {
		lead.backOff(rc.Turn)
	}
	if !x.Settled && e.job.Brief(x.Task).State == job.Succeeded { // the others go on as before
		rc.movedTask(e, x.Task)
		return
	}
	rc.settleGang(e, x.Gang)
	if rc.Lead && !x.Settled {
		rc.endActive(e, []job.Range{x.Gang})
	}
}

// settleGang updates the soft state of a job after a record that changed tasks of a gang.
func (rc *records) settleGang(e *entry, gang job.Range) {
	rc.entries.save(e)
	for _, t := range e.in([]job.Range{gang}) {
		rc.settle(t)
	}
	rc.pending.follow(e)
	rc.history.noteEnd(e)
}

// appliedGang goes on with the dispatch that proposed to assign a gang, as appliedAssign does for a task.
func (rc *records) appliedGang(e *entry, r job.AssignGangRecord, epoch job.Epoch, ok bool) {
	gang := e.job.Element(r.Attempt.Task)
	t := e.task(gang.First)
	d := t.dispatch
	mine := rc.Lead && epoch == rc.Epoch && d != nil && d.gang != nil && d.n == r.Attempt.N && t.phase == confirming && slices.Equal(d.assignees(), r.Members)
	if ok {
		for i := gang.First; i <= gang.Last; i++ {
			if x := e.task(i); mine {
				x.move(rc.Turn, recorded)
			}
		}
		if !mine { // a host may have taken its place back in this very step
			rc.dispatches.takeBack(t)
		}
		rc.settleGang(e, gang)
		for i := gang.First; i <= gang.Last; i++ {
			rc.reset.placed(e, i)
		}
	}
	if !rc.Lead {
		return
	}
	if !ok && t.proposes(r.Attempt.N) {
		t.unpropose(rc.Turn)
	}
	switch {
	case epoch != rc.Epoch:
		rc.dispatches.takeBack(t)
		rc.settle(t)
	case ok && mine:
		rc.gangStarts.start(d)
	case ok:
		rc.attempts.giveUp(t, job.ProofDeclined, "its places were given back before its record was committed")
	case d != nil && d.n == r.Attempt.N:
		rc.dispatches.abandon(d)
	default:
		rc.settle(t)
	}
}

// appliedAssign goes on with the dispatch that proposed the Assign. If that dispatch is over, the attempt is given up:
// no Start was sent. An Assign of another epoch starts nothing (R10).
func (rc *records) appliedAssign(e *entry, r job.AssignRecord, epoch job.Epoch, ok bool) {
	if ok {
		rc.movedTask(e, r.Attempt.Task)
		rc.reset.placed(e, r.Attempt.Task)
	}
	if !rc.Lead {
		return
	}
	t := e.task(r.Attempt.Task)
	d := t.dispatch
	mine := d != nil && d.n == r.Attempt.N && d.target == r.Node
	if !ok && t.proposes(r.Attempt.N) {
		t.unpropose(rc.Turn)
	}
	switch {
	case epoch != rc.Epoch:
		rc.dispatches.takeBack(t)
		rc.settle(t)
	case ok && mine:
		t.move(rc.Turn, recorded)
		rc.dispatches.start(d)
	case ok:
		rc.attempts.giveUp(t, job.ProofDeclined, "the offer was dropped before its record was committed")
	case mine:
		rc.dispatches.abandon(d)
	default:
		rc.settle(t)
	}
}

func (rc *records) appliedUnassign(e *entry, r job.UnassignRecord, x state.Change) {
	t := e.task(r.Attempt.Task).leader()
	d := e.job.Brief(r.Attempt.Task)
	switch r.Proof {
	case job.ProofDeclined:
	case job.ProofNeverStarted:
		t.declines++
		t.pause.why = d.NodeName + " did not start it"
		if r.Detail != "" {
			t.pause.why = contract.Clip(t.pause.why + ": " + r.Detail)
		}
		t.avoid.Add(rc.Now, place.Avoidance{Peer: d.Node, Until: rc.Now.Add(backoff(t.declines)), Hard: true})
	case job.ProofOperator: // an operator has declared the host dead: no pause
		t.avoid.Add(rc.Now, place.Avoidance{Peer: d.Node, Until: rc.Now.Add(avoidFor)})
	case job.ProofDead, job.ProofExpired:
		t.backOff(rc.Turn)
	}
	if rc.Lead && slices.Contains([]job.Proof{job.ProofOperator, job.ProofDead, job.ProofExpired}, r.Proof) {
		rc.Totals.Ended[job.NodeFail]++ // its host is given up
	}
	if e.job.Gang() > 1 {
		rc.movedGang(e, x)
	} else {
		rc.movedTask(e, r.Attempt.Task)
	}
	endAfterFailures(rc.Turn, e)
}

func (rc *records) appliedResult(e *entry, r job.ResultRecord, x state.Change) {
	t, before := e.task(r.Attempt.Task), x.Before
	d := t.durable()
	if rc.Lead {
		rc.Totals.Ended[r.Exit.State]++
	}
	if e.job.Gang() > 1 {
		if rc.Lead {
			rc.Notify(step.Notice{Kind: step.TaskEnded, Attempt: r.Attempt, Peer: before.Node, Node: before.NodeName, State: d.State, Detail: describe(r.Exit)})
		}
		rc.movedGang(e, x)
		endAfterFailures(rc.Turn, e)
		return
	}
	if rc.Lead {
		if before.Assigned && before.Attempt != r.Attempt.N {
			rc.surplus(t, before)
		}
		if x.Moved {
			rc.leftOut.ended(t, before.Node, r.Exit, rc.Now)
		}
		t.backOff(rc.Turn)
		rc.Notify(step.Notice{Kind: step.TaskEnded, Attempt: r.Attempt, Peer: before.Node, Node: before.NodeName, State: d.State, Detail: describe(r.Exit)})
	}
	rc.movedTask(e, r.Attempt.Task)
	endAfterFailures(rc.Turn, e)
}

// surplus ends the newest attempt of a task, because an older attempt has turned out to have succeeded.
func (rc *records) surplus(t *task, before job.Task) {
	if t.dispatch != nil {
		rc.dispatches.takeBack(t)
		return
	}
	rc.Send(before.Node, contract.Cancel{
		Attempt: job.Attempt{Job: t.e.job.ID, Task: t.index, N: before.Attempt},
		Group:   rc.Config.Group, Epoch: rc.Epoch, Grace: t.e.job.Spec.GraceOr(), Reason: "an earlier attempt succeeded",
	})
}

func (rc *records) appliedCancel(e *entry, r job.CancelRecord, ok bool) {
	r.Tasks = state.Widen(e.job, r.Tasks)
	if ok {
		rc.moved(e, r.Tasks)
	}
	rc.requests.settled(toCancel, e, nil)
	if ok && rc.Lead {
		rc.endActive(e, r.Tasks)
	}
}

func (rc *records) appliedRequeue(e *entry, r job.RequeueRecord, ok bool) {
	var err error
	r.Tasks = state.Widen(e.job, r.Tasks)
	if ok {
		rc.history.reopened(e)
		rc.moved(e, r.Tasks)
	} else {
		_, err = nothingToRequeue(e.job.ID, e.job.CountsIn(r.Tasks), r.Failed)
	}
	rc.requests.settled(toRequeue, e, err)
	if ok && rc.Lead {
		rc.endActive(e, r.Tasks)
	}
}

// endActive ends the attempts of the tasks of these ranges that were told to end; no ranges means all.
func (rc *records) endActive(e *entry, ranges []job.Range) {
	for _, t := range e.in(ranges) {
		switch {
		case e.job.Ending(t.index) == job.NotEnding:
		case t.dispatch != nil:
			rc.dispatches.abandon(t.dispatch)
		case t.durable().Assigned:
			rc.attempts.cancel(t)
		}
	}
}

func (rc *records) appliedHold(e *entry, r job.HoldRecord, ok bool) {
	kind := holdKind(r.Release)
	r.Tasks = state.Widen(e.job, r.Tasks)
	var err error
	if ok {
		if r.Release {
			released(e, r.Tasks, rc.Now)
		}
		rc.moved(e, r.Tasks)
	} else {
		to, counts := job.Held, e.job.CountsIn(r.Tasks)
		if r.Release {
			to = job.Pending
		}
		if counts.Of(to) == 0 { // else an earlier record has done it
			err = rc.requests.conflict(e, r.Tasks, kind)
		}
	}
	rc.requests.settled(kind, e, err)
}
