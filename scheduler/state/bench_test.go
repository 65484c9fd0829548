package state_test

import (
	"runtime"
	"testing"
	"time"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler/state"
)

const many = 100_000

func bigJob(tb testing.TB) (*state.Table, *state.Job) {
	table := state.NewTable(group)
	s := job.DefaultSpec()
	s.Command = []string{"/bin/true"}
	if c := table.Apply(job.SubmitRecord{Job: id(0), User: "amy", Spec: s, At: start, Tasks: many}, 1, job.Epoch{}); !c.Moved {
		tb.Fatal("the job was not submitted")
	}
	return table, table.Job(id(0))
}

// run applies an Assign and a Result of one task.
func run(tb testing.TB, table *state.Table, task, n int) {
	a := job.Attempt{Job: id(0), Task: task, N: n}
	at := start.Add(time.Duration(task) * time.Millisecond)
	exit := job.Exit{State: job.Preempted, Started: true, Began: at, Ended: at.Add(time.Second), Isolation: "cgroup v2 (cpu, memory, pids, devices)"}
	if n == 0 {
		a.N, exit.State = 1, job.Succeeded
	}
	if !table.Apply(job.AssignRecord{Attempt: a, Node: job.Peer(hosts[task%len(hosts)]), NodeName: "n", Store: "s"}, 2, job.Epoch{Term: 1}).Moved ||
		!table.Apply(job.ResultRecord{Attempt: a, Exit: exit, At: at.Add(2 * time.Second)}, 3, job.Epoch{Term: 1}).Moved {
		tb.Fatalf("attempt %v had no effect", a)
	}
}

var hosts = func() (out []string) {
	for i := range 1000 {
		out = append(out, "host-"+string(rune('a'+i%26))+string(rune('a'+i/26)))
	}
	return out
}()

// BenchmarkApply applies one record about a job of 100,000 tasks.
func BenchmarkApply(b *testing.B) {
	table, _ := bigJob(b)
	b.ReportAllocs()
	n := 0
	for b.Loop() { // two records each time
		run(b, table, (n*7919)%many, n/many+1)
		n++
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(2*n), "ns/record")
}

// BenchmarkRows takes the rows after one record about a job of 100,000 tasks that have all run.
func BenchmarkRows(b *testing.B) {
	table, j := bigJob(b)
	for i := range many {
		run(b, table, i, 1)
	}
	if _, err := j.TakeRows(); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	n, bytes := 0, 0
	for b.Loop() {
		run(b, table, (n*7919)%many, n/many+2)
		rows, err := j.TakeRows()
		if err != nil {
			b.Fatal(err)
		}
		for _, r := range rows {
			bytes += len(r.Data)
		}
		n++
	}
	b.ReportMetric(float64(bytes)/float64(n), "B/save")
}

// BenchmarkMemory measures the memory of a job of 100,000 tasks, first while all wait, then after all have run.
func BenchmarkMemory(b *testing.B) {
	for b.Loop() {
		before := heap()
		table, j := bigJob(b)
		waiting := heap() - before
		for i := range many {
			run(b, table, i, 0)
		}
		if _, err := j.TakeRows(); err != nil {
			b.Fatal(err)
		}
		ran := heap() - before
		runtime.KeepAlive(table)
		b.ReportMetric(float64(waiting)/many, "B/waiting-task")
		b.ReportMetric(float64(ran)/many, "B/ended-task")
	}
}

func heap() float64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}

// BenchmarkHoldReleaseMillion holds and releases a job of a million waiting tasks, which changes each chunk once.
func BenchmarkHoldReleaseMillion(b *testing.B) {
	table := state.NewTable(group)
	table.Apply(job.SubmitRecord{Job: id(0), Spec: job.DefaultSpec(), Tasks: job.MaxTasks}, 1, job.Epoch{})
	for b.Loop() {
		table.Apply(job.HoldRecord{Job: id(0)}, 2, job.Epoch{})
		table.Apply(job.HoldRecord{Job: id(0), Release: true}, 3, job.Epoch{})
	}
}

// BenchmarkOneTask applies all records of a job of one task, from Submit to Purge, and takes the rows after each.
func BenchmarkOneTask(b *testing.B) {
	table := state.NewTable(group)
	s := job.DefaultSpec()
	s.Command = []string{"/bin/true"}
	b.ReportAllocs()
	seq := uint64(0)
	take := func(j *state.Job) {
		if _, err := j.TakeRows(); err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		seq++
		j := table.Apply(job.SubmitRecord{Job: id(0), User: "amy", Spec: s, At: start}, seq, job.Epoch{}).Job
		take(j)
		a := job.Attempt{Job: id(0), N: 1}
		table.Apply(job.AssignRecord{Attempt: a, Node: "12D3KooWNbXmmoznxXaRArq2f2kCmHvrwAfEA3X4CP1LbytmZC9V", NodeName: "n1", Store: "s"}, seq, job.Epoch{Term: 1})
		take(j)
		exit := job.Exit{State: job.Succeeded, Started: true, Began: start, Ended: start, Isolation: "cgroup v2 (cpu, memory, pids, devices)"}
		table.Apply(job.ResultRecord{Attempt: a, Exit: exit, At: start}, seq, job.Epoch{Term: 1})
		take(j)
		if !table.Apply(job.PurgeRecord{Job: id(0)}, seq, job.Epoch{Term: 1}).Moved {
			b.Fatal("the job was not purged")
		}
	}
}
