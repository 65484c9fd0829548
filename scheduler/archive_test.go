package scheduler

import (
	"cmp"
	"fmt"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler/state/statetest"
	"github.com/musterhq/muster/scheduler/step"
)

// add adds a job as rows of an older version.
func add(t testing.TB, saved *Saved, j job.Job) {
	t.Helper()
	for _, r := range statetest.RowsOf(j) {
		if err := saved.Add(r); err != nil {
			t.Fatal(err)
		}
	}
}

// A core that starts from rows keeps an index entry for each final job, and the other jobs in memory.
func TestRestartKeepsFinalJobsArchived(t *testing.T) {
	cfg := step.DefaultConfig()
	cfg.Self, cfg.Group, cfg.Seed = "here", 7, 1
	var saved Saved
	var want []job.ID
	for i := range 1000 {
		j := job.Job{
			ID: job.NewID(7, uint64(i)*7919), User: fmt.Sprint("u", i%3), Key: fmt.Sprint("k", i), Spec: job.DefaultSpec(),
			Submitted: storyStart.Add(time.Duration(i%10) * time.Minute), Tasks: []job.Task{{State: job.Succeeded, Ended: storyStart.Add(time.Duration(i) * time.Second)}},
		}
		switch i % 100 {
		case 1:
			j.Tasks[0].State = job.NodeFail
		case 2:
			j.Tasks[0].State, j.Tasks[0].Ended = job.Pending, time.Time{}
		}
		add(t, &saved, j)
		want = append(want, j.ID)
	}
	if err := saved.End(); err != nil {
		t.Fatal(err)
	}
	c := NewCore(cfg, saved, storyStart.Add(time.Hour))
	if len(c.entries.byID) != 20 || c.entries.table.Len() != 1000 || len(c.history.ended) != 990 {
		t.Errorf("%d whole, %d listed, %d ended; want 20, 1000 and 990", len(c.entries.byID), c.entries.table.Len(), len(c.history.ended))
	}
	for i, id := range want {
		x, there := c.View().Find(id)
		if !there || (x.Job != nil) != (i%100 == 1 || i%100 == 2) {
			t.Fatalf("job %d is %+v, %v, want a job in memory only if it has not ended", i, x, there)
		}
	}
	if !slices.IsSortedFunc(c.history.ended, func(a, b ending) int { return cmp.Compare(a.at, b.at) }) {
		t.Error("ended jobs are not in the order of their ends")
	}
	for i, id := range want {
		c.Step(c.turn.Now, step.Committed{Committed: job.Committed{Index: uint64(i + 1), Records: []job.Record{job.PurgeRecord{Job: id}}}})
	}
	if left := c.entries.table.Len(); left != 10 || len(c.entries.table.ArchivedStates())+len(c.history.ended) != 0 {
		t.Errorf("after a purge of all %d are listed: %v, want 10, none of them archived", left, c.entries.table.ArchivedStates())
	}
}

// A running task shows when its process began, even after a new session and a restart of the daemon.
func TestStartTimeSurvivesAdoption(t *testing.T) {
	s := newStory(t, 0)
	for _, line := range []string{"lead", "worker n1", "submit a", "take n1 a", "wait 1m"} {
		s.do(line)
	}
	began := s.now.Add(-50 * time.Second)
	running := contract.Event{Attempt: job.Attempt{Job: s.id("a"), N: 1}, Group: 7, N: 2, State: job.Running, PID: 9, Began: began}
	for _, after := range []string{"wait 1s", "worker n1", "restart journal"} {
		s.do(after)
		if after == "restart journal" {
			s.do("lead")
			s.do("worker n1")
		}
		s.from("n1", running)
		if j, _ := s.core.View().Job(s.id("a")); j.State() != job.Running || !j.Tasks[0].Started.Equal(began) {
			t.Errorf("%s: %s since %s, want %s", after, j.State(), j.Tasks[0].Started, began)
		}
	}
}

// Nothing keeps an archived job in memory.
func TestArchivedJobsLeaveMemory(t *testing.T) {
	w := newStory(t, 0)
	w.do("lead")
	const n = 2000
	var gone atomic.Int64
	all := make(chan struct{})
	for i := range n {
		id := job.NewID(7, uint64(i+1))
		w.now = w.now.Add(time.Millisecond)
		w.deliver(job.Committed{Records: []job.Record{job.SubmitRecord{Job: id, User: "amy", Spec: job.DefaultSpec(), At: w.now}}})
		runtime.AddCleanup(w.core.entries.byID[id], func(int) {
			if gone.Add(1) == n {
				close(all)
			}
		}, 0)
		w.deliver(job.Committed{Records: []job.Record{job.CancelRecord{Job: id, Reason: "enough", At: w.now}}})
		w.out.Reset()
	}
	w.wait(time.Hour)
	runtime.GC()
	select {
	case <-all:
	case <-time.After(10 * time.Second):
	}
	if left := n - gone.Load(); left > 0 {
		t.Errorf("%d of %d archived jobs are still in memory; %d are whole, want 0", left, n, len(w.core.entries.byID))
	}
	runtime.KeepAlive(w)
}
