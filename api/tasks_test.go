package api

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/musterhq/muster/job"
)

// newArray returns a PENDING array of this daemon.
func (d *daemon) newArray(n uint64, array string) job.Job {
	j := d.newJob(n)
	j.Spec.Array = array
	l, err := j.Spec.Layout()
	if err != nil {
		d.cluster.t.Fatal(err)
	}
	j.Tasks = nil
	for i := range l.Tasks() {
		j.Tasks = append(j.Tasks, job.Task{Index: i, State: job.Pending})
	}
	return j
}

// numbers returns the numbers of tasks.
func numbers(tasks []Task) (out []int) {
	for _, t := range tasks {
		out = append(out, t.Task)
	}
	return out
}

// Any daemon lists the tasks of an array by their numbers, in pages, and only those that were asked for.
func TestTasksAreListedInPages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "amy", "ben")
		amy, ben := c.daemons[0], c.daemons[1]
		j := ben.newArray(1, "10-1000:10")
		j.Tasks[2].State, j.Tasks[97].State = job.Failed, job.Timeout
		j = ben.put(j)
		ctx := t.Context()
		for name, want := range map[string]struct {
			filter TaskFilter
			tasks  []int
		}{
			"some":           {TaskFilter{Tasks: []job.Range{{First: 15, Last: 45}, {First: 1000, Last: job.MaxIndex}}}, []int{20, 30, 40, 1000}},
			"one":            {TaskFilter{Tasks: []job.Range{{First: 100, Last: 100}}}, []int{100}},
			"by state":       {TaskFilter{States: []job.State{job.Failed, job.Timeout}, Limit: 1}, []int{30, 980}},
			"state in range": {TaskFilter{States: []job.State{job.Failed}, Tasks: []job.Range{{First: 31, Last: 1000}}}, nil},
		} {
			var got []Task
			for x, err := range amy.client.AllTasks(ctx, j.ID, want.filter) {
				if err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				got = append(got, x)
			}
			if !slices.Equal(numbers(got), want.tasks) {
				t.Errorf("%s: got tasks %v, want %v", name, numbers(got), want.tasks)
			}
		}
		l, err := amy.client.Tasks(ctx, j.ID, TaskFilter{Limit: 40})
		if err != nil || len(l.Items) != 40 || l.Next != "39" || l.Items[39].Task != 400 {
			t.Errorf("the first page: got %v, next %q, %v, want 40 tasks and next 39", numbers(l.Items), l.Next, err)
		}
		l, err = amy.client.Tasks(ctx, j.ID, TaskFilter{Limit: 40, Cursor: "79"})
		if err != nil || len(l.Items) != 20 || l.Next != "" {
			t.Errorf("the last page: got %v, next %q, %v, want 20 tasks", numbers(l.Items), l.Next, err)
		}
	})
}

// While some tasks of an array run, the explanation is about one that waits, or about the task that was asked for.
func TestWhyExplainsATaskThatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "amy", "ben")
		amy, ben := c.daemons[0], c.daemons[1]
		j := ben.newArray(1, "10-50:10")
		for i, word := range []string{"", "", job.ReasonArrayThrottle, job.ReasonBackoff} {
			j.Tasks[i].State, j.Tasks[i].Reason.Word = []job.State{job.Failed, job.Running, job.Pending, job.Pending}[i], word
		}
		j.Tasks[4].State, j.Tasks[4].Reason.Word = job.Held, "Held"
		j = ben.put(j)
		for name, want := range map[string]struct {
			tasks  []job.Range
			number int
			state  job.State
			reason string
		}{
			"the job":          {nil, 30, job.Pending, job.ReasonArrayThrottle},
			"one that waits":   {[]job.Range{{First: 40, Last: 40}}, 40, job.Pending, job.ReasonBackoff},
			"one that runs":    {[]job.Range{{First: 20, Last: 20}}, 20, job.Running, ""},
			"one that ended":   {[]job.Range{{First: 10, Last: 10}}, 10, job.Failed, ""},
			"some":             {[]job.Range{{First: 10, Last: 20}, {First: 40, Last: 50}}, 40, job.Pending, job.ReasonBackoff},
			"some with a held": {[]job.Range{{First: 10, Last: 20}, {First: 50, Last: 50}}, 50, job.Held, "Held"},
		} {
			x, err := amy.client.Why(t.Context(), j.ID, want.tasks)
			if err != nil || x.Task == nil || *x.Task != want.number || x.TaskState != want.state || x.Reason != want.reason || x.State != job.Running {
				t.Errorf("%s: got %+v, %v, want task %d, %s, %s", name, x, err, want.number, want.state, want.reason)
			}
		}
		if _, err := amy.client.Why(t.Context(), j.ID, []job.Range{{First: 11, Last: 19}}); !errors.Is(err, ErrNotFound) {
			t.Errorf("numbers that no task has: got %v, want ErrNotFound", err)
		}
		j.Tasks[2].State, j.Tasks[3].State, j.Tasks[4].State = job.Succeeded, job.Succeeded, job.Succeeded
		if x, err := amy.client.Why(t.Context(), ben.put(j).ID, nil); err != nil || x.Task != nil {
			t.Errorf("no task waits: got %+v, %v, want no task", x, err)
		}
		one := ben.newJob(2)
		one.Tasks[0].State = job.Running
		if x, err := amy.client.Why(t.Context(), ben.put(one).ID, nil); err != nil || x.Task != nil {
			t.Errorf("a job that is no array: got %+v, %v, want no task", x, err)
		}
	})
}

// Numbers that no task has, and texts that are no numbers, are refused with one line.
func TestInvalidTaskNumbersAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "amy")
		amy := c.daemons[0]
		j := amy.put(amy.newArray(1, "10-90:10"))
		one := amy.put(amy.newJob(2))
		ctx := t.Context()
		for name, want := range map[string]struct {
			err  error
			is   error
			text string
		}{
			"no such number": {second(amy.client.Tasks(ctx, j.ID, TaskFilter{Tasks: []job.Range{{First: 11, Last: 19}}})), ErrNotFound, "the job has 9 tasks, from 10 to 90"},
			"of one task":    {second(amy.client.Cancel(ctx, one.ID, Change{Tasks: []job.Range{{First: 1, Last: job.MaxIndex}}})), ErrNotFound, "the job has one task, 0"},
			"cursor":         {second(amy.client.Tasks(ctx, j.ID, TaskFilter{Cursor: "-1"})), ErrBad, "cursor"},
			"high cursor":    {second(amy.client.Tasks(ctx, j.ID, TaskFilter{Cursor: "9999999999999999"})), ErrBad, "cursor"},
			"long cursor":    {second(amy.client.Tasks(ctx, j.ID, TaskFilter{Cursor: strings.Repeat("1", 17)})), ErrBad, "cursor"},
			"state":          {second(amy.client.Tasks(ctx, j.ID, TaskFilter{States: []job.State{"NOPE"}})), ErrBad, "NOPE"},
			"limit":          {second(amy.client.Tasks(ctx, j.ID, TaskFilter{Limit: 1001})), ErrBad, "limit"},
			"no job":         {second(amy.client.Tasks(ctx, job.NewID(amy.group, 99), TaskFilter{})), ErrNotFound, ""},
		} {
			if !errors.Is(want.err, want.is) || !strings.Contains(fmt.Sprint(want.err), want.text) {
				t.Errorf("%s: got %v, want %v with %q", name, want.err, want.is, want.text)
			}
		}
		for _, text := range []string{"x", "-1", "1-", "5-1", "2147483648", strings.Repeat("1,", job.MaxRanges) + "1", strings.Repeat("9", 30_000), "1..2"} {
			_, err := amy.client.change(ctx, j.ID, "cancel", Change{})
			if err != nil {
				t.Fatal(err)
			}
			err = amy.client.call(ctx, "POST", jobPath(j.ID, "/cancel"), nil, changeRequest{Tasks: text}, &Job{})
			if !errors.Is(err, ErrBad) || strings.Contains(err.Error(), "\n") || len(err.Error()) > 400 {
				t.Errorf("tasks %.20q: got %v, want ErrBad in one short line", text, err)
			}
		}
	})
}

func second[T any](_ T, err error) error { return err }

// A request about some tasks reaches the owner with their indexes, also with as many ranges as a selector may have.
func TestChangesReachTheOwnerWithTheirTasks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "amy", "ben")
		amy, ben := c.daemons[0], c.daemons[1]
		j := ben.put(ben.newArray(1, "10-90:10"))
		ctx := t.Context()
		some := []job.Range{{First: 80, Last: 2_000_000_000}, {First: 10, Last: 20}, {First: 15, Last: 30}}
		for _, err := range []error{
			second(amy.client.Cancel(ctx, j.ID, Change{Tasks: some, Reason: "enough"})),
			second(amy.client.Hold(ctx, j.ID, Change{Tasks: some})),
			second(amy.client.Release(ctx, j.ID, Change{Tasks: some})),
			second(amy.client.Requeue(ctx, j.ID, Change{Tasks: some, Failed: true})),
		} {
			if err != nil {
				t.Error(err)
			}
		}
		id := string(j.ID)
		want := []string{
			"cancel " + id + ".0-2,7-8: enough", "hold " + id + ".0-2,7-8 false: ", "hold " + id + ".0-2,7-8 true: ",
			"requeue " + id + ".0-2,7-8 failed=true: ",
		}
		if !slices.Equal(ben.asked, want) {
			t.Errorf("asked %q, want %q", ben.asked, want)
		}
		var many []job.Range
		for i := range job.MaxRanges {
			many = append(many, job.Range{First: job.MaxIndex - 2*i, Last: job.MaxIndex - 2*i})
		}
		many[0].First, many[0].Last = 10, 10
		if _, err := amy.client.Cancel(ctx, j.ID, Change{Tasks: many}); err != nil {
			t.Errorf("a cancel with %d ranges: got %v, want no error", len(many), err)
		}
		if l, err := amy.client.Tasks(ctx, j.ID, TaskFilter{Tasks: many}); err != nil || len(l.Items) != 1 {
			t.Errorf("a list with %d ranges: got %v, want one task", len(many), err)
		}
	})
}

// WaitTasks returns when these tasks have ended, whatever the others do, and also if the owner is silent for a while.
func TestWaitTasksReturnsWhenTheseTasksEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "amy", "ben")
		amy, ben := c.daemons[0], c.daemons[1]
		j := ben.newArray(1, "10-90:10")
		ben.put(j)
		type result struct {
			failed []Task
			err    error
		}
		got, id := make(chan result, 1), j.ID
		go func() {
			failed, err := amy.client.WaitTasks(t.Context(), id, []job.Range{{First: 20, Last: 40}})
			got <- result{failed, err}
		}()
		set := func(i int, s job.State) {
			j.Tasks = slices.Clone(j.Tasks)
			j.Tasks[i].State = s
			j.Tasks[i].Exit = &job.Exit{State: s, Code: 9}
			j = ben.put(j)
			time.Sleep(time.Second)
			synctest.Wait()
		}
		set(0, job.Failed)
		set(1, job.Succeeded)
		set(2, job.Failed)
		select {
		case r := <-got:
			t.Fatalf("WaitTasks returned %v, %v while task 40 waits", r.failed, r.err)
		default:
		}
		set(3, job.Cancelled)
		select {
		case r := <-got:
			if r.err != nil || !slices.Equal(numbers(r.failed), []int{30, 40}) {
				t.Errorf("WaitTasks = %v, %v, want 30 and 40", numbers(r.failed), r.err)
			}
		default:
			t.Error("WaitTasks still waits")
		}
		j.Tasks = slices.Clone(j.Tasks) // as in a gang in which one member ended the others
		j.Tasks[3].Reason = job.Reason{Word: job.ReasonGangEnded, Detail: "rank 0 on n1: exit code 9"}
		j = ben.put(j)
		for last, want := range map[int][]int{40: {30}, 30: {30}} {
			failed, err := amy.client.WaitTasks(t.Context(), j.ID, []job.Range{{First: 20, Last: last}})
			if err != nil || !slices.Equal(numbers(failed), want) {
				t.Errorf("WaitTasks of 20 to %d = %v, %v; want %v", last, numbers(failed), err, want)
			}
		}
		failed, err := amy.client.WaitTasks(t.Context(), j.ID, []job.Range{{First: 40, Last: 40}})
		if err != nil || !slices.Equal(numbers(failed), []int{40}) {
			t.Errorf("WaitTasks of a member that another one ended = %v, %v, want 40", numbers(failed), err)
		}
		if _, err := amy.client.WaitTasks(t.Context(), job.NewID(ben.group, 99), []job.Range{{}}); !errors.Is(err, ErrNotFound) {
			t.Errorf("WaitTasks of an unknown job = %v, want ErrNotFound", err)
		}
	})
}
