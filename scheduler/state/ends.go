package state

// How the tasks of a job ended, summed up.

import (
	"time"

	"github.com/musterhq/muster/internal/store/storepb"
	"github.com/musterhq/muster/job"
)

// maxCode is the highest exit code. A host may report others, which count as this one, so that there are few ends.
const maxCode = 255

// end is that part of a task's end that counts for its job.
type end struct {
	code, status int
	silent       bool // no process ended by itself
	cancelled    bool // the task was cancelled
}

// ends sums up how the tasks of a job ended.
type ends struct {
	of    map[end]int // number of ended tasks with each end
	began time.Time   // of the first process
	last  time.Time   // when the last process ended
	stale bool        // an end was taken back: began and last must be found again
}

// count counts the end of a task n times more. It does nothing if the task has not ended.
func (es *ends) count(t *job.Task, n int) {
	spared := t.Reason.Word == job.ReasonGangEnded // it ended because another one did, whose code counts
	if !t.State.Ended() || t.Exit == nil && !spared {
		return
	}
	e := end{silent: spared, cancelled: t.State == job.Cancelled}
	if !spared {
		e.code, e.status = min(max(t.Exit.Code, -1), maxCode), min(max(t.Status(), -1), maxCode)
	}
	if es.of == nil {
		es.of = map[end]int{}
	}
	if es.of[e] += n; es.of[e] == 0 {
		delete(es.of, e)
	}
	if n > 0 && t.Exit != nil {
		es.span(t)
	}
}

// span extends began and last by a task that has ended.
func (es *ends) span(t *job.Task) {
	if !t.Started.IsZero() && (es.began.IsZero() || t.Started.Before(es.began)) {
		es.began = t.Started
	}
	if t.Ended.After(es.last) {
		es.last = t.Ended
	}
}

// respan finds began and last again.
func (es *ends) respan(cs *chunked) {
	es.began, es.last, es.stale = time.Time{}, time.Time{}, false
	for k := range cs.chunks {
		m := cs.chunks[k].mixed
		for i := 0; m != nil && i < len(m.cells); i++ {
			x := &m.cells[i]
			if stateOf(x.state).Ended() && x.flags&flagExit != 0 {
				es.span(&job.Task{Started: storepb.Time(x.started), Ended: storepb.Time(x.ended)})
			}
		}
	}
}

// sum sums up the ends. The code of a cancelled task counts only if no other task ended badly: it tells how the
// cancellation ended the task.
func (es *ends) sum(cs *chunked) job.Ends {
	if es.stale {
		es.respan(cs)
	}
	out, cancelled := job.Ends{Began: es.began, Last: es.last}, job.Ends{}
	badly, early := cs.counts.Ended()-cs.counts.Of(job.Cancelled), cs.counts.Of(job.Cancelled)
	for e, n := range es.of {
		of, left := &out, &badly
		if e.cancelled {
			of, left = &cancelled, &early
		}
		of.Exited, of.Code, of.Status = of.Exited || !e.silent, max(of.Code, e.code), max(of.Status, e.status)
		*left -= n
	}
	if badly > 0 { // this many tasks have ended without a process
		out.Status = max(out.Status, job.ExitMuster)
	}
	if early > 0 { // this many tasks were cancelled before they had a process
		cancelled.Status = max(cancelled.Status, job.ExitMuster)
	}
	if out.Status == 0 {
		out.Code, out.Status = max(out.Code, cancelled.Code), cancelled.Status
	}
	out.Exited = out.Exited || cancelled.Exited
	return out
}
