package scheduler

// Jobs of several tasks in states that only the journal can produce.

import (
	"fmt"
	"testing"
	"time"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler/state/statetest"
	"github.com/musterhq/muster/scheduler/step"
)

// Each task of a job runs once, and no soft state is kept of a task that has ended.
func TestEachTaskOfAJobRunsOnce(t *testing.T) {
	x, disk := newBench(t, 3, 4), statetest.Disk{}
	x.keep = true
	const n = 600
	id := job.NewID(7, 99)
	spec := benchSpec(0)
	x.index++
	x.step(step.Committed{Committed: job.Committed{Index: x.index, Epoch: job.Epoch{Term: 1}, Records: []job.Record{
		job.SubmitRecord{Job: id, User: "amy", Spec: spec, At: x.now, Tasks: n},
	}}})
	running := 0
	for round := 0; len(x.sent) > 0; round++ {
		x.serve()
		disk.Save(x.rows, nil)
		x.rows = nil
		if v, _ := x.core.View().Job(id); v.Counts.Total() != n || v.Counts != counted(x.core, id) {
			t.Fatalf("round %d: counts %v of %d tasks, want Total() %v and %v", round, v.Counts, n, n, counted(x.core, id))
		} else if v.Counts.Ended() < n && v.Counts.Ended() > 0 {
			running++
		}
	}
	if x.ended != n || running == 0 {
		t.Fatalf("%d tasks ended in %d rounds, want %d", x.ended, running, n)
	}
	e := x.core.entries.byID[id]
	if e == nil || len(e.tasks) != 0 {
		t.Fatalf("after its end %+v is kept, want no soft state of tasks", e)
	}
	if v, _ := x.core.View().Job(id); v.State() != job.Succeeded || len(v.Tasks) != ViewTasks || v.Tasks[255].NodeName == "" {
		t.Errorf("the job is %s, its view has %d tasks, want SUCCEEDED and the first tasks with their nodes", v.State(), len(v.Tasks))
	}
	kept, there := disk.Job(id)
	if !there || kept.Counts.Of(job.Succeeded) != n {
		t.Errorf("its rows tell %v, want all tasks SUCCEEDED", kept.Counts)
	}
}

// counted counts the tasks of a job by state, one by one.
func counted(c *Core, id job.ID) job.Counts {
	var out job.Counts
	e := c.entries.byID[id]
	soft := map[int]*task{}
	for _, t := range e.tasks {
		soft[t.index] = t
	}
	for i := range e.job.Len() {
		d := e.job.Task(i)
		if t := soft[i]; t != nil {
			c.views.task(t, &d)
		}
		out.Add(d.State, 1)
	}
	return out
}

// submitMany has the journal submit a job of n tasks.
func (x *bench) submitMany(n int, held bool) *entry {
	id, spec := job.NewID(7, 99), benchSpec(0)
	spec.Hold = held
	x.index++
	x.step(step.Committed{Committed: job.Committed{Index: x.index, Epoch: job.Epoch{Term: 1}, Records: []job.Record{
		job.SubmitRecord{Job: id, User: "amy", Spec: spec, At: x.now, Tasks: n},
	}}})
	return x.core.entries.byID[id]
}

// Soft state is kept only of active tasks and of the next one, also after a release and a change of the owner.
func TestSoftStateIsKeptOfActiveTasksOnly(t *testing.T) {
	x := newBench(t, 3, 4)
	e := x.submitMany(1_000_000, true)
	const soft = 256 // more than may be offered to three hosts, including queued offers
	few := func(when string) {
		t.Helper()
		if n := len(e.tasks); n > e.job.Assigned()+soft {
			t.Fatalf("%s: soft state of %d tasks, %d are assigned, want at most %v", when, n, e.job.Assigned(), e.job.Assigned()+soft)
		}
		if c := x.core.views.of(e).Counts; c.Total() != 1_000_000 {
			t.Fatalf("%s: counts %v, want Total() 1_000_000", when, c)
		}
	}
	few("held")
	x.step(step.Hold{Token: 1, Job: e.job.ID, Release: true})
	few("released")
	for range 20 {
		x.serve()
	}
	few("running")
	ran := x.ended
	if ran == 0 {
		t.Fatal("no task has run, want some")
	}
	x.step(step.Deposed{Epoch: job.Epoch{Term: 1}})
	few("deposed")
	x.sent = nil
	x.step(step.Committed{Committed: job.Committed{Index: x.index, Epoch: job.Epoch{Term: 1}, Lead: true}})
	few("owner again")
	for _, d := range x.core.views.of(e).Tasks {
		if d.State == job.Pending && d.Reason.Word == "" {
			t.Fatalf("task %d waits without a reason", d.Index)
		}
	}
	x.step(step.Cancel{Token: 3, Job: e.job.ID})
	few("cancelled")
	if c := e.job.Counts(); c.Of(job.Cancelled) < 1_000_000-ran-soft {
		t.Errorf("counts %v, want Of(job.Cancelled) at least %v", c, 1_000_000-ran-soft)
	}
}

// No task of a job is skipped, although its owner changes while some of them run. Those stay assigned here, as nobody
// answers when the new owner asks for them.
func TestNewOwnerSkipsNoTask(t *testing.T) {
	x := newBench(t, 3, 4)
	const n = 3000
	e := x.submitMany(n, false)
	for round := 0; len(x.sent) > 0; round++ {
		if round == 5 {
			x.step(step.Deposed{Epoch: job.Epoch{Term: 1}})
			x.step(step.Committed{Committed: job.Committed{Index: x.index, Epoch: job.Epoch{Term: 1}, Lead: true}})
		}
		x.serve()
	}
	c := e.job.Counts()
	if c.Of(job.Pending) != 0 || c.Of(job.Succeeded) != x.ended || x.ended+e.job.Assigned() != n {
		t.Errorf("%d have ended, %d are assigned: %v, want no pending task, and the others succeeded or assigned", x.ended, e.job.Assigned(), c)
	}
}

// More tasks of a throttled array pause before a retry than may have soft state. Still all of them end, no more than
// the limit are active, and the others run in the meantime.
func TestThrottledArrayKeepsItsLimitDuringRetries(t *testing.T) {
	x := newBench(t, 3, 64)
	x.fails = true
	const n, most = 3 * maxPaused / 2, 64
	spec := benchSpec(0)
	spec.Array, spec.Retries = fmt.Sprintf("0-%d%%%d", n-1, most), 1
	x.step(step.Submit{Token: 1, Submission: job.Submission{Spec: spec}})
	e := x.core.entries.byID[x.core.entries.table.Jobs()[0].ID]
	full := 0
	for round := 0; !e.job.Ended(); round++ {
		if len(x.sent) == 0 { // the others pause
			x.now = x.now.Add(time.Minute)
			x.step()
		}
		if e.active > most || e.job.Assigned() > most {
			t.Fatalf("round %d: %d tasks are active, %d are assigned, want at most %d", round, e.active, e.job.Assigned(), most)
		}
		if e.job.Assigned() == most {
			full++
		}
		if len(e.tasks) > maxPaused+most {
			t.Fatalf("round %d: soft state of %d tasks, want at most %v", round, len(e.tasks), maxPaused+most)
		}
		if round > 10*n {
			t.Fatalf("%v after %d rounds; %d are active, %d wait for others, want at most %v", e.job.Counts(), round, e.active, len(e.barred), 10*n)
		}
		x.serve()
	}
	if c := e.job.Counts(); c.Of(job.Succeeded) != n || len(e.tasks) != 0 || len(e.barred) != 0 {
		t.Errorf("counts %v, soft state of %d tasks, want all SUCCEEDED and no soft state", c, len(e.tasks))
	}
	if full < n/most { // two attempts of each task, 64 at a time
		t.Errorf("only in %d rounds were %d tasks active, want at least %v", full, most, n/most)
	}
}

// The view of an array for a watcher, and a request about one task, cost the same for any number of active tasks.
func TestActiveTasksDoNotMakeViewsAndRequestsCostly(t *testing.T) {
	x := newBench(t, 100, 128)
	x.step(step.Submit{Token: 1, Submission: job.Submission{Spec: func() job.Spec { s := benchSpec(0); s.Array = "0-9999"; return s }()}})
	e := x.core.entries.byID[x.core.entries.table.Jobs()[0].ID]
	x.run()
	if c := x.core.views.counts(e); c.Of(job.Running) != 10_000 {
		t.Fatalf("counts %v, want Of(job.Running) 10_000", c)
	}
	allocs := testing.AllocsPerRun(100, func() { x.core.views.brief(e) })
	if allocs > 4 {
		t.Errorf("a view for a watcher takes %v allocations, want at most 4", allocs)
	}
	x.step(step.Cancel{Token: 2, Job: e.job.ID, Tasks: []job.Range{{First: 5000, Last: 5000}}})
	if len(e.touched) > 1 || len(x.sent) != 1 {
		t.Errorf("a cancel of one task touches %d tasks and sends %d messages, want at most 1 and 1", len(e.touched), len(x.sent))
	}
}

// The tasks of an array are not counted as ahead of each other, even if some have been offered and queue at a full
// host.
func TestTasksOfAnArrayAreNotAheadOfEachOther(t *testing.T) {
	x := newBench(t, 1, 1)
	first, _ := x.waits(t, func(s *job.Spec) { s.Array = "0-19" })
	second, _ := x.waits(t, func(s *job.Spec) { s.Array = "0-4" })
	counts := x.core.entries.byID[first].job.Counts()
	waiting := counts.Of(job.Pending)
	a, err1 := x.core.View().Why(first)
	b, err2 := x.core.View().Why(second)
	if err1 != nil || err2 != nil || a.Ahead != 0 || b.Ahead != waiting || waiting < 15 {
		t.Errorf("ahead of the first: %d, %v; of the second: %d, %v, want the %d that wait", a.Ahead, err1, b.Ahead, err2, waiting)
	}
}

// Tasks that cannot use any host of a job are not counted as ahead of it.
func TestTasksOfOtherHostsAreNotAhead(t *testing.T) {
	x := newBench(t, 2, 1)
	on := func(name, array string) func(*job.Spec) {
		return func(s *job.Spec) { s.NodeList, s.Array = []string{name}, array }
	}
	x.waits(t, on("w0", "0-99"))
	x.waits(t, on("w1", "0-3"))
	last, _ := x.waits(t, on("w1", ""))
	either, _ := x.waits(t, on("w[0-1]", ""))
	a, err1 := x.core.View().Why(last)
	b, err2 := x.core.View().Why(either)
	if err1 != nil || err2 != nil || a.Ahead < 3 || a.Ahead > 4 || b.Ahead < 100 {
		t.Errorf("ahead of a job for w1: %d, %v, want those for w1 only; of a job for both: %d, %v", a.Ahead, err1, b.Ahead, err2)
	}
}
