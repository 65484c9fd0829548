package scheduler

// The jobs that are kept in memory: their durable state, and which of their rows are not saved yet.

import (
	"time"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler/backlog"
	"github.com/musterhq/muster/scheduler/state"
	"github.com/musterhq/muster/scheduler/step"
)

// entries keeps the jobs that are not archived.
type entries struct {
	*step.Turn

	table   *state.Table // durable: it follows from the committed records alone
	applied uint64       // index of the last journal entry that the table has applied
	byID    map[job.ID]*entry
	unsaved []*entry // the jobs whose rows this step has changed
	bulk    int      // bytes of their job files that are in memory
	backlog backlog.Backlog
	holders holders

	started  time.Time // when this life of the daemon began; steady counts from it
	youngest time.Time // when the newest job was born
	order    uint64    // of the newest job
	newest   time.Time // the latest time in a row or a record, by the wall clock of the daemon that wrote it
}

// changed notes that a task looks different now, for watchers.
func (es *entries) changed(t *task) {
	t.markChanged()
	es.showing(t.e)
}

// showing notes that a job looks different now, for watchers.
func (es *entries) showing(e *entry) {
	if !e.showing {
		e.showing = true
		es.Effects.Changed = append(es.Effects.Changed, e.job.ID)
	}
}

// save notes that a record has changed rows of the job. They are saved with this step.
func (es *entries) save(e *entry) {
	e.changedAt = es.applied
	if !e.saving {
		e.saving = true
		es.unsaved = append(es.unsaved, e)
		es.bulk += len(e.job.File.Text())
	}
	es.weigh(e)
	es.showing(e)
}

// weigh counts in the backlog what the job costs now.
func (es *entries) weigh(e *entry) {
	if costs := backlog.CostNow(e.job, e.least); costs != e.costs {
		es.backlog.Shift(e.job.User, costs.Minus(e.costs))
		e.costs = costs
	}
}

// bornAt returns when a job that was queued at this time was born, by the clock of this life of the daemon. A new job
// is born now. A job of an earlier life was born as long ago as the wall clocks of both lives say. Jobs are added in
// the order of state.Job.Seq, and each is born after the one before.
func (es *entries) bornAt(queued time.Time) time.Time {
	es.wrote(queued)
	born := es.Now
	if !es.Lead {
		born = es.Now.Add(-max(0, es.wall().Sub(queued)))
	}
	if !born.After(es.youngest) {
		born = es.youngest.Add(1)
	}
	es.youngest = born
	return born
}

// bear notes when a job was born. Its order is the wall-clock time at which it was queued, or later, so that hosts
// order the gangs of this owner exactly as the owner does. Otherwise the owner would take back what hosts give, again
// and again.
func (es *entries) bear(e *entry) {
	e.born = es.bornAt(e.job.Queued)
	es.order = max(es.order+1, uint64(max(0, e.job.Queued.UnixNano())))
	e.order = es.order
}

// setBackMost is how far the wall clock may be behind the times in the journal. If it is further behind, the older
// clock was wrong, not this one.
const setBackMost = 24 * time.Hour

// wall is the time of the wall clock, or the latest time in the journal if that is later: then the clock was set back,
// and jobs must not seem younger because of that.
func (es *entries) wall() time.Time {
	now := es.Now.Round(0)
	if es.newest.After(now) && es.newest.Sub(now) < setBackMost {
		return es.newest
	}
	return now
}

// wrote notes a time that an earlier life of the daemon wrote into a row or a record.
func (es *entries) wrote(at time.Time) {
	if at.After(es.newest) {
		es.newest = at.Round(0)
	}
}

// add makes the soft state of a job, and of its tasks that are assigned. Tasks that wait get theirs from
// pending.follow.
func (es *entries) add(j *state.Job) *entry {
	e := &entry{job: j, priority: allowed(es.Turn, j), holder: es.holders.join(j.User)}
	e.least = backlog.Cost(&j.Spec, j.Len(), j.File.Size())
	counts := j.Counts()
	e.placed = j.Assigned()+counts.Ended() > 0 || j.Brief(0).Attempt > 0
	es.bear(e)
	if l, err := j.Spec.Layout(); err == nil { // else a daemon of a later version accepted the job
		e.layout, e.atOnce = l, l.AtOnce()
	}
	if j.Waits != nil || e.atOnce > 0 { // no record says since when it waits for room alone
		e.parents.able = es.Now
	}
	for i, n := 0, 0; n < j.Assigned() && i < j.Len(); i++ {
		assigned := j.Brief(i).Assigned
		if assigned {
			n++
		}
		if assigned || i%j.Gang() == 0 && j.Gang() > 1 && state.ElementAssigned(j, i) { // rank 0 stands for the gang
			e.tasks = append(e.tasks, &task{e: e, index: i})
		}
	}
	if at := j.Spec.Begin; at != nil && at.After(es.Now.Round(0)) && j.Brief(0).Attempt == 0 { // a job that ran has begun
		e.begin = &begin{Value: e}
	}
	es.byID[j.ID] = e
	es.weigh(e)
	return e
}

// remove forgets the soft state of a job, if there is any.
func (es *entries) remove(id job.ID) {
	if e := es.byID[id]; e != nil {
		es.holders.leave(e.job.User)
		delete(es.byID, id)
	}
}

// allowed returns the priority of a job, but at most the highest that its user may give now. The job may have been
// accepted under another configuration, or by an earlier version.
func allowed(tn *step.Turn, j *state.Job) int {
	most, _ := tn.Config.Priorities.Highest(j.User)
	return min(j.Spec.Priority, most)
}

// steady is the wall-clock time at the start of this daemon, plus the time since by the monotonic clock. Nobody can set
// it.
func (es *entries) steady() time.Time { return es.started.Add(es.Now.Sub(es.started)) }

// roomToRequeue returns ErrFull if the job may not wait again. e is nil if the job is archived; then its user has not
// changed, and it counts as one job.
func roomToRequeue(es *entries, id job.ID, e *entry) error {
	if x, archived := es.table.Archived(id); archived {
		return es.backlog.Check(x.User(), false, backlog.Amount{Jobs: 1})
	}
	if e.costs.Jobs < e.least.Jobs { // it does not wait
		return es.backlog.Check(e.job.User, false, e.least.Minus(e.costs))
	}
	return roomToGrow(es, e)
}

// roomToGrow returns ErrFull if the job costs more than at its submission and its user has too much waiting.
func roomToGrow(es *entries, e *entry) error {
	if e.costs.Jobs <= e.least.Jobs {
		return nil
	}
	return es.backlog.CheckGrown(e.job.User)
}
