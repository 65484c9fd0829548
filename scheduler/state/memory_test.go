package state_test

import (
	"bytes"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/musterhq/muster/internal/store/storepb"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler/state"
	"github.com/musterhq/muster/scheduler/state/jobspb"
	"github.com/musterhq/muster/scheduler/state/statetest"
)

// scattered returns each n-th task of a job of many tasks, in lists that fit in one record.
func scattered(n int) (lists [][]job.Range) {
	var list []job.Range
	for i := 0; i < many; i += n {
		if list = append(list, job.Range{First: i, Last: i}); len(list) == job.MaxRanges {
			lists, list = append(lists, list), nil
		}
	}
	return append(lists, list)
}

// pattern is something that a user can do to an array, and what it may cost.
type pattern struct {
	name string
	do   func(apply func(job.Record))
	most float64 // bytes of memory for each task
	disk float64 // bytes of rows for each task
}

func patterns() []pattern {
	cancel := func(apply func(job.Record), n int) {
		for k, list := range scattered(n) {
			apply(job.CancelRecord{Job: id(0), Tasks: list, Reason: fmt.Sprint("reason ", k), At: start.Add(time.Duration(k) * time.Second)})
		}
	}
	hold := func(apply func(job.Record), release bool) {
		for _, list := range scattered(2) {
			apply(job.HoldRecord{Job: id(0), Tasks: list, Release: release, Reason: "wait", At: start})
		}
	}
	attempt := func(apply func(job.Record), i, n int, state job.State) {
		a := job.Attempt{Job: id(0), Task: i, N: n}
		at := start.Add(time.Duration(i) * time.Millisecond)
		apply(job.AssignRecord{Attempt: a, Node: job.Peer(hosts[i%8]), NodeName: "n", Store: "s", At: at})
		exit := job.Exit{State: state, Code: i % 256, Started: true, Began: at, Ended: at.Add(time.Second), Isolation: "cgroup v2 (cpu, memory, pids, devices)"}
		apply(job.ResultRecord{Attempt: a, Exit: exit, At: at.Add(2 * time.Second)})
	}
	ran := func(apply func(job.Record), each, n int, state job.State) {
		for i := 0; i < many; i += each {
			attempt(apply, i, n, state)
		}
	}
	again := job.RequeueRecord{Job: id(0), At: start}
	return []pattern{
		{"untouched", func(func(job.Record)) {}, 0.3, 0.1},
		{"one cancelled of each 256", func(f func(job.Record)) { cancel(f, 256) }, 2, 2},
		{"one cancelled of each 2", func(f func(job.Record)) { cancel(f, 2) }, 2, 2},
		{"each cancelled on its own", func(f func(job.Record)) {
			for i := range many - 1 {
				f(job.CancelRecord{Job: id(0), Tasks: []job.Range{{First: i, Last: i}}, Reason: fmt.Sprint(strings.Repeat("x", 300), i), At: start.Add(time.Duration(i))})
			}
		}, 4, 80},
		{"each held on its own", func(f func(job.Record)) {
			for i := range many {
				f(job.HoldRecord{Job: id(0), Tasks: []job.Range{{First: i, Last: i}}, Reason: fmt.Sprint(strings.Repeat("x", 200), i), At: start.Add(time.Duration(i))})
			}
		}, 4, 80},
		{"held alternately", func(f func(job.Record)) { hold(f, false) }, 2, 2},
		{"held and released", func(f func(job.Record)) { hold(f, false); hold(f, true) }, 0.4, 0.4},
		{"cancelled and requeued, over and over", func(f func(job.Record)) {
			for range 20 {
				cancel(f, 2)
				f(again)
			}
		}, 0.6, 0.6},
		{"one ran of each 256", func(f func(job.Record)) { ran(f, 256, 1, job.Succeeded) }, 3, 15},
		{"all ran", func(f func(job.Record)) { ran(f, 1, 1, job.Succeeded) }, 100, 60},
		{"all failed with different codes", func(f func(job.Record)) { ran(f, 1, 1, job.Failed) }, 100, 60},
		{"all ran and wait again", func(f func(job.Record)) { ran(f, 1, 1, job.Failed); f(again) }, 100, 60},
		{"all ran twice", func(f func(job.Record)) { ran(f, 1, 1, job.Failed); f(again); ran(f, 1, 2, job.Failed) }, 300, 150},
	}
}

// Whatever a user does to an array costs little memory for each task, and as much after a restart. Memory reports it.
func TestMemoryOfPatterns(t *testing.T) {
	for _, p := range patterns() {
		t.Run(p.name, func(t *testing.T) {
			table, rows := state.NewTable(group), statetest.Disk{}
			seq := uint64(0)
			apply := func(r job.Record) {
				seq++
				if c := table.Apply(r, seq, job.Epoch{Term: 1}); c.Job == nil || !c.Moved {
					t.Fatalf("%#v has no effect", r)
				}
			}
			apply(job.SubmitRecord{Job: id(0), User: "amy", Spec: job.DefaultSpec(), At: start, Tasks: many})
			p.do(apply)
			j := table.Job(id(0))
			taken, err := j.TakeRows()
			if err != nil {
				t.Fatal(err)
			}
			size := 0.0
			for _, r := range taken {
				size += float64(len(r.Data)+len(r.Part)) / many
			}
			rows.Save(taken, nil)
			told, both := float64(state.Memory(j))/many, heap()
			runtime.KeepAlive(table)
			table, j = nil, nil
			without := heap()
			read, err := state.Decode(rows.Rows(id(0), "", ""))
			if err != nil {
				t.Fatal(err)
			}
			held, again, toldAgain := (both-without)/many, (heap()-without)/many, float64(state.Memory(read))/many
			runtime.KeepAlive(rows)
			runtime.KeepAlive(read)
			t.Logf("%.2f bytes of memory for each task (reported: %.2f), %.2f after a restart (reported: %.2f), %.2f bytes on disk", held, told, again, toldAgain, size)
			if held > p.most || again > p.most || size > p.disk {
				t.Errorf("want at most %v of memory and %v on disk", p.most, p.disk)
			}
			const slack = 0.3 // garbage of other tests, and free slots
			if told < 0.6*held-slack || told > 1.5*held+slack || toldAgain < 0.6*again-slack || toldAgain > 1.5*told+slack {
				t.Error("Memory reports another value than what was measured")
			}
		})
	}
}

// Rows of the version before have a cell and a note for each touched task of a chunk. They are read, cost as little
// memory as those of this version, and are replaced with the next change.
func TestRowsOfTheVersionBeforeAreReadAndReplaced(t *testing.T) {
	for _, n := range []int{1, 10, 600} {
		rows, touched := touchedBefore(t, n)
		check := func(what string, again int) *state.Job {
			t.Helper()
			j, err := state.Decode(rows.Rows(id(0), "", ""))
			if err != nil {
				t.Fatal(err)
			}
			if c := j.Counts(); c.Of(job.Cancelled) != len(touched)-again || c.Of(job.Pending) != n-len(touched) || c.Of(job.Reserved) != again {
				t.Errorf("%s: counts %v, want Of(job.Cancelled) %v, Of(job.Pending) %v and Of(job.Reserved) %v", what, c, len(touched)-again, n-len(touched), again)
			}
			for _, i := range touched[again:] {
				if x := j.Task(i); x.State != job.Cancelled || x.Reason.Detail != "enough" || !x.Ended.Equal(start) || !x.Closed.Equal(start) {
					t.Errorf("%s: task %d: %+v, want CANCELLED at the start with the reason \"enough\"", what, i, x)
				}
			}
			if m := state.Memory(j); m > 5000 {
				t.Errorf("%s: %d bytes of memory, want at most 5000", what, m)
			}
			return j
		}
		// The next change writes all rows as this version does.
		j, table := check("before", 0), state.NewTable(group)
		table.Load(j)
		table.Apply(job.RequeueRecord{Job: id(0), Tasks: []job.Range{{First: touched[0], Last: touched[0]}}, At: start}, 2, job.Epoch{})
		table.Apply(job.AssignRecord{Attempt: attempt(touched[0], 1), Node: "n"}, 3, job.Epoch{Term: 1})
		taken, err := j.TakeRows()
		if err != nil {
			t.Fatal(err)
		}
		rows.Save(taken, nil)
		for name := range rows[id(0)] {
			if strings.HasPrefix(name, "u") {
				t.Errorf("the note %q is still there", name)
			}
		}
		if x := check("after", 1).Task(touched[0]); x.State != job.Reserved || x.Reason != (job.Reason{}) {
			t.Errorf("task %d: %+v, want State %v and Reason %v", touched[0], x, job.Reserved, (job.Reason{}))
		}
	}
}

// touchedBefore returns the rows of a job of n tasks, of which the last of each chunk was cancelled, as the version
// before wrote them.
func touchedBefore(t *testing.T, n int) (rows statetest.Disk, touched []int) {
	rows = statetest.Disk{}
	first, err := state.NewTable(group).Apply(job.SubmitRecord{Job: id(0), User: "amy", Spec: job.DefaultSpec(), At: start, Tasks: n}, 1, job.Epoch{}).Job.TakeRows()
	if err != nil {
		t.Fatal(err)
	}
	rows.Save(first, nil)
	part := func(kind string, i int) string { return kind + string([]byte{0, 0, byte(i >> 8), byte(i)}) } //nolint:gosec // small numbers
	for k := range (n + 255) / 256 {
		size := min(256, n-256*k)
		c := &jobspb.Chunk{
			Base: storepb.Nanos(start) - 1, States: []string{"CANCELLED", "PENDING"}, State: bytes.Repeat([]byte{1}, size), Ended: make([]uint64, size), Closed: make([]uint64, size),
		}
		c.State[size-1], c.Ended[size-1], c.Closed[size-1] = 0, 1, 1
		touched = append(touched, 256*k+size-1)
		note := &jobspb.Note{ReasonWord: state.ReasonCancelled, ReasonDetail: "enough"}
		rows.Save([]job.Row{
			{Job: id(0), Part: part("t", k), Data: marshal(t, c)}, {Job: id(0), Part: part("u", touched[k]), Data: marshal(t, note)},
		}, nil)
	}
	return rows, touched
}

func marshal(t *testing.T, m proto.Message) []byte {
	t.Helper()
	data, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// A job distinguishes the acts on tasks that never ran only up to a bound. Beyond it a task still has its own state.
func TestActsOnTasksAreBounded(t *testing.T) {
	var records []job.Record
	for i := range 100 {
		records = append(records, job.CancelRecord{Job: id(0), Tasks: []job.Range{{First: i, Last: i}}, Reason: fmt.Sprint("act ", i), At: start.Add(time.Duration(i))})
	}
	j := apply(t, 600, records...)
	for i := range 100 {
		if x, want := j.Task(i), fmt.Sprint("act ", min(i, 63)); x.State != job.Cancelled || x.Reason.Detail != want {
			t.Errorf("task %d: %s, %s; want %s", i, x.State, x.Reason.Detail, want)
		}
	}
	if c := j.Counts(); c.Of(job.Cancelled) != 100 || c.Of(job.Pending) != 500 {
		t.Errorf("counts %v, want Of(job.Cancelled) 100 and Of(job.Pending) 500", c)
	}
	j = apply(t, 600, append(records, job.RequeueRecord{Job: id(0), At: start}, records[99])...)
	if x := j.Task(99); x.Reason.Detail != "act 99" {
		t.Errorf(`a value that no task has keeps others out: %s, want "act 99"`, x.Reason.Detail)
	}
}
