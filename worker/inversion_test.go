package worker_test

// Explicit priorities: no task with a lower priority passes a waiting offer with a higher one, unless by the time
// limits it causes no delay.

import (
	"slices"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker"
)

// urgent is an offer without a time limit, with this priority.
func urgent(id uint64, need job.Resources, priority int) contract.Offer {
	m := timed(id, need, 0)
	m.Priority = priority
	return m
}

// While a job for both GPUs waits, no task with a lower priority starts on the free one, however short it is. A task
// with the same priority does, in the turn for others.
func TestLowerPriorityDoesNotStartBeforeAHigherOne(t *testing.T) {
	for _, c := range []struct {
		priority int
		passes   bool
	}{{10, false}, {89, false}, {90, true}} {
		h := newHost(t, config(2))
		s := h.meet(amy, 1)
		h.says(amy, urgent(1, gpus(1), 50))
		h.committed()
		h.begins(urgent(1, gpus(1), 50), s)
		h.says(amy, urgent(2, gpus(2), 90))
		later := urgent(3, gpus(1), c.priority)
		h.says(amy, later)
		passed := slices.Contains(h.committed(), 3)
		if passed != c.passes {
			t.Errorf("priority %d passes: %v, want %v", c.priority, passed, c.passes)
		}
		if passed {
			continue
		}
		h.untilKept(urgent(2, gpus(2), 90), later)
		h.untilKept(urgent(2, gpus(2), 90), later)
		h.untilKept(urgent(2, gpus(2), 90), later)
		if got := h.committed(); len(got) > 0 {
			t.Fatalf("committed %v, want none", got)
		}
		h.round(exited(attempt(1, 1), 0))
		if got := h.committed(); !slices.Equal(got, []uint64{2}) {
			t.Errorf("committed %v, want the one of the higher priority", got)
		}
	}
}

// A task with a lower priority must not delay the later ones of the waiting offers either. If the first of two jobs for
// four GPUs has a booking, a task that leaves it alone must leave the second job alone too.
func TestLowerPriorityDoesNotDelayTheSecondOfferOfANeed(t *testing.T) {
	for _, c := range []struct {
		name   string
		limit  time.Duration
		passes bool
	}{{"without a limit", 0, false}, {"ends later", 2 * time.Hour, false}, {"ends before", 30 * time.Minute, true}} {
		h := newHost(t, config(8))
		s := h.meet(amy, 1)
		for id := range uint64(6) { // two GPUs are free
			m := timed(id+1, gpus(1), time.Hour)
			h.says(amy, m)
			h.begins(m, s)
		}
		h.committed()
		first, second := timed(11, gpus(4), time.Hour), timed(12, gpus(4), time.Hour)
		first.Priority, second.Priority = 90, 90
		low := timed(13, gpus(1), c.limit)
		low.Priority = 10
		h.says(amy, first, second, low)
		if passes := slices.Contains(h.committed(), 13); passes != c.passes {
			t.Errorf("%s: passes %v, want %v", c.name, passes, c.passes)
		}
	}
}

// An offer that needs nothing that is kept starts whatever its priority.
func TestLowerPriorityUsesWhatIsNotKept(t *testing.T) {
	h := newHost(t, config(2))
	s := h.meet(amy, 1)
	h.says(amy, urgent(1, gpus(1), 50))
	h.committed()
	h.begins(urgent(1, gpus(1), 50), s)
	h.says(amy, urgent(2, gpus(2), 90), urgent(3, job.Resources{CPUs: 2}, 10))
	if got := h.committed(); !slices.Equal(got, []uint64{3}) {
		t.Errorf("committed %v, want the one that needs no GPU", got)
	}
}

// Nothing is kept here for spare offers, because another host keeps it.
func TestSpareOfferHoldsNothingBack(t *testing.T) {
	h := newHost(t, config(2))
	s := h.meet(amy, 1)
	h.says(amy, urgent(1, gpus(1), 50))
	h.committed()
	h.begins(urgent(1, gpus(1), 50), s)
	high := urgent(2, gpus(2), 90)
	high.Spare = true
	h.says(amy, high, urgent(3, gpus(1), 10))
	if got := h.committed(); !slices.Equal(got, []uint64{3}) {
		t.Errorf("committed %v, want %v", got, []uint64{3})
	}
}

// After a gang has held a place in vain, single tasks of its priority go first for as long, but none with a lower
// priority.
func TestLowerPriorityDoesNotGoBeforeAGang(t *testing.T) {
	for _, lower := range []int{0, 1} {
		h := newGangHost(t, 1)
		gang, other, runs := member(1, 1, gpus(1)), single(90, gpus(1)), single(91, gpus(1))
		other.Priority -= lower
		h.wait(5*time.Minute, gang)
		h.says(amy, contract.Release{Offer: gang.ID})
		h.says(amy, runs)
		one[contract.Commit](h, amy)
		gang.ID++
		h.says(amy, other)
		h.says(amy, gang)
		h.says(amy, contract.Release{Offer: runs.ID})
		if got := one[contract.Commit](h, amy); (got.Offer == gang.ID) != (lower > 0) {
			t.Errorf("offer %[2]d got the place, want a single task only if its priority is not lower, but it is %[1]d lower", lower, got.Offer)
		}
	}
}

// A turn is twice as long as tasks usually run here, at least 30 s, and at most set-aside.
func TestLengthOfTurnsFollowsTheRunTimes(t *testing.T) {
	for _, c := range []struct{ runs, turn time.Duration }{
		{time.Second, 30 * time.Second}, {36 * time.Second, 72 * time.Second}, {time.Hour, worker.DefaultSetAside},
	} {
		h := newHost(t, config(2))
		s := h.meet(amy, 1)
		run := func(id uint64) {
			h.says(amy, timed(id, gpus(1), 0))
			h.committed()
			h.begins(timed(id, gpus(1), 0), s)
		}
		for id := range uint64(3) {
			run(id + 1)
			for left := c.runs; left > 0; left -= 20 * time.Second {
				h.pass(min(left, 20*time.Second))
				h.renew(amy)
			}
			h.round(exited(attempt(id+1, 1), 0))
			h.says(amy, contract.Ack{Attempt: attempt(id+1, 1), N: 4})
		}
		run(4)
		h.says(amy, timed(5, gpus(2), 0))
		h.pass(time.Second)
		if f := h.forecasts()[5]; f.Shared < c.turn-2*time.Second || f.Shared > c.turn {
			t.Errorf("tasks of %s: others may have what is free for %+v, want %s", c.runs, f, c.turn)
		}
	}
}

// A job for all GPUs lets others of its priority use what is free for a while, and one of them is booked. Until then
// jobs with a lower priority may not use it, even if they would end before: the first job could start earlier.
func TestLowerPriorityDoesNotUseWhatOthersHaveBooked(t *testing.T) {
	for _, c := range []struct {
		priority int
		passes   bool
	}{{10, false}, {50, true}} {
		h := newHost(t, config(8))
		s := h.meet(amy, 1)
		for _, m := range []contract.Offer{timed(1, gpus(1), 0), timed(2, gpus(4), time.Hour)} {
			h.says(amy, m)
			h.begins(m, s)
		}
		h.committed()
		whole, booked := timed(11, gpus(8), 0), timed(12, gpus(4), time.Hour)
		short := timed(13, gpus(1), 30*time.Minute)
		short.Priority = c.priority
		h.says(amy, whole, booked, short)
		if passes := slices.Contains(h.committed(), 13); passes != c.passes {
			t.Errorf("priority %d passes: %v, want %v", c.priority, passes, c.passes)
		}
	}
}
