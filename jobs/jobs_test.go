package jobs_test

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/jobs"
)

const group = job.Group(7)

var start = time.Unix(1_700_000_000, 123)

func id(n int) job.ID { return job.NewID(group, uint64(n+1)) }

// anyRecord draws a record about one of three jobs: of one task, of two, and of a few
// chunks. Times are read from disk, so they have no monotonic part.
func anyRecord(t *rapid.T, table *jobs.Table) job.Record {
	n := rapid.IntRange(0, 2).Draw(t, "job")
	at := start.Add(time.Duration(rapid.IntRange(0, 1e6).Draw(t, "at")) * time.Millisecond)
	a := job.Attempt{Job: id(n), Task: rapid.SampledFrom([]int{0, 0, 1, 255, 256, 599, 600}).Draw(t, "task"), N: 1}
	if j := table.Job(id(n)); j != nil && j.Has(a.Task) {
		a.N = max(1, j.Task(a.Task).Attempt+rapid.IntRange(-1, 1).Draw(t, "attempt"))
	}
	text := rapid.SampledFrom([]string{"", "why", strings.Repeat("long ", 100)})
	hold := rapid.SampledFrom([]string{"", "", "three hosts were lost"}).Draw(t, "hold")
	switch rapid.IntRange(0, 9).Draw(t, "kind") {
	case 0:
		s := job.DefaultSpec()
		s.Command, s.Retries = []string{"/bin/true"}, rapid.IntRange(0, 2).Draw(t, "retries")
		s.Hold, s.Requeue = rapid.Bool().Draw(t, "held"), rapid.Bool().Draw(t, "requeue")
		return job.SubmitRecord{Job: id(n), User: "amy", Spec: s, Key: rapid.SampledFrom([]string{"", "k"}).Draw(t, "key"), At: at, Tasks: []int{0, 2, 600}[n]}
	case 1, 2, 3:
		host := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "host")
		return job.AssignRecord{Attempt: a, Node: job.Peer(host), NodeName: host, Store: "s" + host}
	case 4:
		proof := rapid.SampledFrom([]job.Proof{job.ProofDeclined, job.ProofDead, job.ProofExpired, job.ProofNeverStarted}).Draw(t, "proof")
		return job.UnassignRecord{Attempt: a, Proof: proof, Detail: text.Draw(t, "detail"), At: at, Hold: hold}
	case 5, 6:
		exit := job.Exit{
			State: rapid.SampledFrom([]job.State{job.Succeeded, job.Failed, job.NodeFail, job.Preempted, job.Timeout}).Draw(t, "state"),
			Code:  rapid.IntRange(-1, 255).Draw(t, "code"), Signal: rapid.IntRange(0, 64).Draw(t, "signal"), Reason: text.Draw(t, "reason"),
			Started: rapid.Bool().Draw(t, "ran"), Began: at.Add(-time.Second), Ended: at, Tail: text.Draw(t, "tail"), Isolation: text.Draw(t, "isolation"),
		}
		devices := rapid.SampledFrom([][]string{nil, {"GPU-1"}, {"GPU-1", "GPU-2"}}).Draw(t, "devices")
		return job.ResultRecord{Attempt: a, Devices: devices, Exit: exit, At: at, Hold: hold}
	case 7:
		return job.CancelRecord{Job: id(n), Reason: text.Draw(t, "reason"), At: at}
	case 8:
		return job.HoldRecord{Job: id(n), Release: rapid.Bool().Draw(t, "release"), Reason: text.Draw(t, "reason")}
	default:
		return job.PurgeRecord{Job: id(n)}
	}
}

func views(table *jobs.Table) (out []job.Job) {
	for _, j := range table.Jobs() {
		out = append(out, j.View(0, j.Len()))
	}
	return out
}

// disk keeps rows as a store does.
type disk map[job.ID]map[string][]byte

func (d disk) save(rows []job.Row) {
	for _, r := range rows {
		if d[r.Job] == nil {
			d[r.Job] = map[string][]byte{}
		}
		if r.Data == nil {
			delete(d[r.Job], r.Part)
		} else {
			d[r.Job][r.Part] = r.Data
		}
	}
}

func (d disk) load(t interface{ Fatal(...any) }) *jobs.Table {
	table := jobs.NewTable(group)
	for j, parts := range d {
		var rows []job.Row
		for part, data := range parts {
			rows = append(rows, job.Row{Job: j, Part: part, Data: data})
		}
		slices.SortFunc(rows, func(a, b job.Row) int { return strings.Compare(a.Part, b.Part) })
		x, err := jobs.Decode(rows)
		if err != nil {
			t.Fatal(err)
		}
		table.Load(x)
	}
	return table
}

// The jobs that a table comes to are those of any other that applies the same records,
// and those that are read from its rows, after every record.
func TestRecordsAndRowsTellTheSame(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		owner, follower, rows := jobs.NewTable(group), jobs.NewTable(group), disk{}
		for seq := range uint64(rapid.IntRange(1, 60).Draw(t, "records")) {
			r, epoch := anyRecord(t, owner), job.Epoch{Generation: 1, Term: seq/8 + 1}
			before := views(owner)
			c := owner.Apply(r, seq+1, epoch)
			if d := follower.Apply(r, seq+1, epoch); d.Moved != c.Moved {
				t.Fatalf("%#v moved the one and not the other", r)
			}
			now := views(owner)
			if !c.Moved && !reflect.DeepEqual(before, now) {
				t.Fatalf("%#v changed %+v to %+v and says that it did not", r, before, now)
			}
			if !reflect.DeepEqual(views(follower), now) {
				t.Fatalf("after %#v the follower has\n%+v, the owner\n%+v", r, views(follower), now)
			}
			for _, v := range now {
				if v.Counts != job.CountsOf(v.Tasks) {
					t.Fatalf("counts %v of %v", v.Counts, v.Tasks)
				}
			}
			for _, j := range owner.Jobs() {
				taken, err := j.TakeRows()
				if err != nil {
					t.Fatal(err)
				}
				rows.save(taken)
				if again, _ := j.TakeRows(); len(again) != 0 {
					t.Fatalf("taken twice: %d rows", len(again))
				}
			}
			for j := range rows {
				if owner.Job(j) == nil {
					delete(rows, j)
				}
			}
			if loaded := views(rows.load(t)); !reflect.DeepEqual(loaded, now) {
				t.Fatalf("after %#v the rows tell\n%+v, the table\n%+v", r, loaded, now)
			}
		}
	})
}

func ExampleTable() {
	table := jobs.NewTable(group)
	s := job.DefaultSpec()
	table.Apply(job.SubmitRecord{Job: id(0), Spec: s, Tasks: 3}, 1, job.Epoch{})
	table.Apply(job.AssignRecord{Attempt: job.Attempt{Job: id(0), Task: 1, N: 1}, Node: "n1"}, 2, job.Epoch{Term: 1})
	j := table.Job(id(0))
	fmt.Println(j.State(), j.Len(), j.Task(1).Node)
	// Output: RESERVED 3 n1
}

// FuzzDecode: rows that can be read tell of a job whose every task can be looked at, and
// which can be written and read again.
func FuzzDecode(f *testing.F) {
	table := jobs.NewTable(group)
	spec := job.DefaultSpec()
	a := job.Attempt{Job: id(0), Task: 1, N: 1}
	exit := job.Exit{State: job.Failed, Code: 1, Reason: "r", Started: true, Began: start, Ended: start, Tail: "t", Isolation: "i"}
	for seq, r := range []job.Record{
		job.SubmitRecord{Job: id(0), User: "amy", Spec: spec, At: start, Tasks: 300},
		job.AssignRecord{Attempt: a, Node: "n", NodeName: "n1", Store: "s"},
		job.ResultRecord{Attempt: a, Devices: []string{"g"}, Exit: exit, At: start},
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
		rows := []job.Row{{Job: id(0), Data: header}}
		if part != "" {
			rows = append(rows, job.Row{Job: id(0), Part: part, Data: data})
		}
		j, err := jobs.Decode(rows)
		if err != nil {
			return
		}
		if j.Len() > 1000 {
			return
		}
		if v := j.View(0, j.Len()); v.Counts != job.CountsOf(v.Tasks) {
			t.Fatalf("counts %v of %v", v.Counts, v.Tasks)
		}
	})
}
