package state_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler/state"
)

// A set holds what a map holds.
func TestSetEqualsAMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s state.Set
		want := map[int]bool{}
		for range rapid.IntRange(0, 60).Draw(t, "steps") {
			i := rapid.SampledFrom([]int{0, 1, 63, 64, 65, 127, 128, 4095, 4096, 10_000}).Draw(t, "task")
			if rapid.Bool().Draw(t, "add") {
				if s.Add(i) == want[i] {
					t.Fatalf("Add(%d) = %v", i, want[i])
				}
				want[i] = true
			} else {
				if s.Remove(i) != want[i] {
					t.Fatalf("Remove(%d) = %v", i, !want[i])
				}
				delete(want, i)
			}
			n := 0
			for k, more := s.Next(0); more; k, more = s.Next(k + 1) {
				if n++; !want[k] || !s.Has(k) {
					t.Fatalf("%d is visited but not in the set, or not in the map", k)
				}
			}
			if n != len(want) || s.Len() != n {
				t.Fatalf("%d tasks, Len is %d, want %d", n, s.Len(), len(want))
			}
		}
	})
}

// A record about a parent has an effect exactly if Learns says so.
func TestLearnsPredictsTheEffectOfARecord(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := newFamily(t)
		f.submit(0, "0-199", rapid.Bool().Draw(t, "kill"), "aftercorr:x")
		f.submit(1, "3-150:3", false, "aftercorr:x,afternotok:x")
		f.submit(2, "", false, "after:x")
		ranges := rapid.Custom(func(t *rapid.T) (out []job.Range) {
			for first := 0; first < 220 && rapid.Bool().Draw(t, "more"); {
				r := job.Range{First: rapid.IntRange(first, 220).Draw(t, "first")}
				r.Last = rapid.IntRange(r.First, 260).Draw(t, "last")
				out, first = append(out, r), r.Last+2
			}
			return out
		})
		for range rapid.IntRange(1, 20).Draw(t, "records") {
			r := job.ParentRecord{Parent: other, State: rapid.SampledFrom([]job.State{job.Pending, job.Running, job.Failed, job.Succeeded}).Draw(t, "state"), At: start}
			r.Started = r.State != job.Pending
			r.Tasks = job.TaskStates{Succeeded: ranges.Draw(t, "succeeded"), Failed: ranges.Draw(t, "failed"), Open: ranges.Draw(t, "open")}
			overlaps := r.Tasks.Len() > 1 // one list may take back what another says
			learns := f.table.Parents.Learns(r)
			if f.apply(r); f.last.Moved != learns && (!overlaps || !learns) {
				t.Fatalf("%+v: Learns is %v, but Moved is %v", r, learns, f.last.Moved)
			}
			if f.apply(r); f.last.Moved && !overlaps {
				t.Fatalf("%+v: the second time it still has an effect", r)
			}
		}
	})
}
