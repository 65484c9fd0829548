package loop

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler"
	"github.com/musterhq/muster/scheduler/step"
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
		err := h.loop.calls.look(t.Context(), func(c *scheduler.Core) {
			if whole, listed := c.View().Kept(); whole != 2 || listed != 8 {
				t.Errorf("%d jobs are whole and %d listed, want 2 and 8", whole, listed)
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
func (h loopRig) checkOld(t *testing.T, r job.Submission, id job.ID) {
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
	if _, err := h.loop.Submit(ctx, r); !errors.Is(err, step.ErrConflict) {
		t.Errorf("another job file under the same key: %v, want ErrConflict", err)
	}
	if j, err := h.loop.Cancel(ctx, id, nil, "late"); err != nil || j.State() != job.Succeeded {
		t.Errorf("Cancel = %s, %v, want no error and %v", j.State(), err, job.Succeeded)
	}
	if _, err := h.loop.Hold(ctx, id, nil, false, ""); !errors.Is(err, step.ErrConflict) {
		t.Errorf("Hold = %v, want ErrConflict", err)
	}
	if _, err := h.loop.Hold(ctx, id, nil, true, ""); !errors.Is(err, step.ErrConflict) {
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
	if _, err := h.loop.Job(ctx, id); !errors.Is(err, step.ErrNotFound) {
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
