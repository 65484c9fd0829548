package scheduler

// Jobs of several tasks, which only the journal can bring so far.

import (
	"testing"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/jobs/jobstest"
)

// Each task of a job of several tasks runs once, and no soft state is kept of a task that has ended.
func TestJobOfSeveralTasks(t *testing.T) {
	x, disk := newBench(t, 3, 4), jobstest.Disk{}
	x.keep = true
	const n = 600
	id := job.NewID(7, 99)
	spec := benchSpec(0)
	x.index++
	x.step(Committed{job.Committed{Index: x.index, Epoch: job.Epoch{Term: 1}, Records: []job.Record{
		job.SubmitRecord{Job: id, User: "amy", Spec: spec, At: x.now, Tasks: n},
	}}})
	running := 0
	for round := 0; len(x.sent) > 0; round++ {
		x.serve()
		disk.Save(x.rows, nil)
		x.rows = nil
		if v, _ := x.core.Job(id); v.Counts.Total() != n || v.Counts != counted(x.core, id) {
			t.Fatalf("round %d: counts %v of %d tasks", round, v.Counts, n)
		} else if v.Counts.Ended() < n && v.Counts.Ended() > 0 {
			running++
		}
	}
	if x.ended != n || running == 0 {
		t.Fatalf("%d tasks ended in %d rounds, want %d", x.ended, running, n)
	}
	e := x.core.entries.byID[id]
	if e == nil || len(e.tasks) != 0 {
		t.Fatalf("after its end %+v is kept", e)
	}
	if v, _ := x.core.Job(id); v.State() != job.Succeeded || len(v.Tasks) != viewTasks || v.Tasks[255].NodeName == "" {
		t.Errorf("the job is %s, its view has %d tasks", v.State(), len(v.Tasks))
	}
	kept, there := disk.Job(id)
	if !there || kept.Counts.Of(job.Succeeded) != n {
		t.Errorf("its rows tell %v", kept.Counts)
	}
}

// counted counts the states of the tasks of a job one by one.
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

// submitMany has the journal bring a job of n tasks.
func (x *bench) submitMany(n int, held bool) *entry {
	id, spec := job.NewID(7, 99), benchSpec(0)
	spec.Hold = held
	x.index++
	x.step(Committed{job.Committed{Index: x.index, Epoch: job.Epoch{Term: 1}, Records: []job.Record{
		job.SubmitRecord{Job: id, User: "amy", Spec: spec, At: x.now, Tasks: n},
	}}})
	return x.core.entries.byID[id]
}

// Soft state is kept only of the tasks that are active and of the next one, also after a release and a change of the
// owner.
func TestSoftStateOfActiveTasks(t *testing.T) {
	x := newBench(t, 3, 4)
	e := x.submitMany(1_000_000, true)
	const soft = 256 // more than may be offered to three hosts, queued offers among them
	few := func(when string) {
		t.Helper()
		if n := len(e.tasks); n > e.job.Assigned()+soft {
			t.Fatalf("%s: soft state of %d tasks, %d are assigned", when, n, e.job.Assigned())
		}
		if c := x.core.views.of(e).Counts; c.Total() != 1_000_000 {
			t.Fatalf("%s: counts %v", when, c)
		}
	}
	few("held")
	x.step(Hold{Token: 1, Job: e.job.ID, Release: true})
	few("released")
	for range 20 {
		x.serve()
	}
	few("running")
	ran := x.ended
	if ran == 0 {
		t.Fatal("no task has run")
	}
	x.step(Deposed{Epoch: job.Epoch{Term: 1}})
	few("deposed")
	x.sent = nil
	x.step(Committed{job.Committed{Index: x.index, Epoch: job.Epoch{Term: 1}, Lead: true}})
	few("owner again")
	for _, d := range x.core.views.of(e).Tasks {
		if d.State == job.Pending && d.Reason.Word == "" {
			t.Fatalf("task %d waits without a reason", d.Index)
		}
	}
	x.step(Cancel{Token: 3, Job: e.job.ID})
	few("cancelled")
	if c := e.job.Counts(); c.Of(job.Cancelled) < 1_000_000-ran-soft {
		t.Errorf("counts %v", c)
	}
}

// No task of a job is passed over, although its owner changes while some run. These stay assigned here: nobody answers
// when the new owner asks for them.
func TestNoTaskIsPassedOver(t *testing.T) {
	x := newBench(t, 3, 4)
	const n = 3000
	e := x.submitMany(n, false)
	for round := 0; len(x.sent) > 0; round++ {
		if round == 5 {
			x.step(Deposed{Epoch: job.Epoch{Term: 1}})
			x.step(Committed{job.Committed{Index: x.index, Epoch: job.Epoch{Term: 1}, Lead: true}})
		}
		x.serve()
	}
	c := e.job.Counts()
	if c.Of(job.Pending) != 0 || c.Of(job.Succeeded) != x.ended || x.ended+e.job.Assigned() != n {
		t.Errorf("%d have ended, %d are assigned: %v", x.ended, e.job.Assigned(), c)
	}
}
