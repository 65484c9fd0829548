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
