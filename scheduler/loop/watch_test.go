package loop

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler"
)

// A change of a job costs nothing if nobody watches the job, or only its end, however many clients wait for other jobs.
func TestUnwatchedChangesCostNothing(t *testing.T) {
	withLoop(t, nil, func(t *testing.T, h loopRig) {
		h.host.connect("here")
		ctx, stop := context.WithCancel(t.Context())
		watched, err := h.loop.Submit(ctx, request("a"))
		if err != nil {
			t.Fatal(err)
		}
		other, err := h.loop.Submit(ctx, request("b"))
		if err != nil {
			t.Fatal(err)
		}
		var all []<-chan job.Job
		for range 100 {
			w, err := h.loop.Watch(ctx, job.Query{IDs: []job.ID{watched.ID, watched.ID}, Ended: true})
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, w)
		}
		publish := func(id job.ID) float64 {
			cost, err := query(ctx, h.loop.calls, func(c *scheduler.Core) (float64, error) {
				return testing.AllocsPerRun(100, func() { h.loop.execute.watchers.publish(c.View(), []job.ID{id}) }), nil
			})
			if err != nil {
				t.Fatal(err)
			}
			return cost
		}
		for what, id := range map[string]job.ID{"a job that nobody watches": other.ID, "a job whose end is watched": watched.ID} {
			if cost := publish(id); cost > 0 {
				t.Errorf("a change of %s makes %v objects, want 0", what, cost)
			}
		}
		stop()
		for _, w := range all {
			if j, more := <-w; more {
				t.Fatalf("%s is %s, but watchers of its end were told", j.ID, j.State())
			}
		}
		synctest.Wait()
		left, err := query(t.Context(), h.loop.calls, func(*scheduler.Core) (int, error) {
			ws := &h.loop.execute.watchers
			return len(ws.all) + len(ws.naming) + len(ws.others), nil
		})
		if err != nil || left > 0 {
			t.Errorf("%d entries are left of watchers that have ended (%v), want no error and 0", left, err)
		}
	})
}
