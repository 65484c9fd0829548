package state_test

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler/state"
)

// decoded returns the job as a restart reads it.
func decoded(t *testing.T, j *state.Job) *state.Job {
	t.Helper()
	rows, err := j.TakeRows()
	if err != nil {
		t.Fatal(err)
	}
	again, err := state.Decode(rows)
	if err != nil {
		t.Fatal(err)
	}
	return again
}

// A job keeps the last acts of people and the times of its assignments, even over a restart.
func TestActsAndPlacementsSurviveARestart(t *testing.T) {
	at := func(s int) time.Time { return start.Add(time.Duration(s) * time.Second) }
	table, j := retried(600, func(s *job.Spec) { s.Retries = 1 })
	seq := uint64(1)
	apply := func(r job.Record, moves bool) {
		t.Helper()
		seq++
		if table.Apply(r, seq, job.Epoch{Term: 1}).Moved != moves {
			t.Errorf("%+v: moves %v, want the opposite", r, !moves)
		}
	}
	some := []job.Range{{First: 3, Last: 5}}
	apply(job.HoldRecord{Job: id(0), Tasks: some, Reason: "look", At: at(1)}, true)
	apply(job.HoldRecord{Job: id(0), Tasks: some, At: at(2)}, false) // an act without effect is not listed
	apply(job.HoldRecord{Job: id(0), Tasks: some, Release: true, At: at(3)}, true)
	apply(job.AssignRecord{Attempt: attempt(4, 1), Node: "a", NodeName: "a", At: at(4)}, true)
	apply(job.ResultRecord{Attempt: attempt(4, 1), Exit: job.Exit{State: job.Failed, Code: 1, Started: true, Began: at(5), Ended: at(6)}, At: at(7)}, true)
	apply(job.AssignRecord{Attempt: attempt(4, 2), Node: "b", NodeName: "b", At: at(8)}, true)
	apply(job.CancelRecord{Job: id(0), Reason: "enough", At: at(9)}, true)
	for _, j := range []*state.Job{j, decoded(t, j)} {
		v := j.View(4, 1)
		want := []job.Act{
			{Kind: job.ActHold, At: at(1), Tasks: some, Reason: "look"},
			{Kind: job.ActRelease, At: at(3), Tasks: some},
			{Kind: job.ActCancel, At: at(9), Reason: "enough"},
		}
		if !reflect.DeepEqual(v.Acts, want) || v.OlderActs != 0 {
			t.Errorf("acts %+v, want the expected ones and no older", v.Acts)
		}
		state.AddEarlier(v.Tasks, j)
		o := v.Tasks[0].Outcomes()
		if len(o) != 2 || !o[0].Placed.Equal(at(4)) || !o[1].Placed.Equal(at(8)) {
			t.Errorf("attempts %+v, want 2, placed when they were assigned", o)
		}
		if p := j.Task(3).Placed; !p.IsZero() {
			t.Errorf("a task that was never assigned was placed at %s", p)
		}
	}
	var begun []int
	state.EachBegun(j, []job.Range{{First: 0, Last: 599}}, func(i int) bool { begun = append(begun, i); return true })
	if !reflect.DeepEqual(begun, []int{4}) {
		t.Errorf("the tasks %v have an attempt, want %v", begun, []int{4})
	}
}

// A user who holds and releases a job again and again does not make it large.
func TestActsAreBounded(t *testing.T) {
	table, j := retried(2000, func(*job.Spec) {})
	var ranges []job.Range
	for i := range 900 {
		ranges = append(ranges, job.Range{First: 2 * i, Last: 2 * i})
	}
	for n := range 200 {
		table.Apply(job.HoldRecord{Job: id(0), Tasks: ranges, Release: n%2 == 1, Reason: fmt.Sprintf("%01000d", n), At: start}, uint64(n+2), job.Epoch{})
	}
	for _, j := range []*state.Job{j, decoded(t, j)} {
		v := j.View(0, 0)
		last := v.Acts[len(v.Acts)-1]
		if len(v.Acts) != 64 || v.OlderActs != 136 || len(last.Tasks) != job.MaxActRanges || !last.More || len(last.Reason) > 256 || last.Kind != job.ActRelease {
			t.Errorf("%d acts, %d older, the last %+v, want 64, 136 and a release with its ranges and reason cut", len(v.Acts), v.OlderActs, last)
		}
	}
	table.Apply(job.HoldRecord{Job: id(0), At: start}, 1000, job.Epoch{})
	rows, err := j.TakeRows()
	if err != nil || len(rows[0].Data) > 40<<10 {
		t.Errorf("the header has %d bytes, %v, want no error and at most %v", len(rows[0].Data), err, 40<<10)
	}
}
