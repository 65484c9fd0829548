package state_test

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler/state"
)

// selected returns the tasks that Each visits.
func selected(j *state.Job, ranges []job.Range, states []job.State) (out []int) {
	j.Each(ranges, states, func(i int) bool { out = append(out, i); return true })
	return out
}

// However the tasks of a job were changed, and also after a restart from its rows, it finds the tasks in a state that a
// loop over all of them finds.
func TestSelectionEqualsALoopOverAllTasks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		table := state.NewTable(group)
		for seq := range uint64(rapid.IntRange(1, 40).Draw(t, "records")) {
			table.Apply(anyRecord(t, table), seq+1, job.Epoch{Term: 1})
		}
		states := rapid.SampledFrom([][]job.State{nil, {job.Pending}, {job.Held, job.Succeeded}, {job.Reserved}}).Draw(t, "states")
		ranges := rapid.SampledFrom([][]job.Range{nil, {{First: 0, Last: 0}}, {{First: 200, Last: 300}, {First: 590, Last: 700}}}).Draw(t, "ranges")
		from := rapid.SampledFrom([]int{0, 1, 255, 256, 400, 599, 600}).Draw(t, "from")
		for _, j := range table.Jobs() {
			checkSelection(t, j, ranges, states, from)
			rows, err := j.TakeRows()
			if err != nil {
				t.Fatal(err)
			}
			again, err := state.Decode(rows)
			if err != nil {
				t.Fatal(err)
			}
			checkSelection(t, again, ranges, states, from)
		}
	})
}

func checkSelection(t *rapid.T, j *state.Job, ranges []job.Range, states []job.State, from int) {
	var want []int
	var counts job.Counts
	pending, first := j.Len(), -1
	for i, x := range j.View(0, j.Len()).Tasks {
		in := len(ranges) == 0 || slices.ContainsFunc(ranges, func(r job.Range) bool { return i >= r.First && i <= r.Last })
		if in {
			counts.Add(x.State, 1)
		}
		if in && (len(states) == 0 || slices.Contains(states, x.State)) {
			want = append(want, i)
		}
		if x.State == job.Pending && i >= from {
			pending = min(pending, i)
		}
		if x.State == job.Held && first < 0 {
			first = i
		}
	}
	if got := selected(j, ranges, states); !slices.Equal(got, want) {
		t.Fatalf("%v in %v: %v, want %v", states, ranges, got, want)
	}
	if got := j.CountsIn(ranges); got != counts {
		t.Fatalf("counts in %v: %v, want %v", ranges, got, counts)
	}
	if got := j.NextPending(from); got != pending {
		t.Fatalf("the next pending task from %d on is %d, want %d", from, got, pending)
	}
	if got, ok := j.First(job.Held); ok != (first >= 0) || ok && got != first {
		t.Fatalf("the first held task is %d, %v; want %d", got, ok, first)
	}
}

// BenchmarkNextPendingMillion finds the next pending task of a large job chunk by chunk.
func BenchmarkNextPendingMillion(b *testing.B) {
	table := state.NewTable(group)
	table.Apply(job.SubmitRecord{Job: id(0), Spec: job.DefaultSpec(), Tasks: job.MaxTasks}, 1, job.Epoch{})
	table.Apply(job.HoldRecord{Job: id(0), Tasks: []job.Range{{First: 0, Last: job.MaxTasks - 2}}}, 2, job.Epoch{})
	j := table.Job(id(0))
	for b.Loop() {
		if j.NextPending(0) != job.MaxTasks-1 {
			b.Fatal("found another task than the last")
		}
	}
}
