package scheduler

// The jobs that are kept whole: what the records tell of them, and their rows that are not saved yet.

import (
	"time"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/jobs"
)

// entries are the jobs that are kept whole.
type entries struct {
	*turn

	table   *jobs.Table // durable: a function of the committed records
	applied uint64      // the last entry of the journal that the table has taken
	byID    map[job.ID]*entry
	unsaved []*entry // whose rows this step has changed

	started  time.Time // the first step's time: with it the wall clock of this life is steady
	youngest time.Time // since when the newest job waits
	newest   time.Time // that a row or a record tells, by the wall clock of whoever wrote it
}

// changed marks a job for watchers.
func (es *entries) changed(e *entry) {
	if !e.showing {
		e.showing = true
		es.fx.Changed = append(es.fx.Changed, e.job.ID)
	}
}

// save has the rows that a record changed saved with this step.
func (es *entries) save(e *entry) {
	e.changedAt = es.applied
	if !e.saving {
		e.saving = true
		es.unsaved = append(es.unsaved, e)
	}
	es.changed(e)
}

// bornAt is when a job of this submission was born, in terms of this life's clock:
// now, if it is new, and else as long ago as the wall clocks of both lives tell.
// Jobs are added in their order, and none is younger than one that came later.
func (es *entries) bornAt(submitted time.Time) time.Time {
	es.wrote(submitted)
	born := es.now
	if !es.lead {
		born = es.now.Add(-max(0, es.wall().Sub(submitted)))
	}
	if !born.After(es.youngest) {
		born = es.youngest.Add(1)
	}
	es.youngest = born
	return born
}

// setBackMost is how far the wall clock may lie behind what the journal tells for
// the journal to be believed: beyond, it was the older clock that was wrong.
const setBackMost = 24 * time.Hour

// wall is the wall clock, or what the journal tells if that is later: the clock was
// set back since, and no job is younger for it.
func (es *entries) wall() time.Time {
	now := es.now.Round(0)
	if es.newest.After(now) && es.newest.Sub(now) < setBackMost {
		return es.newest
	}
	return now
}

// wrote notes a time that an earlier life wrote down.
func (es *entries) wrote(at time.Time) {
	if at.After(es.newest) {
		es.newest = at.Round(0)
	}
}

// add makes the soft half of a job, and of its tasks that have not ended.
func (es *entries) add(j *jobs.Job) *entry {
	e := &entry{job: j, priority: j.Spec.Priority, born: es.bornAt(j.Submitted)}
	for i := range j.Len() {
		if !j.Brief(i).State.Ended() {
			e.tasks = append(e.tasks, &task{e: e, index: i})
		}
	}
	es.byID[j.ID] = e
	return e
}

// steady is the wall clock at this daemon's start and the time since: one that
// nobody sets.
func (es *entries) steady() time.Time { return es.started.Add(es.now.Sub(es.started)) }
