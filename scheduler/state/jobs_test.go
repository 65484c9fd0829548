package state_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler/state"
	"github.com/musterhq/muster/scheduler/state/statetest"
)

const group = job.Group(7)

var start = time.Unix(1_700_000_000, 123)

func id(n int) job.ID { return job.NewID(group, uint64(n+1)) }

// gangSize is the size of the gangs of job 3. It does not divide the size of a chunk.
const gangSize = 3

// anyRecord draws a record about one of four jobs: with one task, with two, with several chunks of tasks, and with
// gangs in several chunks. Its times have no monotonic part, like times that are read from disk.
func anyRecord(t *rapid.T, table *state.Table) job.Record {
	n := rapid.SampledFrom([]int{0, 1, 2, 3, 3, 3}).Draw(t, "job")
	at := start.Add(time.Duration(rapid.IntRange(0, 1e6).Draw(t, "at")) * time.Millisecond)
	a := job.Attempt{Job: id(n), Task: rapid.SampledFrom([]int{0, 0, 1, 255, 256, 599, 600}).Draw(t, "task"), N: 1}
	if j := table.Job(id(n)); j != nil && j.Has(a.Task) {
		a.N = max(1, j.Task(a.Task).Attempt+rapid.IntRange(-1, 1).Draw(t, "attempt"))
	}
	text := rapid.SampledFrom([]string{"", "why", strings.Repeat("long ", 100)})
	hold := rapid.SampledFrom([]string{"", "", "three hosts were lost"}).Draw(t, "hold")
	ranges := rapid.SampledFrom([][]job.Range{nil, nil, {{First: 0, Last: 0}}, {{First: 1, Last: 300}}, {{First: 256, Last: 256}, {First: 599, Last: 9999}}}).Draw(t, "ranges")
	switch rapid.IntRange(0, 10).Draw(t, "kind") {
	case 0:
		s := job.DefaultSpec()
		if n == 3 {
			s.Nodes, s.KeepOnBadExit, s.Array = gangSize, rapid.Bool().Draw(t, "keep"), "0-199"
		}
		s.Command, s.Retries = []string{"/bin/true"}, rapid.IntRange(0, 2).Draw(t, "retries")
		if rapid.Bool().Draw(t, "bulk") {
			s.Params = map[string]string{"p": strings.Repeat("x", job.MaxBulk)}
		}
		s.Hold, s.Requeue = rapid.Bool().Draw(t, "held"), rapid.Bool().Draw(t, "requeue")
		s.RetryOn = rapid.SampledFrom([][]int{nil, {1, 137}}).Draw(t, "retry on")
		s.CheckpointExitCode = rapid.SampledFrom([]int{0, 85}).Draw(t, "checkpoint")
		return job.SubmitRecord{Job: id(n), User: "amy", Spec: s, Key: rapid.SampledFrom([]string{"", "k"}).Draw(t, "key"), At: at, Tasks: []int{0, 2, 600, 600}[n]}
	case 1, 2, 3:
		if n == 3 {
			return anyGangRecord(t, a, text.Draw(t, "detail"), at)
		}
		host := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "host")
		boot := rapid.SampledFrom([]string{"", "b1", "b2"}).Draw(t, "boot") // a host that has rebooted has another row
		return job.AssignRecord{Attempt: a, Node: job.Peer(host), NodeName: host, Store: "s" + host, Fencing: job.Fencing{Certain: boot == "b1", Boot: boot}, At: rapid.SampledFrom([]time.Time{{}, at}).Draw(t, "placed")}
	case 4:
		proof := rapid.SampledFrom([]job.Proof{job.ProofDeclined, job.ProofDead, job.ProofExpired, job.ProofNeverStarted}).Draw(t, "proof")
		return job.UnassignRecord{Attempt: a, Proof: proof, Detail: text.Draw(t, "detail"), At: at, Hold: hold}
	case 5, 6:
		exit := job.Exit{
			State: rapid.SampledFrom([]job.State{job.Succeeded, job.Failed, job.NodeFail, job.Preempted, job.Timeout}).Draw(t, "state"),
			Code:  rapid.SampledFrom([]int{-1, 0, 1, 85, 255}).Draw(t, "code"), Signal: rapid.SampledFrom([]int{0, 0, 9, 64}).Draw(t, "signal"), Reason: text.Draw(t, "reason"),
			Started: rapid.Bool().Draw(t, "ran"), Began: at.Add(-time.Second), Ended: at, Tail: text.Draw(t, "tail"), Isolation: text.Draw(t, "isolation"),
		}
		devices := rapid.SampledFrom([][]string{nil, {"GPU-1"}, {"GPU-1", "GPU-2"}}).Draw(t, "devices")
		return job.ResultRecord{Attempt: a, Devices: devices, Exit: exit, At: at, Hold: hold}
	case 7:
		return job.CancelRecord{Job: id(n), Tasks: ranges, Reason: text.Draw(t, "reason"), At: at}
	case 8:
		return job.HoldRecord{Job: id(n), Tasks: ranges, Release: rapid.Bool().Draw(t, "release"), Reason: text.Draw(t, "reason"), At: at}
	case 9:
		return job.RequeueRecord{Job: id(n), Tasks: ranges, Failed: rapid.Bool().Draw(t, "failed"), Reason: text.Draw(t, "reason"), At: at}
	default:
		return job.PurgeRecord{Job: id(n)}
	}
}

// anyGangRecord draws a record about the gang of an attempt.
func anyGangRecord(t *rapid.T, a job.Attempt, detail string, at time.Time) job.Record {
	a.Task -= a.Task % gangSize * rapid.SampledFrom([]int{0, 1, 1, 1, 1, 1}).Draw(t, "from rank 0")
	if rapid.IntRange(0, 4).Draw(t, "unassign") == 0 {
		return job.UnassignGangRecord{Attempt: a, Proof: job.ProofDeclined, Detail: detail, At: at}
	}
	hosts := rapid.Permutation([]string{"a", "b", "c", "d", "d"}).Draw(t, "hosts")[:rapid.SampledFrom([]int{2, 3, 3, 3, 3, 4}).Draw(t, "members")]
	r := job.AssignGangRecord{Attempt: a, At: at}
	for _, h := range hosts {
		r.Members = append(r.Members, job.Assignee{Node: job.Peer(h), NodeName: h, Store: "s" + h, Fencing: job.Fencing{Certain: h == "a", Boot: "b" + h}})
	}
	return r
}

// checkGangs checks that the members of a gang wait together, are assigned together and on different hosts, have the
// same attempt, and are told to end by others only while some are assigned.
func checkGangs(t *rapid.T, v *job.Job) {
	for i := 0; v.Spec.Nodes > 1 && i < len(v.Tasks); i += gangSize {
		gang := v.Tasks[i : i+gangSize]
		waits, assigned := 0, 0
		for k, x := range gang {
			if x.State == job.Pending || x.State == job.Held {
				waits++
			}
			if x.Assigned {
				assigned++
			}
			if x.State != job.Reserved && x.Assigned || x.State == job.Reserved && !x.Assigned || x.Attempt != gang[0].Attempt || x.Runs != gang[0].Runs {
				t.Fatalf("rank %d of %+v does not agree with the others", k, gang)
			}
			if k > 0 && x.Attempt > 0 && x.Node == gang[0].Node {
				t.Fatalf("two members on %s", x.Node)
			}
		}
		if waits > 0 && (waits < gangSize || assigned > 0 || gang[0].State != gang[2].State) {
			t.Fatalf("only a part of a gang waits: %+v", gang)
		}
		for _, x := range gang {
			if assigned == 0 && x.Ending != job.NotEnding || x.Ending == job.EndsGang && v.Spec.KeepOnBadExit {
				t.Fatalf("a member is to end though no other member is assigned: %+v", gang)
			}
		}
	}
}

func views(table *state.Table) (out []job.Job) {
	for _, j := range table.Jobs() {
		v := j.View(0, j.Len())
		state.AddEarlier(v.Tasks, j)
		out = append(out, v)
	}
	return out
}

// load returns a table with all jobs whose rows are on the disk.
func load(t interface{ Fatal(...any) }, d statetest.Disk) *state.Table {
	table := state.NewTable(group)
	for id := range d {
		j, err := state.Decode(d.Rows(id, "", ""))
		if err != nil {
			t.Fatal(err)
		}
		table.Load(j)
	}
	return table
}

// Two tables that apply the same records have the same jobs after each record, and so does a table that is decoded from
// the rows.
func TestRecordsAndRowsAgree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		owner, follower, rows := state.NewTable(group), state.NewTable(group), statetest.Disk{}
		for seq := range uint64(rapid.IntRange(1, 60).Draw(t, "records")) {
			r, epoch := anyRecord(t, owner), job.Epoch{Generation: 1, Term: seq/8 + 1}
			before := views(owner)
			c := owner.Apply(r, seq+1, epoch)
			if d := follower.Apply(r, seq+1, epoch); d.Moved != c.Moved {
				t.Fatalf("%#v changed one of the tables, but not the other", r)
			}
			now := views(owner)
			if !c.Moved && !reflect.DeepEqual(before, now) {
				t.Fatalf("%#v changed %+v to %+v, but Moved is false", r, before, now)
			}
			if !reflect.DeepEqual(views(follower), now) {
				t.Fatalf("after %#v the follower has\n%+v, want as the owner\n%+v", r, views(follower), now)
			}
			for _, v := range now {
				if v.Counts != job.CountsOf(v.Tasks) {
					t.Fatalf("counts %v of %v, want %v", v.Counts, v.Tasks, job.CountsOf(v.Tasks))
				}
				checkOutcomes(t, &v)
				checkGangs(t, &v)
			}
			for _, j := range owner.Jobs() {
				taken, err := j.TakeRows()
				if err != nil {
					t.Fatal(err)
				}
				rows.Save(taken, nil)
				if again, _ := j.TakeRows(); len(again) != 0 {
					t.Fatalf("a second TakeRows returns %d rows, want none", len(again))
				}
			}
			for j := range rows {
				if owner.Job(j) == nil {
					delete(rows, j)
				}
			}
			if loaded := views(load(t, rows)); !reflect.DeepEqual(loaded, now) {
				t.Fatalf("after %#v the rows have\n%+v, want as the table\n%+v", r, loaded, now)
			}
		}
	})
}

// checkOutcomes checks that the outcomes of a job's tasks are in the order of their attempts, have final states, and
// include the newest attempt if it runs or has ended the task.
func checkOutcomes(t *rapid.T, v *job.Job) {
	for _, x := range v.Tasks {
		all, last := x.Outcomes(), 0
		for i, o := range all {
			if o.N <= last || o.N > x.Attempt || o.Exit.State == "" || o.Exit.State.Ended() == (x.Assigned && i == len(all)-1) {
				t.Fatalf("the outcomes of %+v are not in order: %+v", x, all)
			}
			last = o.N
		}
		if x.Earlier != nil && len(x.Earlier.Outcomes) > job.MaxOutcomes || x.Exit != nil && x.State.Ended() && last != x.Attempt {
			t.Fatalf("the outcomes of %+v are too many, or lack the last: %+v", x, all)
		}
	}
}

func ExampleTable() {
	table := state.NewTable(group)
	s := job.DefaultSpec()
	table.Apply(job.SubmitRecord{Job: id(0), Spec: s, Tasks: 3}, 1, job.Epoch{})
	table.Apply(job.AssignRecord{Attempt: job.Attempt{Job: id(0), Task: 1, N: 1}, Node: "n1"}, 2, job.Epoch{Term: 1})
	j := table.Job(id(0))
	fmt.Println(j.State(), j.Len(), j.Task(1).Node)
	// Output: RESERVED 3 n1
}

// FuzzDecode checks that Decode never panics, and that all tasks of a decoded job can be read.
func FuzzDecode(f *testing.F) {
	table := state.NewTable(group)
	spec := job.DefaultSpec()
	a := job.Attempt{Job: id(0), Task: 1, N: 1}
	exit := job.Exit{State: job.Failed, Code: 1, Reason: "r", Started: true, Began: start, Ended: start, Tail: "t", Isolation: "i"}
	for seq, r := range []job.Record{
		job.SubmitRecord{Job: id(0), User: "amy", Spec: spec, At: start, Tasks: 300},
		job.AssignRecord{Attempt: a, Node: "n", NodeName: "n1", Store: "s"},
		job.ResultRecord{Attempt: a, Devices: []string{"g"}, Exit: exit, At: start},
		job.RequeueRecord{Job: id(0)},
		job.AssignRecord{Attempt: job.Attempt{Job: id(0), Task: 1, N: 2}, Node: "n", NodeName: "n1", Store: "s"},
	} {
		table.Apply(r, uint64(seq), job.Epoch{Term: 1})
	}
	rows, err := table.Job(id(0)).TakeRows()
	if err != nil {
		f.Fatal(err)
	}
	for _, r := range rows {
		f.Add(rows[0].Data, r.Part, r.Data)
	}
	f.Fuzz(func(t *testing.T, header []byte, part string, data []byte) {
		all := []job.Row{{Job: id(0), Data: header}, rows[1]} // outcomes and chunks refer to the host
		if part != "" {
			all = append(all, job.Row{Job: id(0), Part: part, Data: data})
		}
		j, err := state.Decode(all)
		if err != nil {
			return
		}
		if j.Len() > 1000 {
			return
		}
		v := j.View(0, j.Len())
		state.AddEarlier(v.Tasks, j)
		if v.Counts != job.CountsOf(v.Tasks) {
			t.Fatalf("counts %v of %v, want %v", v.Counts, v.Tasks, job.CountsOf(v.Tasks))
		}
	})
}

// One record about a job of a million tasks changes only the rows of one task and of its chunk.
func TestOneRecordChangesFewRows(t *testing.T) {
	table := state.NewTable(group)
	s := job.DefaultSpec()
	s.Script = strings.Repeat("#", 100_000) // the spec is saved once
	table.Apply(job.SubmitRecord{Job: id(0), User: "amy", Spec: s, At: start, Tasks: job.MaxTasks}, 1, job.Epoch{})
	j := table.Job(id(0))
	for _, task := range []int{0, 1, 300, 999_999, 999_998, 999_997} {
		for i := range 256 { // the other tasks of its chunk, on many hosts
			a := job.Attempt{Job: id(0), Task: task/256*256 + i, N: 1}
			if j.Has(a.Task) {
				table.Apply(job.AssignRecord{Attempt: a, Node: job.Peer(fmt.Sprint("host", i)), NodeName: "n", Store: "s"}, 2, job.Epoch{Term: 1})
			}
		}
		if _, err := j.TakeRows(); err != nil {
			t.Fatal(err)
		}
		at := start.Add(time.Hour)
		exit := job.Exit{State: job.Failed, Code: 1, Reason: "r", Started: true, Began: start, Ended: at, Tail: strings.Repeat("x", job.TailBytes)}
		table.Apply(job.ResultRecord{Attempt: job.Attempt{Job: id(0), Task: task, N: 1}, Exit: exit, At: at}, 3, job.Epoch{Term: 1})
		rows, err := j.TakeRows()
		if err != nil {
			t.Fatal(err)
		}
		size := 0
		for _, r := range rows {
			size += len(r.Data)
		}
		if len(rows) > 3 || size > 10_000 {
			t.Errorf("the end of task %d saves %d bytes in %d rows, want at most 3 and at most 10_000", task, size, len(rows))
		}
	}
}

// DropTails frees the tails of a job of several tasks, and AddTails restores them from disk. The tail of an older
// attempt is not restored if a newer attempt has ended without one.
func TestTailsAreDroppedAndRestored(t *testing.T) {
	table, d := state.NewTable(group), statetest.Disk{}
	table.Apply(job.SubmitRecord{Job: id(0), Spec: job.Spec{Retries: 1}, At: start, Tasks: 2}, 1, job.Epoch{})
	j := table.Job(id(0))
	end := func(n int, tail string) {
		a := job.Attempt{Job: id(0), Task: 1, N: n}
		exit := job.Exit{State: job.Failed, Code: 1, Started: true, Began: start, Ended: start.Add(time.Duration(n)), Tail: tail}
		table.Apply(job.AssignRecord{Attempt: a, Node: "n"}, 2, job.Epoch{})
		table.Apply(job.ResultRecord{Attempt: a, Exit: exit, At: start}, 3, job.Epoch{})
		rows, err := j.TakeRows()
		if err != nil {
			t.Fatal(err)
		}
		d.Save(rows, nil)
		j.DropTails()
		if got := j.Task(1).Exit.Tail; got != "" {
			t.Errorf("attempt %d: the tail %q is still in memory, want none", n, got)
		}
		v := j.View(0, 2)
		from, to := state.TailParts(0, 2)
		if state.AddTails(v.Tasks, d.Rows(id(0), from, to)); v.Tasks[1].Exit.Tail != tail {
			t.Errorf("attempt %d: the disk has the tail %q, want %q", n, v.Tasks[1].Exit.Tail, tail)
		}
	}
	end(1, "boom")
	end(2, "")
}

// apply applies records to a new table with one job of n tasks, and returns the job.
func apply(t *testing.T, n int, records ...job.Record) *state.Job {
	t.Helper()
	table := state.NewTable(group)
	table.Apply(job.SubmitRecord{Job: id(0), Spec: job.DefaultSpec(), Tasks: n}, 1, job.Epoch{})
	for i, r := range records {
		if c := table.Apply(r, uint64(i+2), job.Epoch{Term: 1}); !c.Moved {
			t.Fatalf("record %d, %#v, has no effect", i, r)
		}
	}
	return table.Job(id(0))
}

func attempt(task, n int) job.Attempt { return job.Attempt{Job: id(0), Task: task, N: n} }

func ended(task, n int, s job.State) job.ResultRecord {
	return job.ResultRecord{Attempt: attempt(task, n), Exit: job.Exit{State: s, Started: true}, At: start}
}

// A cancel of some tasks ends the waiting ones at once, and the running ones when their hosts confirm it. The others go
// on.
func TestCancelOfSomeTasksLeavesTheOthers(t *testing.T) {
	some := []job.Range{{First: 1, Last: 300}}
	j := apply(t, 600, job.AssignRecord{Attempt: attempt(0, 1)}, job.AssignRecord{Attempt: attempt(5, 1)}, job.CancelRecord{Job: id(0), Tasks: some, Reason: "enough", At: start})
	if c := j.Counts(); c.Of(job.Cancelled) != 299 || c.Of(job.Reserved) != 2 || c.Of(job.Pending) != 299 {
		t.Errorf("counts %v, want Of(job.Cancelled) 299, Of(job.Reserved) 2 and Of(job.Pending) 299", c)
	}
	if j.Ending(0) != job.NotEnding || j.Ending(5) != job.EndsCancelled || j.Task(5).Reason.Detail != "enough" {
		t.Errorf(`task 0 ends: %d, task 5: %d, %s, want %v, %v and Detail "enough"`, j.Ending(0), j.Ending(5), j.Task(5).Reason, job.NotEnding, job.EndsCancelled)
	}
	j = apply(t, 600, job.AssignRecord{Attempt: attempt(5, 1)}, job.CancelRecord{Job: id(0), Tasks: some, Reason: "enough", At: start}, ended(5, 1, job.Failed))
	if x := j.Task(5); x.State != job.Cancelled || x.Reason.Detail != "enough" || j.Ending(5) != job.NotEnding {
		t.Errorf("task 5 is %s, %s, want CANCELLED with the reason \"enough\", and not ending", x.State, x.Reason)
	}
}

// A requeue runs ended tasks again. Running tasks are told to end, and run again then. A repeated result does not count
// afterwards.
func TestRequeueRunsEndedTasksAgain(t *testing.T) {
	all := job.RequeueRecord{Job: id(0), Reason: "again", At: start}
	j := apply(t, 3, job.AssignRecord{Attempt: attempt(0, 1)}, ended(0, 1, job.Succeeded), job.AssignRecord{Attempt: attempt(1, 1)}, all)
	if x := j.Task(0); x.State != job.Pending || x.Settled != 1 || x.Runs != 0 {
		t.Errorf("task 0: %+v, want State %v, Settled 1 and Runs 0", x, job.Pending)
	}
	if j.WouldTakeLate(ended(0, 1, job.Succeeded)) {
		t.Error("the result of the earlier attempt counts again")
	}
	if j.Ending(1) != job.EndsRequeued || j.Task(2).State != job.Pending {
		t.Errorf("task 1 ends: %d, want it requeued, and task 2 pending", j.Ending(1))
	}
	j = apply(t, 3, job.AssignRecord{Attempt: attempt(1, 1)}, all, ended(1, 1, job.Cancelled), job.AssignRecord{Attempt: attempt(1, 2)})
	if x := j.Task(1); x.State != job.Reserved || x.Attempt != 2 {
		t.Errorf("task 1: %+v, want State %v and Attempt 2", x, job.Reserved)
	}
}

// A job that is requeued after its end gets a new age, also in its rows. A running job keeps its age.
func TestRequeuedJobGetsANewAge(t *testing.T) {
	at := start.Add(time.Hour)
	again := job.RequeueRecord{Job: id(0), At: at}
	for _, over := range []bool{false, true} {
		records := []job.Record{job.AssignRecord{Attempt: attempt(0, 1)}, again}
		if over {
			records = []job.Record{job.AssignRecord{Attempt: attempt(0, 1)}, ended(0, 1, job.Failed), again}
		}
		j := apply(t, 1, records...)
		rows, err := j.TakeRows()
		if err != nil {
			t.Fatal(err)
		}
		d := statetest.Disk{}
		d.Save(rows, nil)
		read, err := state.Decode(d.Rows(id(0), "", ""))
		if err != nil {
			t.Fatal(err)
		}
		for _, j := range []*state.Job{j, read} {
			if j.Queued.Equal(at) != over || (j.Seq == uint64(len(records)+1)) != over {
				t.Errorf("ended: %v: queued at %s, by record %d, want new ones only if the job had ended", over, j.Queued, j.Seq)
			}
		}
	}
}

func TestRequeueOfFailedTasksLeavesTheOthers(t *testing.T) {
	failed := job.RequeueRecord{Job: id(0), Failed: true, At: start}
	j := apply(t, 4, job.AssignRecord{Attempt: attempt(0, 1)}, ended(0, 1, job.Succeeded), job.AssignRecord{Attempt: attempt(1, 1)},
		ended(1, 1, job.Failed), job.AssignRecord{Attempt: attempt(2, 1)}, failed)
	for i, want := range []job.State{job.Succeeded, job.Pending, job.Reserved, job.Pending} {
		if x := j.Task(i); x.State != want || x.Ending != job.NotEnding {
			t.Errorf("task %d is %s, want the state of the case, and not ending", i, x.State)
		}
	}
}

// A cancelled job can be requeued in part. The tasks that still run end as cancelled, unless they are requeued.
func TestCancelledJobIsRequeuedInPart(t *testing.T) {
	j := apply(t, 3, job.AssignRecord{Attempt: attempt(0, 1)}, job.AssignRecord{Attempt: attempt(1, 1)}, job.CancelRecord{Job: id(0), Reason: "stop", At: start},
		job.RequeueRecord{Job: id(0), Tasks: []job.Range{{First: 1, Last: 2}}, At: start}, ended(0, 1, job.Cancelled), ended(1, 1, job.Cancelled))
	for i, want := range []job.State{job.Cancelled, job.Pending, job.Pending} {
		if x := j.Task(i); x.State != want {
			t.Errorf("task %d is %s, %s, want %v", i, x.State, x.Reason, want)
		}
	}
}

// A cancel that ends running tasks does not change the exit code of the job, which is that of the tasks that failed
// before.
func TestExitCodeOfAJobIsThatOfItsFailedTasks(t *testing.T) {
	exit := func(task int, s job.State, code, signal int) job.ResultRecord {
		return job.ResultRecord{Attempt: attempt(task, 1), At: start, Exit: job.Exit{State: s, Started: true, Code: code, Signal: signal, Ended: start}}
	}
	cancel := job.CancelRecord{Job: id(0), Reason: "2 of its tasks have failed", At: start}
	assign := func(n int) (records []job.Record) {
		for i := range n {
			records = append(records, job.AssignRecord{Attempt: attempt(i, 1), Node: "n"})
		}
		return records
	}
	for name, c := range map[string]struct {
		ends         []job.Record
		state        job.State
		code, status int
	}{
		"one failed":           {[]job.Record{exit(0, job.Failed, 3, 0), cancel, exit(1, job.Cancelled, 143, 0), exit(2, job.Cancelled, 0, 15)}, job.Failed, 3, 3},
		"one timed out":        {[]job.Record{exit(0, job.Timeout, 0, 15), cancel, exit(1, job.Cancelled, 143, 0), exit(2, job.Cancelled, 0, 15)}, job.Timeout, 0, job.ExitTimeLimit},
		"none failed":          {[]job.Record{exit(0, job.Succeeded, 0, 0), cancel, exit(1, job.Cancelled, 0, 15), exit(2, job.Cancelled, 0, 1)}, job.Cancelled, 0, 143},
		"none ended by itself": {[]job.Record{cancel, exit(0, job.Cancelled, 7, 0), exit(1, job.Cancelled, 0, 0), exit(2, job.Cancelled, 0, 0)}, job.Cancelled, 7, job.ExitMuster},
	} {
		j := apply(t, 5, append(assign(3), c.ends...)...)
		if v := j.View(0, 0); v.State() != c.state || v.Ends.Code != c.code || v.Ends.Status != c.status {
			t.Errorf("%s: %s, ends %+v, want %s, %d and %d", name, v.State(), v.Ends, c.state, c.code, c.status)
		}
	}
}

// A host that reports many different exit codes does not make the summary of the ends larger.
func TestManyExitCodesDoNotMakeAJobLarge(t *testing.T) {
	table := state.NewTable(group)
	j := table.Apply(job.SubmitRecord{Job: id(0), Spec: job.DefaultSpec(), Tasks: 2000}, 1, job.Epoch{}).Job
	for i := range 2000 {
		a := job.Attempt{Job: id(0), Task: i, N: 1}
		table.Apply(job.AssignRecord{Attempt: a, Node: "n"}, 2, job.Epoch{Term: 1})
		table.Apply(job.ResultRecord{Attempt: a, Exit: job.Exit{State: job.Failed, Started: true, Code: (i - 1000) * 1_000_000, Ended: start}, At: start}, 3, job.Epoch{Term: 1})
	}
	if v := j.View(0, 0); v.Ends.Code != 255 || v.Ends.Status != 255 {
		t.Errorf("ends %+v, want Code 255 and Status 255", v.Ends)
	}
	if n := testing.AllocsPerRun(10, func() { j.View(0, 0) }); n > 2 {
		t.Errorf("a view takes %v allocations, want at most 2", n)
	}
}
