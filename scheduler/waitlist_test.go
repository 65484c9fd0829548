package scheduler

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler/fleet"
	"github.com/musterhq/muster/scheduler/state"
)

// A waitlist finds the same tasks as a loop over all tasks, in the same order.
func TestWaitlistEqualsALoopOverAllTasks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var l waitlist
		var all []*task // by rank
		n := 0
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				for range rapid.IntRange(1, 3*chunkMost).Draw(t, "tasks") {
					n++
					need := job.Resources{CPUs: rapid.IntRange(0, 9).Draw(t, "cpus"), GPUs: rapid.IntRange(0, 2).Draw(t, "gpus")}
					spec := job.Spec{Priority: rapid.IntRange(0, 2).Draw(t, "priority")}
					e := &entry{job: &state.Job{ID: job.ID(fmt.Sprint(n)), Spec: spec}, priority: spec.Priority, born: storyStart.Add(time.Duration(rapid.IntRange(0, 9).Draw(t, "age")))}
					x := &task{e: e, shape: &shape{Shape: fleet.Shape{Need: need}}}
					l.add(x)
					l.add(x) // adding a task twice changes nothing
					i, _ := slices.BinarySearchFunc(all, x, rank)
					all = slices.Insert(all, i, x)
				}
			},
			"remove": func(t *rapid.T) {
				for range rapid.IntRange(1, 2*chunkMost).Draw(t, "tasks") {
					if len(all) == 0 {
						return
					}
					i := rapid.IntRange(0, len(all)-1).Draw(t, "which")
					l.remove(all[i])
					l.remove(all[i])
					all = slices.Delete(all, i, i+1)
				}
			},
			"": func(t *rapid.T) {
				if l.count != len(all) {
					t.Fatalf("%d tasks, want %d", l.count, len(all))
				}
				lim := limits{
					left:   fleet.Footprint{CPUs: rapid.Int32Range(-1, 9).Draw(t, "left"), GPUs: rapid.Int16Range(0, 2).Draw(t, "left gpus")},
					most:   fleet.Footprint{CPUs: rapid.Int32Range(-1, 9).Draw(t, "most"), GPUs: rapid.Int16Range(0, 2).Draw(t, "most gpus")},
					queues: rapid.Bool().Draw(t, "queues"),
				}
				if rapid.Bool().Draw(t, "before") {
					lim.before = &fleet.Rank{Priority: rapid.IntRange(-1, 3).Draw(t, "before priority"), Born: storyStart.Add(5)}
				}
				lim.left = lim.left.Least(lim.most)
				suits := func(x *task) bool { return x.e.job.ID != "1" }
				var want, got []*task
				for _, x := range all {
					p := placeOf(x)
					if fleet.FootprintOf(x.shape.Need).Within(lim.of(&p)) && suits(x) {
						want = append(want, x)
					}
				}
				budget := rapid.IntRange(1, 4*chunkMost).Draw(t, "budget")
				for after := (*fleet.Rank)(nil); ; {
					left1 := budget
					x, stopped := l.next(after, lim, &left1, suits)
					if x == nil && stopped == nil {
						break
					}
					if after = stopped; x != nil {
						got = append(got, x)
						p := placeOf(x)
						after = &p
					}
				}
				if !slices.Equal(got, want) {
					t.Fatalf("found %d tasks, want %d", len(got), len(want))
				}
			},
		})
	})
}
