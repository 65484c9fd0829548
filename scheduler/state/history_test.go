package state_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler/state"
	"github.com/musterhq/muster/scheduler/state/statetest"
)

// retried returns a table with a job of n tasks that has this spec.
func retried(n int, change func(*job.Spec)) (*state.Table, *state.Job) {
	table, s := state.NewTable(group), job.DefaultSpec()
	change(&s)
	return table, table.Apply(job.SubmitRecord{Job: id(0), User: "amy", Spec: s, At: start, Tasks: n}, 1, job.Epoch{}).Job
}

func TestEndsThatARetryFollows(t *testing.T) {
	failed := func(code int) job.Exit { return job.Exit{State: job.Failed, Code: code, Started: true} }
	on75 := func(s *job.Spec) { s.Retries, s.RetryOn = 1, []int{75, 137} }
	on124 := func(s *job.Spec) { s.Retries, s.RetryOn = 1, []int{124} }
	saves := func(s *job.Spec) { s.CheckpointExitCode = 85 }
	for name, tt := range map[string]struct {
		spec  func(*job.Spec)
		exit  job.Exit
		state job.State
		runs  int
	}{
		"no retries":                          {func(*job.Spec) {}, failed(1), job.Failed, 1},
		"any code":                            {func(s *job.Spec) { s.Retries = 1 }, failed(1), job.Pending, 1},
		"a code that is named":                {on75, failed(75), job.Pending, 1},
		"a code that is not named":            {on75, failed(1), job.Failed, 1},
		"a signal":                            {on75, job.Exit{State: job.Failed, Code: 137, Signal: 9, Started: true}, job.Pending, 1},
		"another signal":                      {on75, job.Exit{State: job.Failed, Code: 143, Signal: 15, Started: true}, job.Failed, 1},
		"out of memory":                       {on75, job.Exit{State: job.OutOfMemory, Code: 137, Signal: 9, Started: true}, job.Pending, 1},
		"the time limit":                      {on124, job.Exit{State: job.Timeout, Code: 143, Signal: 15, Started: true}, job.Pending, 1},
		"the time limit is not its code":      {on75, job.Exit{State: job.Timeout, Code: 75, Started: true}, job.Timeout, 1},
		"a lost host":                         {on75, job.Exit{State: job.NodeFail, Started: true}, job.Pending, 0},
		"it succeeded":                        {on75, job.Exit{State: job.Succeeded, Started: true}, job.Succeeded, 1},
		"it saved its state":                  {saves, failed(85), job.Pending, 0},
		"it saved its state at the limit":     {saves, job.Exit{State: job.Timeout, Code: 85, Started: true}, job.Pending, 0},
		"it saved its state during a drain":   {func(s *job.Spec) { s.CheckpointExitCode, s.Requeue = 85, false }, job.Exit{State: job.Preempted, Code: 85, Started: true}, job.Pending, 0},
		"another code than that":              {saves, failed(84), job.Failed, 1},
		"the code of a program not started":   {saves, job.Exit{State: job.Failed, Code: 85}, job.Failed, 1},
		"the code of a signal, by its number": {func(s *job.Spec) { s.CheckpointExitCode = 137 }, job.Exit{State: job.Failed, Code: 137, Signal: 9, Started: true}, job.Failed, 1},
	} {
		table, j := retried(1, tt.spec)
		table.Apply(job.AssignRecord{Attempt: attempt(0, 1), Node: "a"}, 2, job.Epoch{Term: 1})
		table.Apply(job.ResultRecord{Attempt: attempt(0, 1), Exit: tt.exit, At: start}, 3, job.Epoch{Term: 1})
		if x := j.Task(0); x.State != tt.state || x.Runs != tt.runs {
			t.Errorf("%s: %s after %d runs, want %s after %d", name, x.State, x.Runs, tt.state, tt.runs)
		}
	}
}

// A task may end with the checkpoint exit code for ever: this costs no retry. A failure in between does.
func TestCheckpointsCostNoRetry(t *testing.T) {
	table, j := retried(1, func(s *job.Spec) { s.CheckpointExitCode, s.Retries = 85, 1 })
	run := func(n, code int) job.State {
		table.Apply(job.AssignRecord{Attempt: attempt(0, n), Node: "a"}, 2, job.Epoch{Term: 1})
		table.Apply(job.ResultRecord{Attempt: attempt(0, n), Exit: job.Exit{State: job.Failed, Code: code, Started: true}, At: start}, 3, job.Epoch{Term: 1})
		return j.State()
	}
	for n := 1; n <= 100; n++ {
		if s := run(n, 85); s != job.Pending {
			t.Fatalf("after checkpoint %d it is %s, want %v", n, s, job.Pending)
		}
	}
	if x := state.Outcomes(j, 0); len(x) != job.MaxOutcomes+1 || x[16].Exit.State != job.Preempted || x[16].Exit.Reason != "it saved its state" || x[16].N != 100 {
		t.Errorf("outcomes %+v, want the last ones, with the checkpoint of attempt 100", x)
	}
	if s := run(101, 1); s != job.Pending {
		t.Errorf("after a failure it is %s, want %v", s, job.Pending)
	}
	if s := run(102, 85); s != job.Pending {
		t.Errorf("after another checkpoint it is %s, want %v", s, job.Pending)
	}
	if s := run(103, 1); s != job.Failed {
		t.Errorf("after two failures it is %s, want %v", s, job.Failed)
	}
}

// brief shows the outcomes of a task in a few words.
func brief(j *state.Job, index int) string {
	var words []string
	for _, o := range state.Outcomes(j, index) {
		words = append(words, fmt.Sprintf("%d %s %s", o.N, o.NodeName, o.Exit.State))
	}
	return strings.Join(words, ", ")
}

func TestOutcomesOfEachHistory(t *testing.T) {
	assign := func(n int, host string) job.Record {
		return job.AssignRecord{Attempt: attempt(0, n), Node: job.Peer(host), NodeName: host}
	}
	unassign := func(n int, p job.Proof) job.Record {
		return job.UnassignRecord{Attempt: attempt(0, n), Proof: p, Detail: "why", At: start}
	}
	requeue := job.RequeueRecord{Job: id(0), At: start}
	for name, tt := range map[string]struct {
		records []job.Record
		want    string
	}{
		"before the first":       {nil, ""},
		"the first is assigned":  {[]job.Record{assign(1, "a")}, "1 a RESERVED"},
		"the first has ended":    {[]job.Record{assign(1, "a"), ended(0, 1, job.Succeeded)}, "1 a SUCCEEDED"},
		"it failed and waits":    {[]job.Record{assign(1, "a"), ended(0, 1, job.Failed)}, "1 a FAILED"},
		"it failed and is again": {[]job.Record{assign(1, "a"), ended(0, 1, job.Failed), assign(2, "b")}, "1 a FAILED, 2 b RESERVED"},
		"both failed":            {[]job.Record{assign(1, "a"), ended(0, 1, job.Failed), assign(2, "b"), ended(0, 2, job.Timeout)}, "1 a FAILED, 2 b TIMEOUT"},
		"one was declined":       {[]job.Record{assign(1, "a"), ended(0, 1, job.Failed), assign(2, "b"), unassign(2, job.ProofDeclined)}, "1 a FAILED"},
		"one was declined, then one ended": {
			[]job.Record{assign(1, "a"), unassign(1, job.ProofNeverStarted), assign(2, "b"), ended(0, 2, job.Succeeded)}, "2 b SUCCEEDED",
		},
		"one was declined, then cancelled": {[]job.Record{assign(1, "a"), unassign(1, job.ProofDeclined), job.CancelRecord{Job: id(0), At: start}}, ""},
		"it failed, then was cancelled":    {[]job.Record{assign(1, "a"), ended(0, 1, job.Failed), job.CancelRecord{Job: id(0), At: start}}, "1 a FAILED"},
		"its host was lost":                {[]job.Record{assign(1, "a"), unassign(1, job.ProofExpired)}, "1 a NODE_FAIL"},
		"its host was lost, and it runs again": {
			[]job.Record{assign(1, "a"), unassign(1, job.ProofExpired), assign(2, "b"), ended(0, 2, job.Succeeded)}, "1 a NODE_FAIL, 2 b SUCCEEDED",
		},
		"its host was lost, and it had succeeded": {[]job.Record{assign(1, "a"), unassign(1, job.ProofExpired), ended(0, 1, job.Succeeded)}, "1 a SUCCEEDED"},
		"likewise, and another has begun": {
			[]job.Record{assign(1, "a"), unassign(1, job.ProofExpired), assign(2, "b"), ended(0, 1, job.Succeeded)}, "1 a SUCCEEDED, 2 b CANCELLED",
		},
		"likewise, and another has failed": {
			[]job.Record{assign(1, "a"), unassign(1, job.ProofExpired), assign(2, "b"), ended(0, 2, job.Failed), ended(0, 1, job.Succeeded)},
			"1 a SUCCEEDED, 2 b FAILED",
		},
		"likewise, and another was declined": {
			[]job.Record{assign(1, "a"), unassign(1, job.ProofExpired), assign(2, "b"), unassign(2, job.ProofDeclined), ended(0, 1, job.Succeeded)},
			"1 a SUCCEEDED, 2 b CANCELLED",
		},
		"it was told to end":            {[]job.Record{assign(1, "a"), requeue, ended(0, 1, job.Failed), assign(2, "b")}, "1 a CANCELLED, 2 b RESERVED"},
		"it was requeued when it ended": {[]job.Record{assign(1, "a"), ended(0, 1, job.Succeeded), requeue, assign(2, "b")}, "1 a SUCCEEDED, 2 b RESERVED"},
	} {
		table, j := retried(1, func(s *job.Spec) { s.Retries = 1 })
		for i, r := range tt.records {
			if !table.Apply(r, uint64(i+2), job.Epoch{Term: 1}).Moved {
				t.Errorf("%s: record %d has no effect", name, i)
			}
		}
		if got := brief(j, 0); got != tt.want {
			t.Errorf("%s: %s, want %s", name, got, tt.want)
		}
	}
}

// A task with one attempt stores no outcomes. A task with many keeps the last ones, fewer in a larger job.
func TestOutcomesAreBounded(t *testing.T) {
	for _, tt := range []struct{ tasks, attempts, kept int }{{1, 1, 0}, {1, 2, 1}, {600, 17, 16}, {600, 40, 16}, {100_000, 40, 2}, {job.MaxTasks, 40, 1}} {
		table, j := retried(tt.tasks, func(s *job.Spec) { s.Retries = job.MaxRetries })
		for n := 1; n <= tt.attempts; n++ {
			a := job.Attempt{Job: id(0), Task: tt.tasks - 1, N: n}
			table.Apply(job.AssignRecord{Attempt: a, Node: "a"}, 2, job.Epoch{})
			exit := job.Exit{State: job.Failed, Code: 1, Started: true, Reason: strings.Repeat("ö", 1000), Began: start, Ended: start.Add(time.Duration(n))}
			table.Apply(job.ResultRecord{Attempt: a, Exit: exit, At: start}, 3, job.Epoch{})
		}
		v := j.View(tt.tasks-1, 1)
		state.AddEarlier(v.Tasks, j)
		x := job.Earlier{}
		if v.Tasks[0].Earlier != nil {
			x = *v.Tasks[0].Earlier
		}
		if len(x.Outcomes) != tt.kept || x.Older+tt.kept != tt.attempts-1 {
			t.Errorf("%+v: %d are kept, %d are not, want the numbers of the case", tt, len(x.Outcomes), x.Older)
		}
		rows, err := j.TakeRows()
		if err != nil {
			t.Fatal(err)
		}
		size := 0
		for _, r := range rows {
			if r.Part != "" && r.Part[0] == 'o' {
				size += len(r.Data)
			}
		}
		if size > 400*tt.kept {
			t.Errorf("%+v: the row has %d bytes, want at most %v", tt, size, 400*tt.kept)
		}
		if tt.tasks > 1000 {
			continue
		}
		d := statetest.Disk{}
		d.Save(rows, nil)
		again, err := state.Decode(d.Rows(id(0), "", ""))
		if err != nil || !reflect.DeepEqual(state.Outcomes(again, tt.tasks-1), state.Outcomes(j, tt.tasks-1)) {
			t.Errorf("%+v: from the rows %v, %+v, want the same outcomes", tt, err, again)
		}
	}
}

// Rows of outcomes that do not fit the job are refused.
func TestDamagedOutcomesAreRefused(t *testing.T) {
	table, j := retried(1, func(s *job.Spec) { s.Retries = 1 })
	for i, r := range []job.Record{job.AssignRecord{Attempt: attempt(0, 1), Node: "a"}, ended(0, 1, job.Failed), job.AssignRecord{Attempt: attempt(0, 2), Node: "b"}} {
		table.Apply(r, uint64(i+2), job.Epoch{Term: 1})
	}
	rows, err := j.TakeRows()
	if err != nil {
		t.Fatal(err)
	}
	d := statetest.Disk{}
	d.Save(rows, nil)
	if _, err := state.Decode(d.Rows(id(0), "", "")); err != nil {
		t.Fatal(err)
	}
	const part = "o\x00\x00\x00\x00"
	for name, data := range map[string]string{
		"empty": "", "not protobuf": "\xff", "attempt 0": "\x0a\x06\x1a\x04\x0a\x02PD", "no exit": "\x0a\x02\x08\x01",
		"not an end":   "\x0a\x0d\x08\x01\x1a\x09\x0a\x07RUNNING",
		"no such host": "\x0a\x0c\x08\x01\x10\x09\x1a\x06\x0a\x04GONE", "no such state": "\x0a\x0a\x08\x01\x1a\x06\x0a\x04GONE",
	} {
		d[id(0)][part] = []byte(data)
		if _, err := state.Decode(d.Rows(id(0), "", "")); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// A task that saved its state and asks to run again was not preempted.
func TestOnlyPreemptedTasksAreToldSo(t *testing.T) {
	for name, tt := range map[string]struct {
		exit job.Exit
		want bool
	}{
		"preempted":                           {job.Exit{State: job.Preempted, Code: 143, Signal: 15, Started: true}, true},
		"it saved its state":                  {job.Exit{State: job.Failed, Code: 85, Started: true}, false},
		"it saved its state when told to end": {job.Exit{State: job.Preempted, Code: 85, Started: true}, false},
		"it failed":                           {job.Exit{State: job.Failed, Code: 1, Started: true}, false},
	} {
		table, j := retried(1, func(s *job.Spec) { s.CheckpointExitCode, s.Retries = 85, 2 })
		for i, r := range []job.Record{
			job.AssignRecord{Attempt: attempt(0, 1)}, job.ResultRecord{Attempt: attempt(0, 1), Exit: tt.exit, At: start}, job.AssignRecord{Attempt: attempt(0, 2)},
		} {
			if got := state.Preempted(j, 0); i == 0 && got || i == 2 && got != tt.want {
				t.Errorf("%s: before record %d: preempted is %v", name, i, got)
			}
			table.Apply(r, uint64(i+2), job.Epoch{Term: 1})
		}
		if got := state.Preempted(j, 0); got != tt.want {
			t.Errorf("%s: preempted is %v, want %v", name, got, tt.want)
		}
	}
}
