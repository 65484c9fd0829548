package jobs

// How the tasks of a job ended, summed up.

import (
	"time"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/store/storepb"
)

// maxCode is the highest exit code. A host may report others, which count as this one, so that there are few ends.
const maxCode = 255

// end is what counts of a task's end for its job.
type end struct {
	code, status int
	silent       bool // no process ended by itself
}

// countEnd counts the end of a task n times more. It does nothing if the task has not ended.
func (ts *tasks) countEnd(t *job.Task, n int) {
	spared := t.Reason.Word == job.ReasonGangEnded // it ended because another one did, whose code counts
	if ts.n == 1 || !t.State.Ended() || t.Exit == nil && !spared {
		return // a single task is looked at when its end is asked for
	}
	e := end{silent: spared}
	if !spared {
		e.code, e.status = min(max(t.Exit.Code, -1), maxCode), min(max(t.Status(), -1), maxCode)
	}
	if ts.ends == nil {
		ts.ends = map[end]int{}
	}
	if ts.ends[e] += n; ts.ends[e] == 0 {
		delete(ts.ends, e)
	}
	if n > 0 && t.Exit != nil {
		ts.span(t)
	}
}

// span extends began and last by a task that has ended.
func (ts *tasks) span(t *job.Task) {
	if !t.Started.IsZero() && (ts.began.IsZero() || t.Started.Before(ts.began)) {
		ts.began = t.Started
	}
	if t.Ended.After(ts.last) {
		ts.last = t.Ended
	}
}

// respan finds began and last again.
func (ts *tasks) respan() {
	ts.began, ts.last, ts.stale = time.Time{}, time.Time{}, false
	for k := range ts.chunks {
		m := ts.chunks[k].mixed
		for i := 0; m != nil && i < len(m.cells); i++ {
			x := &m.cells[i]
			if stateOf(x.state).Ended() && x.flags&flagExit != 0 {
				ts.span(&job.Task{Started: storepb.Time(x.started), Ended: storepb.Time(x.ended)})
			}
		}
	}
}

// sum sums up the ends.
func (ts *tasks) sum() job.Ends {
	if ts.n == 1 {
		return job.EndsOf([]job.Task{ts.get(0)})
	}
	if ts.stale {
		ts.respan()
	}
	out := job.Ends{Began: ts.began, Last: ts.last}
	counted := 0
	for e, n := range ts.ends {
		out.Exited, out.Code, out.Status = out.Exited || !e.silent, max(out.Code, e.code), max(out.Status, e.status)
		counted += n
	}
	if ts.counts.Ended() > counted { // the others have ended without a process, for example when they were cancelled
		out.Status = max(out.Status, job.ExitMuster)
	}
	return out
}
