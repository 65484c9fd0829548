package scheduler

import (
	"math"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler/step"
)

// near reports whether two times differ by less than a second.
func near(a, b time.Time) bool { return math.Abs(a.Sub(b).Seconds()) < 1 }

// A job waits from its submission, or from its begin time if it has one, and not while it is held. A job that starts is
// counted once, with the time that it waited.
func TestQueueCountsTheWaitOfEachJob(t *testing.T) {
	x := newBench(t, 1, 4)
	full, free := step.FromWorker{Peer: "w0", Msg: contract.Availability{}}, step.FromWorker{Peer: "w0", Msg: contract.Availability{Free: contract.Free{CPUs: 4, Memory: benchMemory}}}
	x.step(full)
	spec := benchSpec(0)
	spec.Resources.CPUs = 4
	x.step(step.Submit{Token: 1, Submission: job.Submission{User: "amy", Spec: spec}})
	begin := x.now.Add(10 * time.Minute)
	later := spec
	later.Begin = &begin
	held := spec
	held.Hold = true
	x.step(step.Submit{Token: 2, Submission: job.Submission{User: "ben", Spec: later}}, step.Submit{Token: 3, Submission: job.Submission{User: "cat", Spec: held}})
	born := x.now
	x.now = x.now.Add(5 * time.Minute)
	x.step()
	q := x.core.View().Queue()
	if !near(q.Oldest, born) || q.Waited.Total() != 0 {
		t.Errorf("since %s, want %s; started %+v", q.Oldest, born, q.Waited)
	}
	x.step(free)
	x.run()
	x.step(full)
	q = x.core.View().Queue()
	if n := q.Waited.Total(); n != 1 || q.Waited.Longest < 5*time.Minute || q.Waited.Longest > 6*time.Minute {
		t.Errorf("%d have started after %s, want 1, at least %v and at most %v", n, q.Waited.Longest, 5*time.Minute, 6*time.Minute)
	}
	if !q.Oldest.IsZero() {
		t.Errorf("since %s, want nothing waiting: one job is not to begin yet, and one is held", q.Oldest)
	}
	for !x.now.After(begin.Add(time.Minute)) {
		x.now = x.core.Wake()
		x.step()
	}
	q = x.core.View().Queue()
	if !near(q.Oldest, begin) {
		t.Errorf("since %s, want its begin %s: the held job does not wait, and the first runs", q.Oldest, begin)
	}
}

// A job that is requeued after a run waits from then on, and its second start does not count. The GPUs are those that
// are held.
func TestRequeuedJobWaitsFromItsRequeue(t *testing.T) {
	x := newBench(t, 1, 32)
	spec := benchSpec(0)
	spec.Array = "0-9"
	x.step(step.Submit{Token: 1, Submission: job.Submission{User: "amy", Spec: spec}})
	x.run()
	if n := x.core.View().Queue().Waited.Total(); n != 1 {
		t.Fatalf("an array counts %d times, want 1", n)
	}
	var e *entry
	for _, e = range x.core.entries.byID {
	}
	d := x.core.View().Queue().Demands
	if len(d) != 1 || d[0].User != "amy" || d[0].Running != e.job.Assigned() || d[0].Waiting != 10-e.job.Assigned() || d[0].GPUs != 0 {
		t.Errorf("demands %+v, want one of amy with the running and the waiting tasks and no GPUs", d)
	}
	e.job.Spec.Resources.GPUs = 2
	if d := x.core.View().Queue().Demands; d[0].GPUs != float64(2*e.job.Assigned()) {
		t.Errorf("demands %+v of tasks with two GPUs, want [0].GPUs %v", d, float64(2*e.job.Assigned()))
	}
}

// A failed task that runs again waits from the end of its pause, and the second start of its job does not count.
func TestRetryWaitsFromTheEndOfItsPause(t *testing.T) {
	x := newBench(t, 1, 32)
	spec := benchSpec(0)
	spec.Retries = 1
	x.fails = true
	x.step(step.Submit{Token: 1, Submission: job.Submission{User: "amy", Spec: spec}})
	for range 2 {
		x.serve()
	}
	if q := x.core.View().Queue(); !q.Oldest.IsZero() {
		t.Errorf("a task in its pause waits for a host since %s, want nothing waiting", q.Oldest)
	}
	x.step(step.FromWorker{Peer: "w0", Msg: contract.Availability{}})
	ended := x.now
	for x.now.Before(ended.Add(time.Hour / 2)) {
		x.now = x.core.Wake()
		x.step()
	}
	q := x.core.View().Queue()
	if q.Oldest.Before(ended) || q.Oldest.After(ended.Add(5*time.Minute)) {
		t.Errorf("since %s, want at most 5 minutes after %s, the end of the first attempt", q.Oldest, ended)
	}
	x.step(step.FromWorker{Peer: "w0", Msg: contract.Availability{Free: contract.Free{CPUs: 32, Memory: benchMemory}}})
	for x.ended == 0 {
		x.serve()
		x.now = x.core.Wake()
		x.step()
	}
	if n := x.core.View().Queue().Waited.Total(); n != 1 {
		t.Errorf("it has started %d times, want 1", n)
	}
}

// BenchmarkQueue computes the figures for 100,000 waiting jobs of 100 users.
func BenchmarkQueue(b *testing.B) {
	x := newBench(b, 1, 32)
	x.step(step.FromWorker{Peer: "w0", Msg: contract.Availability{}})
	for i := range 100_000 {
		spec := benchSpec(0)
		x.step(step.Submit{Token: step.Token(i + 1), Submission: job.Submission{User: "u" + string(rune('a'+i%25)), Spec: spec}})
	}
	for b.Loop() {
		if q := x.core.View().Queue(); q.Oldest.IsZero() {
			b.Fatal("nothing waits")
		}
	}
}
