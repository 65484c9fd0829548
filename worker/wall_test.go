package worker_test

// The wall clock may be set at any time, so no decision depends on it.

import (
	"fmt"
	"testing"
	"time"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker"
	"github.com/musterhq/muster/worker/driver"
)

// set moves only the wall clock.
func (h *host) set(d time.Duration) { h.now.Wall = h.now.Wall.Add(d) }

// clocks runs a test with the clock set back and forward.
func clocks(t *testing.T, f func(t *testing.T, by time.Duration)) {
	for _, by := range []time.Duration{-time.Hour, time.Hour} {
		t.Run(fmt.Sprint(by), func(t *testing.T) { f(t, by) })
	}
}

func TestTaskEndedByAStopIsCancelledWhateverTheClock(t *testing.T) {
	clocks(t, func(t *testing.T, by time.Duration) {
		ways := map[job.State]func(h *host, a job.Attempt){
			job.Cancelled: func(h *host, a job.Attempt) {
				h.says(amy, contract.Cancel{Attempt: a, Group: group, Epoch: epoch(1), Grace: time.Second, Reason: "enough"})
			},
			job.Preempted: func(h *host, _ job.Attempt) { h.round(worker.Drain{On: true, Deadline: h.now.Wall}) },
		}
		for want, stop := range ways {
			for _, says := range []job.State{job.Cancelled, job.Failed} { // the driver knows of the Stop, or reports only the signal
				h := newHost(t, config(1))
				s := h.meet(amy, 1)
				a := attempt(1, 1)
				h.run(amy, 1, a, s, gpus(1))
				stop(h, a)
				h.set(by)
				h.jump(time.Second)
				end := endedByTERM(a, h)
				end.Exit.State = says
				h.round(end)
				if e := lastEvent(h, amy); e.State != want || e.Exit.Reason == "" {
					t.Errorf("the driver says %s: end = %s, exit %+v, want %s", says, e.State, e.Exit, want)
				}
			}
		}
	})
}

// A task that ended by itself before the Stop arrived is not CANCELLED, whatever the clock says.
func TestTaskEndedBeforeAStopIsNotCancelledWhateverTheClock(t *testing.T) {
	clocks(t, func(t *testing.T, by time.Duration) {
		for code, want := range map[int]job.State{0: job.Succeeded, 3: job.Failed} {
			h := newHost(t, config(1))
			s := h.meet(amy, 1)
			a := attempt(1, 1)
			h.run(amy, 1, a, s, gpus(1))
			end := exited(a, code)
			end.Exit.Ended = h.now.Wall
			h.set(by)
			h.jump(time.Second)
			h.says(amy, contract.Cancel{Attempt: a, Group: group, Epoch: epoch(1), Grace: time.Second, Reason: "enough"})
			h.round(end)
			if e := lastEvent(h, amy); e.State != want {
				t.Errorf("end = %+v, want %s", e, want)
			}
		}
	})
}

func TestSlowFailuresDoNotPauseTheHostWhateverTheClock(t *testing.T) {
	clocks(t, func(t *testing.T, by time.Duration) {
		for _, took := range []time.Duration{time.Minute, time.Second} {
			r := newTries(t, 0)
			for _, user := range []string{"ada", "bea", "ada", "cyd", "bea"} {
				a, ok := r.taken(user, cpu)
				if !ok {
					t.Fatalf("the task was not accepted: %s", r.closed())
				}
				r.round(driver.Event{Attempt: a, Kind: driver.Started, PID: 42})
				began := r.now.Wall
				r.set(by)
				r.jump(took)
				e := exited(a, 1)
				e.Exit.Began, e.Exit.Ended = began, r.now.Wall
				r.round(e)
				r.round(worker.Up{Peer: amy})
				r.renew(amy)
			}
			if paused := r.closed() != ""; paused != (took < 30*time.Second) {
				t.Errorf("failed after %v each: closed %q, want a pause only for quick failures", took, r.closed())
			}
		}
	})
}

func TestDrainDeadlineHoldsWhateverTheClock(t *testing.T) {
	clocks(t, func(t *testing.T, by time.Duration) {
		h := newHost(t, config(1))
		s := h.meet(amy, 1)
		a := attempt(1, 1)
		h.run(amy, 1, a, s, gpus(1))
		h.round(worker.Drain{On: true, Deadline: h.now.Wall.Add(time.Minute)})
		h.set(by)
		h.jump(59 * time.Second)
		if e := h.round(); len(e.Stop) > 0 {
			t.Fatalf("stopped before the deadline: %+v, want none", e.Stop)
		}
		h.jump(2 * time.Second)
		if e := h.round(); len(e.Stop) != 1 {
			t.Fatalf("stops = %+v after the deadline, want 1 of them", e.Stop)
		}
		h.jump(24 * time.Hour) // once
		if e := h.round(); len(e.Stop) > 0 {
			t.Fatalf("stopped again: %+v, want none", e.Stop)
		}
	})
}

// If a drain is changed, only the last deadline counts.
func TestLastDeadlineOfADrainCounts(t *testing.T) {
	h := newHost(t, config(1))
	s := h.meet(amy, 1)
	h.run(amy, 1, attempt(1, 1), s, gpus(1))
	h.round(worker.Drain{On: true, Deadline: h.now.Wall.Add(time.Minute)})
	h.round(worker.Drain{On: true, Deadline: h.now.Wall.Add(time.Hour)})
	h.jump(2 * time.Minute)
	if e := h.round(); len(e.Stop) > 0 {
		t.Fatalf("stopped at a deadline that was moved: %+v, want none", e.Stop)
	}
	h.round(worker.Drain{On: true, Deadline: h.now.Wall.AddDate(5000, 0, 0)})
	h.jump(time.Hour)
	if e := h.round(); len(e.Stop) > 0 {
		t.Fatalf("stopped 5000 years early: %+v, want none", e.Stop)
	}
}

// A quarantine lasts as long as without a restart of the daemon, even if the wall clock is set meanwhile.
func TestQuarantineOfAGPULastsWhateverTheClock(t *testing.T) {
	clocks(t, func(t *testing.T, by time.Duration) {
		healthy := statusOf(gpu.Status{Health: gpu.Healthy})
		h, _ := newHostWithRealGPUs(t)
		h.round(fault(gone))
		h.pass(20 * time.Second)
		h.set(by)
		h.boot()
		h.pass(39 * time.Second)
		h.round(healthy)
		if quarantine(h) == "" {
			t.Fatal("allocated before the end of the quarantine")
		}
		h.pass(2 * time.Second)
		h.round(healthy)
		if why := quarantine(h); why != "" {
			t.Fatalf("still in quarantine: %q, want none", why)
		}
	})
}

func TestPauseOfAHostLastsWhateverTheClock(t *testing.T) {
	clocks(t, func(t *testing.T, by time.Duration) {
		r := newTries(t, 0)
		for _, user := range []string{"ada", "bea", "ada", "cyd", "bea"} {
			r.fails(user, cpu)
		}
		r.pass(10 * time.Second)
		r.set(by)
		r.boot()
		r.pass(19 * time.Second)
		r.round()
		if r.closed() == "" {
			t.Fatal("the pause ended early")
		}
		r.pass(2 * time.Second)
		r.round()
		if why := r.closed(); why != "" {
			t.Fatalf("the pause goes on: %s, want none", why)
		}
	})
}

// The same holds for a GPU that the driver does not list for a while.
func TestQuarantineOfAMissingGPULastsWhateverTheClock(t *testing.T) {
	clocks(t, func(t *testing.T, by time.Duration) {
		h, _ := newHostWithRealGPUs(t)
		h.round(fault(gone))
		all := h.cfg.Profile.GPUs
		h.cfg.Profile.GPUs = all[1:]
		h.boot()
		h.set(by)
		h.pass(10 * time.Second)
		h.round(worker.DeviceFault{Fault: gpu.Fault{UUID: "GPU-b", Severity: gpu.SeverityDevice, Text: "xid 74"}}) // causes a write
		h.set(by)
		h.cfg.Profile.GPUs = all
		h.boot()
		h.pass(49 * time.Second)
		h.round(statusOf(gpu.Status{Health: gpu.Healthy}))
		if quarantine(h) == "" {
			t.Fatal("allocated before the end of the quarantine")
		}
		h.pass(2 * time.Second)
		h.round(statusOf(gpu.Status{Health: gpu.Healthy}))
		if why := quarantine(h); why != "" {
			t.Fatalf("still in quarantine: %q, want none", why)
		}
	})
}
