package scheduler

// The number and size of waiting jobs is bounded: for each user first.

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler/backlog"
	"github.com/musterhq/muster/scheduler/state"
	"github.com/musterhq/muster/scheduler/step"
)

func newBacklog(t *testing.T, b backlog.Limits) *filed {
	x := newFiled(t)
	x.core.entries.backlog.SetLimits(&b)
	return x
}

// ask submits a job and returns the error in the answer.
func (x *filed) ask(user string, operator bool, spec job.Spec) error {
	x.tok++
	return x.request(step.Submit{Token: x.tok, Submission: job.Submission{User: user, Operator: operator, Spec: spec}})
}

// request is step for a request that may be refused.
func (x *filed) request(e step.Event) error {
	fx := x.core.Step(x.now, e)
	for _, r := range fx.Reply {
		if r.Err != nil {
			return r.Err
		}
	}
	x.took(fx)
	for len(fx.Propose) > 0 {
		x.index++
		fx = x.core.Step(x.now, step.Committed{Committed: job.Committed{Index: x.index, Epoch: job.Epoch{Term: 1}, Records: fx.Propose}})
		x.took(fx)
	}
	return nil
}

func heldSpec() job.Spec {
	s := benchSpec(0)
	s.Hold = true
	return s
}

func TestOneUsersBacklogIsBounded(t *testing.T) {
	x := newBacklog(t, backlog.Limits{
		PerUser: backlog.Amount{Jobs: 10, Bytes: 2 << 20}, Users: map[string]backlog.Amount{"bob": {Jobs: 12, Bytes: 2 << 20}}, All: backlog.Amount{Jobs: 1000, Bytes: 1 << 30},
	})
	for user, most := range map[string]int{"amy": 10, "bob": 12} {
		for i := range most {
			if err := x.ask(user, false, heldSpec()); err != nil {
				t.Fatalf("job %d of %s: %v", i, user, err)
			}
		}
		err := x.ask(user, false, heldSpec())
		if !errors.Is(err, backlog.ErrFull) || !strings.Contains(err.Error(), fmt.Sprintf("user %s: %d jobs, and %d are the most", user, most, most)) ||
			!strings.Contains(err.Error(), "pending_jobs") || strings.Contains(err.Error(), "\n") {
			t.Errorf("one job too many of %s: %v, want ErrBacklog that names the user, the bound and pending_jobs, in one line", user, err)
		}
	}
	if err := x.ask("amy", true, heldSpec()); err != nil {
		t.Errorf("an operator: %v", err)
	}
	if err := x.ask("cat", false, heldSpec()); err != nil {
		t.Errorf("another user: %v", err)
	}
	var first job.ID
	for id, e := range x.core.entries.byID {
		if e.job.User == "bob" {
			first = id
		}
	}
	x.tok++
	x.step(step.Cancel{Token: x.tok, Job: first})
	if err := x.ask("bob", false, heldSpec()); err != nil {
		t.Errorf("after one was cancelled: %v", err)
	}
	x.tok++
	if err := x.request(step.Requeue{Token: x.tok, Job: first}); !errors.Is(err, backlog.ErrFull) {
		t.Errorf("a requeue passes the bound: %v, want ErrBacklog", err)
	}
}

// A job that runs or has ended no longer counts.
func TestBacklogCountsWaitingJobsOnly(t *testing.T) {
	x := newBacklog(t, backlog.Limits{PerUser: backlog.Amount{Jobs: 8, Bytes: 1 << 20}, All: backlog.Amount{Jobs: 100, Bytes: 1 << 30}})
	var ids []job.ID
	for range 8 {
		ids = append(ids, x.submit(benchSpec(0)))
	}
	if x.core.entries.backlog.Of("amy").Jobs != 8 {
		t.Errorf(`%+v waits, want ["amy"].Jobs 8`, x.core.entries.backlog.Of("amy"))
	}
	for _, id := range ids {
		x.release(id)
	}
	if n := len(x.answer()); n != 8 {
		t.Fatalf("%d started, want 8", n)
	}
	if b := x.core.entries.backlog; b.Users() > 0 || b.All() != (backlog.Amount{}) {
		t.Errorf("nothing waits, and %+v is counted, want no users and no amount", b)
	}
}

// Arrays and jobs with long lists of nodes count by their cost, and large job files by their bytes.
func TestBacklogCountsJobsByTheirCost(t *testing.T) {
	x := newBacklog(t, backlog.Limits{
		PerUser: backlog.Amount{Jobs: 20, Bytes: 1 << 20}, Users: map[string]backlog.Amount{"amy": {Jobs: 80, Bytes: 1 << 20}}, All: backlog.Amount{Jobs: 200, Bytes: 1 << 30},
	})
	array := heldSpec()
	array.Array = "0-999999"
	if err := x.ask("amy", false, array); !errors.Is(err, step.ErrLimit) { // it can never wait there
		t.Errorf("an array of a million tasks: %v, want ErrLimit", err)
	}
	array.Array = "0-9999"
	if err := x.ask("amy", false, array); err != nil {
		t.Errorf("an array of 10,000 tasks: %v", err)
	}
	list := heldSpec()
	for i := range 1000 {
		list.Exclude = append(list.Exclude, fmt.Sprintf("host-with-a-name-that-is-as-long-as-some-%d", i))
	}
	if err := x.ask("bob", false, list); !errors.Is(err, step.ErrLimit) {
		t.Errorf("a list of 1,000 nodes: %v, want ErrLimit", err)
	}
	for i := range 2 {
		large := largeSpec(i)
		large.Hold = true
		if err := x.ask("cat", false, large); err != nil {
			t.Fatal(err)
		}
	}
	large := largeSpec(3)
	large.Hold = true
	if err := x.ask("cat", false, large); !errors.Is(err, backlog.ErrFull) || !strings.Contains(err.Error(), "pending_bytes") {
		t.Errorf(`a third large job file: %v, want ErrBacklog and "pending_bytes" in it`, err)
	}
}

// A user may use as much as is still free. So a new user finds a place, however much others have submitted, and
// operators find more.
func TestBacklogIsShared(t *testing.T) {
	x := newBacklog(t, backlog.Limits{PerUser: backlog.Amount{Jobs: 100, Bytes: 1 << 30}, All: backlog.Amount{Jobs: 100, Bytes: 1 << 30}})
	had := map[string]int{}
	for _, user := range []string{"amy", "bob", "cat", "dan"} {
		for x.ask(user, false, heldSpec()) == nil {
			had[user]++
		}
	}
	if had["amy"] != 50 || had["bob"] != 25 || had["cat"] != 13 || had["dan"] != 6 {
		t.Errorf("users have %v, want amy 50, bob 25, cat 13 and dan 6", had)
	}
	for x.ask("amy", true, heldSpec()) == nil {
		had["operator"]++
	}
	if n := x.core.entries.backlog.All().Jobs; n != 100 || had["operator"] == 0 {
		t.Errorf("%d jobs wait, want 100, some of them of the operator", n)
	}
}

// After a restart waiting jobs are counted again. Submissions on their way to the journal count too.
func TestBacklogIsCountedAgainAfterARestart(t *testing.T) {
	x := newBacklog(t, backlog.DefaultLimits())
	x.submit(largeSpec(1))
	x.submit(heldSpec())
	before := x.core.entries.backlog
	saved := Saved{Applied: x.index}
	saved.load(t, x.disk)
	again := NewCore(x.core.turn.Config, saved, storyStart).entries.backlog
	if again.All() != before.All() || again.Of("amy") != before.Of("amy") || before.All().Jobs != 2 || before.All().Bytes < 350_000 {
		t.Errorf("counted %+v, before the restart %+v, want the same, 2 jobs and at least 350,000 bytes", again.Of("amy"), before.Of("amy"))
	}
	y := newBacklog(t, backlog.Limits{PerUser: backlog.Amount{Jobs: 3, Bytes: 1 << 20}, All: backlog.Amount{Jobs: 100, Bytes: 1 << 20}})
	var events []step.Event
	for range 5 {
		y.tok++
		events = append(events, step.Submit{Token: y.tok, Submission: job.Submission{User: "amy", Spec: heldSpec()}})
	}
	fx := y.core.Step(y.now, events...)
	if len(fx.Propose) != 3 || len(fx.Reply) != 2 {
		t.Fatalf("%d of 5 are proposed, want 3, and 2 refused", len(fx.Propose))
	}
	y.core.Step(y.now, step.NotProposed{Records: fx.Propose})
	if n := y.core.entries.backlog.All(); n != (backlog.Amount{}) {
		t.Errorf("%+v is counted of what the journal refused, want %v", n, (backlog.Amount{}))
	}
}

// commit has the journal commit records that the core did not propose.
func (x *filed) commit(records ...job.Record) {
	x.index++
	x.core.Step(x.now, step.Committed{Committed: job.Committed{Index: x.index, Epoch: job.Epoch{Term: 1}, Records: records}})
}

// act performs acts on single tasks of a job until one is refused. It returns how many were accepted.
func (x *filed) act(from, to int, e func(tok step.Token, tasks []job.Range) step.Event) int {
	for i := from; i < to; i++ {
		x.tok++
		if x.request(e(x.tok, []job.Range{{First: i, Last: i}})) != nil {
			return i - from
		}
	}
	return to - from
}

// Cancelling or holding any tasks of an array, for any reasons, costs no more than its submission. So no cancel is
// refused for lack of a place in the backlog.
func TestActsOnArraysCostNoMoreThanTheirSubmission(t *testing.T) {
	for _, tasks := range []int{2, 10, 70, 300, 20_000} {
		x := newBacklog(t, backlog.DefaultLimits())
		array := heldSpec()
		array.Array = fmt.Sprintf("0-%d", tasks-1)
		id := x.submit(array)
		e := x.core.entries.byID[id]
		least := e.costs
		reason := func(i int) string { return fmt.Sprint(i, strings.Repeat("x", 2000)) }
		n := x.act(0, min(tasks-1, 300), func(tok step.Token, list []job.Range) step.Event {
			first := list[0].First
			for i := first + 1000; i < tasks && len(list) < job.MaxRanges; i += 1000 { // as many ranges as one request may have
				list = append(list, job.Range{First: i, Last: i})
			}
			return step.Cancel{Token: tok, Job: id, Tasks: list, Reason: reason(first)}
		})
		if n != min(tasks-1, 300) || e.costs != least {
			t.Errorf("after %d cancels an array of %d tasks costs %+v, at its submission %+v; it holds %d bytes, want %v and %v", n, tasks, e.costs, least, state.Memory(e.job), min(tasks-1, 300), least)
		}
	}
}

// An array whose tasks have run costs what it holds in memory. Then its user can only cancel, and others may submit as
// much as before.
func TestBacklogCountsTasksThatHaveRun(t *testing.T) {
	x := newBacklog(t, backlog.Limits{PerUser: backlog.Amount{Jobs: 40, Bytes: 1 << 20}, All: backlog.Amount{Jobs: 80, Bytes: 1 << 20}})
	array := heldSpec()
	array.Array = "0-3999"
	id := x.submit(array)
	e := x.core.entries.byID[id]
	for i := range 3000 {
		a := job.Attempt{Job: id, Task: i, N: 1}
		exit := job.Exit{State: job.Failed, Code: 1, Started: true, Began: x.now, Ended: x.now}
		x.commit(job.HoldRecord{Job: id, Tasks: []job.Range{{First: i, Last: i}}, Release: true}, job.AssignRecord{Attempt: a, Node: "n"}, job.ResultRecord{Attempt: a, Exit: exit, At: x.now})
	}
	if held := int64(state.Memory(e.job) / backlog.MemoryPerJob); e.costs.Jobs != held || held < 60 || x.core.entries.backlog.Of("amy").Jobs != held {
		t.Fatalf("it costs %+v, and holds %d bytes, want the same, at least 60, and as much for the user", e.costs, state.Memory(e.job))
	}
	tasks := []job.Range{{First: 0, Last: 9}}
	for what, refused := range map[string]step.Event{
		"a submission": step.Submit{Token: 1001, Submission: job.Submission{User: "amy", Spec: heldSpec()}},
		"a requeue":    step.Requeue{Token: 1002, Job: id, Tasks: tasks},
	} {
		if err := x.request(refused); !errors.Is(err, backlog.ErrFull) || strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), "40 are the most") {
			t.Errorf("%s: %v, want ErrBacklog in one line, with the bound of 40", what, err)
		}
	}
	if err := x.ask("bob", false, heldSpec()); err != nil {
		t.Errorf("another user: %v", err)
	}
	if err := x.request(step.Cancel{Token: 1003, Job: id, Tasks: []job.Range{{First: 3500, Last: 3500}}}); err != nil {
		t.Errorf("a cancel of a task: %v", err)
	}
	if err := x.request(step.Cancel{Token: 1004, Job: id}); err != nil {
		t.Errorf("a cancel: %v", err)
	}
	if err := x.ask("amy", false, heldSpec()); err != nil {
		t.Errorf("after the cancel: %v", err)
	}
}
