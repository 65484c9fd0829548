package scheduler

import (
	"testing"
	"time"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler/state/statetest"
	"github.com/musterhq/muster/scheduler/step"
)

// Rows that change within a short time are saved together. A save never claims more than the rows contain.
func TestRowsAreSavedTogether(t *testing.T) {
	cfg := step.DefaultConfig()
	cfg.Self, cfg.Group, cfg.Seed, cfg.SaveEvery = "w0", 7, 1, 100*time.Millisecond
	x := &bench{core: NewCore(cfg, Saved{}, storyStart), now: storyStart, keep: true}
	x.step(step.Committed{Committed: job.Committed{Index: 1, Epoch: job.Epoch{Term: 1}, Lead: true}})
	x.index = 1
	x.addHosts(1, 4)
	const n = 20
	for range n {
		x.tok++
		x.step(step.Submit{Token: x.tok, Submission: job.Submission{Spec: benchSpec(0)}})
		for len(x.sent) > 0 {
			x.serve()
		}
	}
	if x.ended != n || len(x.rows) > 0 {
		t.Fatalf("%d jobs have ended, %d rows are saved at once, want %v and none", x.ended, len(x.rows), n)
	}
	x.now = x.now.Add(cfg.SaveEvery)
	x.step(step.Tick{})
	disk := statetest.Disk{}
	disk.Save(x.rows, nil)
	for _, j := range x.core.entries.table.Jobs() {
		kept, there := disk.Job(j.ID)
		if !there || kept.State() != job.Succeeded {
			t.Errorf("%s: its rows tell %v, want SUCCEEDED", j.ID, kept.Counts)
		}
	}
	if headers := len(x.core.entries.table.Jobs()); headers != n {
		t.Errorf("%d jobs, want %v", headers, n)
	}
	x.rows = nil
	x.step(step.Tick{})
	if len(x.rows) > 0 {
		t.Errorf("%d rows are saved again, want none", len(x.rows))
	}
	// The deletion of a job saves all changed rows too.
	x.tok++
	x.step(step.Submit{Token: x.tok, Submission: job.Submission{Spec: benchSpec(0)}})
	x.index++
	first := x.core.entries.table.Jobs()[0].ID
	x.step(step.Committed{Committed: job.Committed{Index: x.index, Epoch: job.Epoch{Term: 1}, Records: []job.Record{job.PurgeRecord{Job: first}}}})
	if len(x.rows) == 0 {
		t.Error("a deletion is saved without the rows that changed before it")
	}
}
