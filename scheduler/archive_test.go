package scheduler

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler/state/statetest"
)

// A request about an archived job gets the same answer as before the job was archived.
func TestArchivedJobsAnswerAsBefore(t *testing.T) {
	withLoop(t, nil, func(t *testing.T, h loopRig) {
		h.host.connect("here")
		first := request("first")
		first.Key = "once"
		var ids []job.ID
		for i := range 8 {
			r := request(fmt.Sprint("j", i))
			if i == 0 {
				r = first
			}
			j, err := h.loop.Submit(t.Context(), r)
			if err != nil {
				t.Fatal(err)
			}
			ids = append(ids, j.ID)
			time.Sleep(2 * h.host.runs)
			synctest.Wait()
		}
		if err := h.loop.Ping(t.Context()); err != nil { // this step has RowsKept for the last rows
			t.Fatal(err)
		}
		err := h.loop.calls.look(t.Context(), func(c *Core) {
			if len(c.entries.byID) != 2 || c.entries.table.Len() != 8 {
				t.Errorf("%d jobs are whole and %d listed, want 2 and 8", len(c.entries.byID), c.entries.table.Len())
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		h.checkOld(t, first, ids[0])
		h.checkPages(t, ids)
	})
}

// checkOld makes each kind of request about an archived job.
func (h loopRig) checkOld(t *testing.T, r SubmitRequest, id job.ID) {
	t.Helper()
	ctx := t.Context()
	j, err := h.loop.Job(ctx, id)
	if err != nil || j.ID != id || j.State() != job.Succeeded || j.Spec.Name != r.Spec.Name || j.Owner != "here" || j.Tasks[0].Ended.IsZero() {
		t.Errorf("Job = %+v, %v, want the archived job as it was", j, err)
	}
	if again, err := h.loop.Submit(ctx, r); err != nil || again.ID != id {
		t.Errorf("the same again is %s, %v; want %s", again.ID, err, id)
	}
	r.Spec.Name = "other"
	if _, err := h.loop.Submit(ctx, r); !errors.Is(err, ErrConflict) {
		t.Errorf("another job file under the same key: %v, want ErrConflict", err)
	}
	if j, err := h.loop.Cancel(ctx, id, nil, "late"); err != nil || j.State() != job.Succeeded {
		t.Errorf("Cancel = %s, %v, want no error and %v", j.State(), err, job.Succeeded)
	}
	if _, err := h.loop.Hold(ctx, id, nil, false, ""); !errors.Is(err, ErrConflict) {
		t.Errorf("Hold = %v, want ErrConflict", err)
	}
	if _, err := h.loop.Hold(ctx, id, nil, true, ""); !errors.Is(err, ErrConflict) {
		t.Errorf("Release = %v, want ErrConflict", err)
	}
	if x, err := h.loop.Why(ctx, id); err != nil || x.Job != id || x.State != job.Succeeded {
		t.Errorf("Why = %+v, %v, want no error, Job %v and State %v", x, err, id, job.Succeeded)
	}
	changes, err := h.loop.Watch(ctx, job.Query{IDs: []job.ID{id}})
	if err != nil {
		t.Fatal(err)
	}
	if j := <-changes; j.ID != id || j.State() != job.Succeeded {
		t.Errorf("watched %s %s, want %v and %v", j.ID, j.State(), id, job.Succeeded)
	}
	h.journal.mu.Lock()
	rows := h.journal.rows[id]
	delete(h.journal.rows, id)
	h.journal.mu.Unlock()
	if _, err := h.loop.Job(ctx, id); !errors.Is(err, ErrNotFound) {
		t.Errorf("Job without a row = %v, want ErrNotFound", err)
	}
	h.journal.mu.Lock()
	h.journal.rows[id] = rows
	h.journal.mu.Unlock()
}

func (h loopRig) checkPages(t *testing.T, ids []job.ID) {
	t.Helper()
	newest := slices.Clone(ids)
	slices.Reverse(newest)
	for _, q := range []struct {
		filter job.Query
		want   []job.ID
	}{
		{job.Query{}, newest},
		{job.Query{Limit: 3}, newest[:3]},
		{job.Query{User: "amy", States: []job.State{job.Succeeded}}, newest},
		{job.Query{User: "bob"}, nil},
		{job.Query{States: []job.State{job.Failed}}, nil},
		{job.Query{Name: "j[135]"}, []job.ID{ids[5], ids[3], ids[1]}},
		{job.Query{Name: "j[135]", Limit: 2}, []job.ID{ids[5], ids[3]}},
		{job.Query{Prefix: string(ids[2][:9])}, []job.ID{ids[2]}},
		{job.Query{Prefix: string(ids[2])}, []job.ID{ids[2]}},
		{job.Query{Prefix: string(ids[2]) + "0"}, nil},
		{job.Query{Prefix: "!"}, nil},
		{job.Query{IDs: []job.ID{ids[1], ids[7], ids[1], job.NewID(8, ids[2].Drawn())}}, []job.ID{ids[7], ids[1]}},
	} {
		list, err := h.loop.Jobs(t.Context(), q.filter)
		if got := idsOf(list); err != nil || !slices.Equal(got, q.want) {
			t.Errorf("%+v chooses %v, %v; want %v", q.filter, got, err, q.want)
		}
	}
	var paged []job.ID
	for f := (job.Query{Limit: 3}); ; {
		list, err := h.loop.Jobs(t.Context(), f)
		if err != nil {
			t.Fatal(err)
		}
		if len(list) == 0 {
			break
		}
		paged = append(paged, idsOf(list)...)
		f.After = job.Position{Submitted: list[len(list)-1].Submitted, ID: list[len(list)-1].ID}
	}
	if !slices.Equal(paged, newest) {
		t.Errorf("page by page %v, want %v", paged, newest)
	}
	counts, err := h.loop.Counts(t.Context())
	if want := map[job.State]int{job.Succeeded: len(ids)}; err != nil || !maps.Equal(counts, want) {
		t.Errorf("Counts = %v, %v; want %v", counts, err, want)
	}
}

func idsOf(jobs []job.Job) []job.ID {
	var ids []job.ID
	for _, j := range jobs {
		ids = append(ids, j.ID)
	}
	return ids
}

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
	cfg := DefaultConfig()
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
		x, there := c.Find(id)
		if !there || (x.Job != nil) != (i%100 == 1 || i%100 == 2) {
			t.Fatalf("job %d is %+v, %v, want a job in memory only if it has not ended", i, x, there)
		}
	}
	if !slices.IsSortedFunc(c.history.ended, func(a, b ending) int { return cmp.Compare(a.at, b.at) }) {
		t.Error("ended jobs are not in the order of their ends")
	}
	for i, id := range want {
		c.Step(c.now, Committed{job.Committed{Index: uint64(i + 1), Records: []job.Record{job.PurgeRecord{Job: id}}}})
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
		if j, _ := s.core.Job(s.id("a")); j.State() != job.Running || !j.Tasks[0].Started.Equal(began) {
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
