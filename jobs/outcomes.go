package jobs

// How the earlier attempts of the tasks went. The newest attempt is in the task itself, so a task with one attempt has
// nothing here.

import (
	"fmt"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/jobs/jobspb"
	"github.com/musterhq/muster/store/storepb"
)

const (
	// maxJobOutcomes bounds the outcomes that one job keeps, about 70 bytes each. Its tasks share them equally, and each
	// has at least one and at most job.MaxOutcomes.
	maxJobOutcomes = 1 << 18
	// maxOutcomeReason bounds the reason of an outcome, in bytes.
	maxOutcomeReason = 256
)

// outcomes holds the outcomes of the earlier attempts of one task.
type outcomes struct {
	list  []outcome // oldest first
	older uint32    // attempts before those in list, whose outcomes are not kept
	dirty bool      // it is in dirty.outcomes
}

// outcome is a job.Outcome in memory. Times are ns since 1970, 0 for none.
type outcome struct {
	began, ended  int64
	reason        string
	n, host       uint32
	code          int32
	signal, state uint8
	started       bool
}

// outcomesEach returns how many outcomes each task keeps.
func (ts *tasks) outcomesEach() int { return max(1, min(job.MaxOutcomes, maxJobOutcomes/ts.n)) }

// newestOutcome returns the number of the newest attempt whose outcome is kept, or was.
func (ts *tasks) newestOutcome(index int) int {
	if o := ts.outcomes[uint32(index)]; o != nil {
		return int(o.list[len(o.list)-1].n)
	}
	return 0
}

// keep adds the outcome of attempt n of a task. If there are too many, it drops the oldest.
func (ts *tasks) keep(t *job.Task, n int, x job.Exit, d *dirty) {
	if ts.outcomes == nil {
		ts.outcomes = map[uint32]*outcomes{}
	}
	o := ts.outcomes[uint32(t.Index)]
	if o == nil {
		o = &outcomes{}
		ts.outcomes[uint32(t.Index)] = o
	}
	if len(o.list) >= ts.outcomesEach() {
		o.list = append(o.list[:0], o.list[1:]...)
		o.older++
	}
	o.list = append(o.list, outcome{n: uint32(n), host: ts.hostOf(host{t.Node, t.NodeName, t.Store})})
	o.list[len(o.list)-1].set(x)
	o.change(t.Index, d)
}

// set replaces how the attempt ended.
func (o *outcome) set(x job.Exit) {
	o.began, o.ended = storepb.Nanos(x.Began), storepb.Nanos(x.Ended)
	if o.reason = x.Reason; len(o.reason) > maxOutcomeReason {
		o.reason = strings.ToValidUTF8(o.reason[:maxOutcomeReason], "")
	}
	o.code, o.signal, o.state, o.started = int32(x.Code), uint8(x.Signal), number(x.State), x.Started
}

// exit returns how the attempt ended.
func (o *outcome) exit() job.Exit {
	return job.Exit{
		State: stateOf(o.state), Code: int(o.code), Signal: int(o.signal), Reason: o.reason, Started: o.started,
		Began: storepb.Time(o.began), Ended: storepb.Time(o.ended),
	}
}

func (o *outcomes) change(index int, d *dirty) {
	if !o.dirty {
		o.dirty = true
		d.outcomes = append(d.outcomes, uint32(index))
	}
}

// keepNewest keeps the outcome of the newest attempt, which another one is about to replace in the task.
func (j *Job) keepNewest(t *job.Task) {
	if t.Exit != nil && t.Attempt > j.tasks.newestOutcome(t.Index) {
		j.tasks.keep(t, t.Attempt, *t.Exit, &j.dirty)
	}
	t.Exit = nil
}

// keepLost keeps the outcome of the newest attempt, whose host was lost.
func (j *Job) keepLost(t *job.Task, r job.UnassignRecord) {
	j.tasks.keep(t, t.Attempt, job.Exit{State: job.NodeFail, Reason: r.Detail, Ended: r.At}, &j.dirty)
}

// keepLate keeps what a late success has changed. before is the task before it.
func (j *Job) keepLate(before job.Task, r job.ResultRecord) {
	ts, newest := &j.tasks, before.Attempt
	if newest > r.Attempt.N {
		j.keepNewest(&before)
		if newest > ts.newestOutcome(before.Index) { // it was planned, or has begun
			ts.keep(&before, newest, job.Exit{State: job.Cancelled, Reason: "an earlier attempt succeeded", Ended: r.At}, &j.dirty)
		}
	}
	o := ts.outcomes[uint32(before.Index)]
	if o == nil {
		return
	}
	for i := range o.list {
		if o.list[i].n == uint32(r.Attempt.N) {
			o.list[i].set(r.Exit)
			o.change(before.Index, &j.dirty)
		}
	}
}

// AddOutcomes adds the outcomes of earlier attempts to the tasks of a view.
func (j *Job) AddOutcomes(v *job.Job) {
	for i := range v.Tasks {
		j.tasks.addOutcomes(&v.Tasks[i])
	}
}

// Outcomes returns how the attempts of a task went, the newest last.
func (j *Job) Outcomes(index int) []job.Outcome {
	t := j.tasks.get(index)
	j.tasks.addOutcomes(&t)
	return t.Outcomes()
}

func (ts *tasks) addOutcomes(t *job.Task) {
	o := ts.outcomes[uint32(t.Index)]
	if o == nil {
		return
	}
	t.Older, t.Earlier = int(o.older), make([]job.Outcome, len(o.list))
	for i := range o.list {
		x := &o.list[i]
		h := &ts.hosts[x.host]
		t.Earlier[i] = job.Outcome{N: int(x.n), Node: h.peer, NodeName: h.name, Exit: x.exit()}
	}
}

func (o *outcomes) encode() ([]byte, error) {
	m := &jobspb.Outcomes{Older: o.older}
	for i := range o.list {
		x := &o.list[i]
		m.List = append(m.List, &jobspb.Outcome{N: x.n, Host: x.host, Exit: storepb.FromExit(new(x.exit()))})
	}
	return proto.Marshal(m)
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
	if ts.outcomes == nil {
		ts.outcomes = map[uint32]*outcomes{}
	}
	ts.outcomes[uint32(index)] = o
	return nil
}
