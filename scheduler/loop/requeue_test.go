package loop

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler"
	"github.com/musterhq/muster/scheduler/step"
)

// ended submits n jobs, waits for their ends and returns their ids. All but the last two are archived.
func (h loopRig) ended(t *testing.T, n int) (ids []job.ID) {
	t.Helper()
	h.host.connect("here")
	for i := range n {
		r := request(fmt.Sprint("j", i))
		r.Key = fmt.Sprint("k", i)
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
	return ids
}

// whole returns how many jobs are in memory.
func (h loopRig) whole(t *testing.T) (n int) {
	t.Helper()
	if err := h.loop.calls.look(t.Context(), func(c *scheduler.Core) { n, _ = c.View().Kept() }); err != nil {
		t.Fatal(err)
	}
	return n
}

// A requeue of an archived job works like any other. Afterwards the job is archived again.
func TestArchivedJobIsRequeued(t *testing.T) {
	withLoop(t, nil, func(t *testing.T, h loopRig) {
		ctx, ids := t.Context(), h.ended(t, 6)
		if n := h.whole(t); n != 2 {
			t.Fatalf("%d jobs are in memory, want 2", n)
		}
		ends, err := h.loop.Watch(ctx, job.Query{IDs: ids[:1], Ended: true})
		if err != nil {
			t.Fatal(err)
		}
		if j := <-ends; j.State() != job.Succeeded {
			t.Errorf("it ended as %s, want %v", j.State(), job.Succeeded)
		}
		j, err := h.loop.Requeue(ctx, ids[0], nil, false, "again")
		if err != nil || j.ID != ids[0] || j.State() != job.Pending || j.Spec.Name != "j0" {
			t.Fatalf("Requeue = %+v, %v, want no error and a pending job j0", j, err)
		}
		if _, err := h.loop.Requeue(ctx, ids[1], nil, true, ""); !errors.Is(err, step.ErrConflict) {
			t.Errorf("Requeue of failed tasks = %v, want ErrConflict", err)
		}
		first := request("j0")
		first.Key = "k0"
		if again, err := h.loop.Submit(ctx, first); err != nil || again.ID != ids[0] {
			t.Errorf("the same key is job %s, %v, want no error and %v", again.ID, err, ids[0])
		}
		if j := <-ends; j.State() != job.Succeeded || j.Tasks[0].Attempt != 2 {
			t.Errorf("it ended as %s, attempt %d, want %v and 2", j.State(), j.Tasks[0].Attempt, job.Succeeded)
		}
		list, err := h.loop.Jobs(ctx, job.Query{States: []job.State{job.Succeeded}})
		newest := slices.Clone(ids)
		if slices.Reverse(newest); err != nil || !slices.Equal(idsOf(list), newest) {
			t.Errorf("listed %v, %v; want %v", idsOf(list), err, newest)
		}
		synctest.Wait()
		if err := h.loop.Ping(ctx); err != nil {
			t.Fatal(err)
		}
		if n := h.whole(t); n != 2 {
			t.Errorf("%d jobs are in memory, want 2", n)
		}
		err = h.loop.calls.look(ctx, func(c *scheduler.Core) {
			numbers := c.View().Ended()
			want := []uint64{}
			for _, id := range slices.Concat(ids[1:], ids[:1]) {
				want = append(want, id.Drawn())
			}
			if !slices.Equal(numbers, want) {
				t.Errorf("jobs ended in the order %v, want %v", numbers, want)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		j, err = h.loop.Job(ctx, ids[0])
		if err != nil || j.State() != job.Succeeded || len(j.Tasks[0].Outcomes()) != 2 {
			t.Errorf("Job = %+v, %v, want no error, State() %v and 2 Tasks[0].Outcomes()", j, err, job.Succeeded)
		}
	})
}

// A requeue that cannot read the rows of an archived job is refused, and changes nothing.
func TestRequeueWithoutRowsIsRefused(t *testing.T) {
	withLoop(t, nil, func(t *testing.T, h loopRig) {
		ids := h.ended(t, 5)
		h.journal.mu.Lock()
		rows := h.journal.rows
		damaged := map[string][]byte{"": rows[ids[1]][""][:5]}
		delete(rows, ids[0])
		rows[ids[1]] = damaged
		entries := len(h.journal.entries)
		h.journal.mu.Unlock()
		h.journal.breaks(nil)
		for i, want := range []string{"its rows on disk are missing; submit it again", "its rows on disk cannot be read: "} {
			if _, err := h.loop.Requeue(t.Context(), ids[i], nil, false, ""); !errors.Is(err, step.ErrConflict) || !strings.Contains(err.Error(), want) {
				t.Errorf("Requeue = %v, want %q", err, want)
			}
		}
		h.journal.breaks(errDiskFull)
		if _, err := h.loop.Requeue(t.Context(), ids[2], nil, false, ""); !errors.Is(err, step.ErrConflict) || !strings.Contains(err.Error(), errDiskFull.Error()) {
			t.Errorf("Requeue = %v, want ErrConflict and %v in it", err, errDiskFull.Error())
		}
		h.journal.breaks(nil)
		h.journal.mu.Lock()
		defer h.journal.mu.Unlock()
		if n := len(h.journal.entries); n != entries {
			t.Errorf("%d entries are committed, want none more", n-entries)
		}
	})
}

// A disk that cannot be read when a record needs it ends the loop, because the jobs would differ from the journal.
func TestUnreadableDiskEndsTheLoop(t *testing.T) {
	errDisk := errors.New("input/output error")
	withLoopUntil(t, nil, errDisk, func(t *testing.T, h loopRig) {
		ids := h.ended(t, 5)
		h.journal.breaks(errDisk)
		h.journal.commit(job.Committed{Records: []job.Record{job.RequeueRecord{Job: ids[0]}}})
		synctest.Wait()
		if err := h.loop.Ping(t.Context()); !errors.Is(err, step.ErrStopped) {
			t.Errorf("Ping = %v, want ErrStopped", err)
		}
	})
}

// A state of a job that is read from disk does not replace a newer one that a watcher has not read yet.
func TestWatchersKeepTheNewerState(t *testing.T) {
	w := &watcher{latest: map[job.ID]*job.Job{}, bell: make(chan struct{}, 1)}
	id := job.NewID(7, 1)
	state := func(s job.State) *job.Job { return &job.Job{ID: id, Tasks: []job.Task{{State: s}}} }
	w.putOld(state(job.Succeeded))
	w.put(state(job.Pending))
	w.putOld(state(job.Succeeded))
	if j, there, _ := w.next(); !there || j.State() != job.Pending {
		t.Errorf("the watcher has %s, %v, want the pending job", j.State(), there)
	}
	if _, there, _ := w.next(); there {
		t.Error("the watcher gets the job twice")
	}
}
