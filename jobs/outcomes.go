package jobs

// Which outcomes of attempts are kept, and when. See docs/adr, ADR 84.

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/jobs/jobspb"
)

// keep keeps the outcome of an attempt on the host that the task has.
func (ts *tasks) keep(t *job.Task, n int, x job.Exit) {
	o := outcome{n: uint32(n), host: ts.hostOf(host{t.Node, t.NodeName, t.Store})}
	o.set(x)
	ts.history.keep(t.Index, o)
}

// keepNewest keeps the outcome of the newest attempt, which another one is about to replace in the task.
func (ts *tasks) keepNewest(t *job.Task) {
	if t.Exit != nil && t.Attempt > ts.history.newest(t.Index) {
		ts.keep(t, t.Attempt, *t.Exit)
	}
	t.Exit = nil
}

// keepLost keeps the outcome of the newest attempt, whose host was lost.
func (ts *tasks) keepLost(t *job.Task, r job.UnassignRecord) {
	ts.keep(t, t.Attempt, job.Exit{State: job.NodeFail, Reason: r.Detail, Ended: r.At})
}

// keepLate keeps what a late success has changed. before is the task before it.
func (ts *tasks) keepLate(before job.Task, r job.ResultRecord) {
	newest := before.Attempt
	if newest > r.Attempt.N {
		ts.keepNewest(&before)
		if newest > ts.history.newest(before.Index) { // it was planned, or has begun
			ts.keep(&before, newest, job.Exit{State: job.Cancelled, Reason: "an earlier attempt succeeded", Ended: r.At})
		}
	}
	ts.history.replace(before.Index, r.Attempt.N, r.Exit)
}

// AddEarlier adds the earlier attempts of its tasks to a view of the job.
func AddEarlier(v *job.Job, j *Job) {
	for i := range v.Tasks {
		index := v.Tasks[i].Index
		if e := j.tasks.earlier(index); len(e.Outcomes) > 0 {
			if v.Earlier == nil {
				v.Earlier = map[int]job.Earlier{}
			}
			v.Earlier[index] = e
		}
	}
}

// Outcomes returns how the attempts of a task went, the newest last.
func Outcomes(j *Job, index int) []job.Outcome {
	return job.WithNewest(j.tasks.earlier(index).Outcomes, new(j.Task(index)))
}

func (ts *tasks) earlier(index int) (e job.Earlier) {
	o := ts.history.of[uint32(index)]
	if o == nil {
		return e
	}
	e = job.Earlier{Older: int(o.older), Outcomes: make([]job.Outcome, len(o.list))}
	for i := range o.list {
		x := &o.list[i]
		h := &ts.hosts[x.host]
		e.Outcomes[i] = job.Outcome{N: int(x.n), Node: h.peer, NodeName: h.name, Exit: x.exit()}
	}
	return e
}

// decodeOutcomes decodes the outcomes of one task.
func (ts *tasks) decodeOutcomes(index int, data []byte) error {
	var m jobspb.Outcomes
	if err := proto.Unmarshal(data, &m); err != nil {
		return err
	}
	o := &outcomes{older: m.GetOlder()}
	if n := len(m.GetList()); n == 0 || n > job.MaxOutcomes {
		return fmt.Errorf("%w: %d outcomes", errBadRow, n)
	}
	last := uint32(0)
	for _, x := range m.GetList() {
		e := x.GetExit().Value()
		if x.GetN() <= last || int(x.GetHost()) >= len(ts.hosts) || e == nil || e.Signal != int(uint8(e.Signal)) ||
			e.Code != int(int32(e.Code)) || len(e.Reason) > maxOutcomeReason {
			return fmt.Errorf("%w: outcome of attempt %d", errBadRow, x.GetN())
		}
		if _, known := numbers[e.State]; !known {
			return fmt.Errorf("%w: no state %.40q", errBadRow, e.State)
		}
		last = x.GetN()
		y := outcome{n: last, host: x.GetHost()}
		y.set(*e)
		o.list = append(o.list, y)
	}
	ts.history.put(index, o)
	return nil
}
