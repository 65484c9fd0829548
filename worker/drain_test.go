package worker_test

// Drains: no new tasks, a deadline, and restarts of the daemon.

import (
	"testing"
	"time"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker"
	"github.com/musterhq/muster/worker/driver"
	"github.com/musterhq/muster/worker/step"
)

// endedByTERM returns the end of a task after the signal TERM.
func endedByTERM(a job.Attempt, h *host) driver.Event {
	return driver.Event{Attempt: a, Kind: driver.Exited, Exit: job.Exit{State: job.Failed, Code: 143, Signal: 15, Ended: h.now.Wall}}
}

func lastEvent(h *host, p job.Peer) contract.Event {
	h.t.Helper()
	all := got[contract.Event](h, p)
	if len(all) == 0 {
		h.t.Fatalf("no event was sent to %s", p)
	}
	return all[len(all)-1]
}

func TestTasksArePreemptedAtTheDeadlineOfADrain(t *testing.T) {
	h := newHost(t, config(1))
	s := h.meet(amy, 1)
	a := attempt(1, 1)
	h.run(amy, 1, a, s, gpus(1))
	h.round(worker.Drain{On: true, Reason: "new fans", Deadline: h.now.Wall.Add(time.Minute)})
	h.pass(59 * time.Second)
	if len(h.done.Stop) != 0 {
		t.Fatalf("stopped before the deadline: %+v, want none", h.done.Stop)
	}
	var stops []step.Stop
	h.jump(2 * time.Second)
	stops = append(stops, h.round().Stop...)
	if len(stops) != 1 || stops[0].Attempt != a || stops[0].Grace != job.DefaultGrace {
		t.Fatalf("stops = %+v, want 1 of them, [0].Attempt %v and [0].Grace %v", stops, a, job.DefaultGrace)
	}
	end := endedByTERM(a, h)
	end.Exit.State = job.Cancelled // as the runner reports it
	h.round(end)
	if e := lastEvent(h, amy); e.State != job.Preempted || e.Exit.Reason != "node drained: new fans" {
		t.Fatalf(`end = %+v, exit %+v, want State %v and Exit.Reason "node drained: new fans"`, e, e.Exit, job.Preempted)
	}
}

func TestDrainSurvivesARestart(t *testing.T) {
	cfg := config(1)
	h := newHost(t, cfg)
	s := h.meet(amy, 1)
	a := attempt(1, 1)
	h.run(amy, 1, a, s, gpus(1))
	// The deadline passes while the daemon is down.
	h.cfg.Draining = worker.Drain{On: true, Deadline: h.now.Wall.Add(time.Minute)}
	h.jump(time.Hour)
	h.boot(driver.Event{Attempt: a, Kind: driver.Started, PID: 42})
	if len(h.done.Stop) != 1 || h.done.Stop[0].Attempt != a {
		t.Fatalf("stops = %+v, want 1 of them and [0].Attempt %v", h.done.Stop, a)
	}
	// The daemon is restarted again before the task has ended.
	h.boot(endedByTERM(a, h))
	h.meet(amy, 1)
	if e := lastEvent(h, amy); e.State != job.Preempted {
		t.Fatalf("end = %+v, want State %v", e, job.Preempted)
	}
	hello := got[contract.Availability](h, amy)
	if len(hello) == 0 || !hello[0].Draining {
		t.Fatalf("a scheduler was not told of the drain: %+v", hello)
	}
	h.says(amy, offer(2, attempt(2, 1), cpu))
	if d := one[contract.Decline](h, amy); d.Reason.Word != job.ReasonNodesDraining {
		t.Fatalf("decline = %+v, want Reason.Word %v", d, job.ReasonNodesDraining)
	}
}

func TestDrainRefusesStartsOfReservedAttempts(t *testing.T) {
	h := newHost(t, config(1))
	s := h.meet(amy, 1)
	h.says(amy, offer(1, attempt(1, 1), gpus(1)))
	one[contract.Commit](h, amy)
	h.round(worker.Drain{On: true})
	if e := h.says(amy, start(1, attempt(1, 1), s, gpus(1))); len(e.Start) != 0 {
		t.Fatalf("started %+v, want none", e.Start)
	}
	if e := lastEvent(h, amy); e.Refused == "" {
		t.Fatalf("event = %+v, want Refused", e)
	}
}

func TestResumeBeforeTheDeadlineStopsNothing(t *testing.T) {
	h := newHost(t, config(1))
	s := h.meet(amy, 1)
	h.run(amy, 1, attempt(1, 1), s, gpus(1))
	h.round(worker.Drain{On: true, Deadline: h.now.Wall.Add(time.Minute)})
	h.round(worker.Drain{})
	for range 200 {
		h.pass(time.Second)
		if len(h.done.Stop) > 0 {
			t.Fatalf("stopped though the drain was over: %+v, want none", h.done.Stop)
		}
	}
}

// A task that was cancelled before the deadline is CANCELLED, not PREEMPTED.
func TestTaskCancelledBeforeTheDeadlineIsCancelled(t *testing.T) {
	h := newHost(t, config(1))
	s := h.meet(amy, 1)
	a := attempt(1, 1)
	h.run(amy, 1, a, s, gpus(1))
	h.says(amy, contract.Cancel{Attempt: a, Group: group, Epoch: epoch(1), Grace: time.Minute, Reason: "enough"})
	h.round(worker.Drain{On: true, Deadline: h.now.Wall})
	h.round(endedByTERM(a, h))
	if e := lastEvent(h, amy); e.State != job.Cancelled {
		t.Fatalf("end = %+v, want State %v", e, job.Cancelled)
	}
}
