package sim

// Idle hosts: what tasks with a high priority leave goes at once to tasks that wait.

import (
	"fmt"
	"testing"
	"time"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker"
)

// idle runs the world up to a time, and returns the longest time for which a host had capacity for a waiting job.
func (w *world) idle(until time.Duration) (most time.Duration) {
	since := map[*host]time.Duration{}
	for w.next(until) {
		for _, h := range w.hosts {
			at, idles := since[h]
			if idles {
				most = max(most, w.now-at)
			}
			if !h.draining.On && w.anyFits(h) {
				if !idles {
					since[h] = w.now
				}
			} else {
				delete(since, h)
			}
		}
	}
	return most
}

// anyFits reports whether a waiting job fits in what is free at the host.
func (w *world) anyFits(h *host) bool {
	free := h.free()
	for _, j := range w.works {
		if j.id != "" && j.spec.Nodes < 2 && j.state == job.Pending && !j.assigned && !j.cancelled && j.could(h) && j.fits(&free) && !j.overQuota(h) {
			return true
		}
	}
	return false
}

// A job that waits for the devices of another starts as soon as that one ends, even if their owners differ: within the
// time of some messages.
func TestNextJobStartsAtOnce(t *testing.T) {
	w, o := scene(t, 1, hostSpec{gpus: "8xH100", cpus: 16}, options{})
	first := w.newWork(o, "ada", gpus(8), time.Minute)
	first.submitAt(time.Second)
	second := w.newWork(w.addOwner(nil), "bob", gpus(8), time.Second)
	second.submitAt(10 * time.Second)
	w.start()
	w.runAll(time.Hour)
	if gap := second.startAt - first.endAt; first.starts != 1 || second.starts != 1 || gap < 0 || gap > 100*time.Millisecond {
		t.Errorf("the second job starts %d times, %v after the end of the first, want once within 100 ms", second.starts, gap)
	}
}

// Preemptible tasks fill the hosts. Tasks with a high priority arrive, preempt some, and end or are cancelled. In other
// cases the hosts are drained meanwhile, or gangs gather in vain. What is free then does not stay free while anything
// waits that fits. The second is for tasks that use their grace, when an urgent task waits for several of them. Each
// urgent task preempts at once.
func TestNothingIdlesAfterPreemption(t *testing.T) {
	const most = 2 * time.Second
	const came = time.Minute
	type load struct {
		name         string
		lows         int // preemptible tasks
		low          job.Resources
		highs, nodes int
		high         job.Resources
		then         func(w *world, highs []*work)
		within       time.Duration // all urgent tasks have started within it, on one host; 0: some are cancelled
	}
	cancelAt := func(at time.Duration) func(*world, []*work) {
		return func(w *world, highs []*work) {
			for _, j := range highs {
				w.at(at, j.cancel)
			}
		}
	}
	drains := func(w *world, _ []*work) {
		for _, h := range w.hosts {
			w.at(came+5*time.Second, func() { h.drain(worker.Drain{On: true}) })
			w.at(came+40*time.Second, func() { h.drain(worker.Drain{}) })
		}
	}
	for _, s := range []load{
		{name: "few", lows: 8, low: cpus(1), highs: 4, high: cpus(1), within: 3 * time.Second},
		{name: "wide", lows: 8, low: cpus(1), highs: 4, high: cpus(2), within: 12 * time.Second},
		{name: "whole hosts", lows: 8, low: cpus(1), highs: 2, high: cpus(4), within: 12 * time.Second},
		{name: "wide victims", lows: 8, low: cpus(4), highs: 8, high: cpus(1), within: 15 * time.Second},
		{name: "odd sizes", lows: 8, low: cpus(2), highs: 8, high: cpus(3), within: time.Minute},
		{name: "many", lows: 40, low: cpus(1), highs: 60, high: cpus(1), within: 90 * time.Second},
		{name: "many are cancelled", lows: 40, low: cpus(1), highs: 500, high: cpus(2), then: cancelAt(came + 10*time.Second)},
		{name: "cancelled while tasks end", lows: 40, low: cpus(1), highs: 3, high: cpus(4), then: cancelAt(came + 500*time.Millisecond)},
		{name: "drained", lows: 40, low: cpus(1), highs: 10, high: cpus(2), then: drains, within: 90 * time.Second},
		{name: "GPUs", lows: 8, low: gpus(1), highs: 4, high: gpus(2), within: 12 * time.Second},
		{name: "GPUs are cancelled", lows: 8, low: gpus(1), highs: 50, high: gpus(2), then: cancelAt(came + 10*time.Second)},
		{name: "gangs", lows: 40, low: cpus(1), highs: 4, high: cpus(2), nodes: 2},
		{name: "gangs are cancelled", lows: 40, low: cpus(1), highs: 4, high: cpus(4), nodes: 2, then: cancelAt(came + 500*time.Millisecond)},
	} {
		for _, n := range []int{1, 3} {
			t.Run(fmt.Sprintf("%s/%d", s.name, n), func(t *testing.T) {
				w, o := scene(t, n, hostSpec{cpus: 4, gpus: "4xH100"}, options{})
				for range s.lows {
					j := w.newWork(o, "ada", s.low, 20*time.Minute)
					j.spec.Preemptible, j.spec.Priority, j.spec.Grace = true, 20, job.Duration(time.Second)
					j.submitAt(time.Second)
				}
				var highs []*work
				for range s.highs {
					j := w.newWork(o, "bob", s.high, 5*time.Second)
					j.spec.Priority, j.spec.Nodes = 90, s.nodes
					j.submitAt(came)
					highs = append(highs, j)
				}
				if s.then != nil {
					s.then(w, highs)
				}
				w.start()
				if idle := w.idle(5 * time.Minute); idle > most {
					t.Errorf("a host had room for %v for a job that waited, want at most %v", idle, most)
				}
				for _, j := range highs {
					if s.within > 0 && (j.starts == 0 || j.startAt > came+s.within) {
						t.Errorf("urgent job %d started %d times, after %v, want once in time", j.index, j.starts, j.startAt-came)
					}
				}
			})
		}
	}
}
