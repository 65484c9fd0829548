package worker_test

// Places that gangs held in vain.

import (
	"testing"
	"time"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
)

// wait lets time pass while the schedulers of these offers repeat them.
func (h *host) wait(d time.Duration, offers ...contract.Offer) {
	h.t.Helper()
	for ; d > 0; d -= 10 * time.Second {
		for _, m := range offers {
			h.says(amy, m)
		}
		h.pass(10 * time.Second)
	}
	got[contract.Commit](h, amy)
}

// single returns an offer of a task that is younger than all gangs.
func single(number uint64, need job.Resources) contract.Offer {
	m := offer(number, attempt(number, 1), need)
	m.Wait, m.Age = 30*time.Second, time.Second
	return m
}

// Gangs that lack other hosts do not take turns in keeping a single task from this one.
func TestGangsDoNotTakeTurnsInHolding(t *testing.T) {
	h := newGangHost(t, 1)
	first, second, other := member(1, 1, gpus(1)), member(2, 1, gpus(1)), single(90, gpus(1))
	h.wait(10*time.Minute, first, second, other)
	h.says(amy, contract.Release{Offer: first.ID})
	if c := one[contract.Commit](h, amy); c.Offer != other.ID {
		t.Fatalf("offer %d got the place, want that of the single task", c.Offer)
	}
}

// A gang that has held a place in vain gets it back at once if no other task wants it.
func TestGangGetsBackAPlaceThatNobodyWants(t *testing.T) {
	h := newGangHost(t, 1)
	m := member(1, 1, gpus(1))
	h.wait(10*time.Minute, m)
	h.says(amy, contract.Release{Offer: m.ID})
	m.ID++
	h.says(amy, m)
	if c := one[contract.Commit](h, amy); c.Offer != m.ID {
		t.Fatalf("commit %+v, want Offer %v", c, m.ID)
	}
}

// A gang with a higher priority does not wait because one with a lower priority has held a place in vain.
func TestPlaceHeldInVainDoesNotDelayHigherPriorities(t *testing.T) {
	h := newGangHost(t, 1)
	low, high, other, runs := member(1, 1, gpus(1)), member(2, 1, gpus(1)), single(90, gpus(1)), single(91, gpus(1))
	high.Priority++
	h.wait(5*time.Minute, low)
	h.says(amy, contract.Release{Offer: low.ID})
	h.says(amy, runs)
	one[contract.Commit](h, amy)
	h.says(amy, other)
	h.says(amy, high)
	h.says(amy, contract.Release{Offer: runs.ID})
	if c := one[contract.Commit](h, amy); c.Offer != high.ID {
		t.Fatalf("offer %d got the place, want that of the gang of the higher priority", c.Offer)
	}
}

// Others go first for as long as the gang held its place.
func TestOthersGoFirstForAsLongAsAGangHeldItsPlace(t *testing.T) {
	for _, c := range []struct {
		after time.Duration
		gang  bool // gets the place
	}{{4 * time.Minute, false}, {6 * time.Minute, true}} {
		h := newGangHost(t, 1)
		gang, other, runs := member(1, 1, gpus(1)), single(90, gpus(1)), single(91, gpus(1))
		h.wait(5*time.Minute, gang)
		h.says(amy, contract.Release{Offer: gang.ID})
		h.pass(c.after)
		h.says(amy, runs)
		one[contract.Commit](h, amy)
		gang.ID++
		h.says(amy, other)
		h.says(amy, gang)
		h.says(amy, contract.Release{Offer: runs.ID})
		if got := one[contract.Commit](h, amy); (got.Offer == gang.ID) != c.gang {
			t.Errorf("after %s offer %d got the place, but that of the gang is %d", c.after, got.Offer, gang.ID)
		}
	}
}

// If tasks are ordered by age, gangs and single tasks go first in turns that grow. So gangs get places in the end, even
// if single tasks keep arriving.
func TestGangsAndSingleTasksGoFirstInTurns(t *testing.T) {
	h := newGangHost(t, 1)
	gang, other, runs := member(1, 1, gpus(1)), single(90, gpus(1)), single(91, gpus(1))
	won, n := map[bool]int{}, uint64(100)
	for range 60 { // 10 hours
		gang.ID, n = gang.ID+1, n+1
		h.wait(10*time.Minute, gang)
		runs.ID, runs.Attempt = n, attempt(n, 1)
		h.wait(10*time.Second, gang, runs) // queued
		h.says(amy, contract.Release{Offer: gang.ID})
		c := one[contract.Commit](h, amy)
		if c.Offer != runs.ID {
			t.Fatalf("commit %+v, want Offer %v", c, runs.ID)
		}
		other.ID, other.Attempt = n+1000, attempt(n+1000, 1)
		gang.ID++
		h.says(amy, other)
		h.says(amy, gang)
		h.says(amy, contract.Release{Offer: runs.ID})
		c = one[contract.Commit](h, amy)
		won[c.Offer == gang.ID]++
		h.says(amy, contract.Release{Offer: gang.ID})
		got[contract.Commit](h, amy)
		h.says(amy, contract.Release{Offer: other.ID})
	}
	if won[true] < 15 || won[false] < 15 {
		t.Errorf("the gang got the place %d times, the single task %d times, want at least 15 and at least 15", won[true], won[false])
	}
}

// Turns that have grown long are forgotten when no gang has held a place for a long time.
func TestPlacesHeldInVainAreForgotten(t *testing.T) {
	h := newGangHost(t, 1)
	gang, other := member(1, 1, gpus(1)), single(90, gpus(1))
	for range 8 { // up to the middle of a turn of gangs
		gang.ID++
		h.wait(10*time.Minute, gang)
		h.says(amy, contract.Release{Offer: gang.ID})
	}
	h.pass(32 * time.Hour)
	gang.ID++
	next := member(2, 1, gpus(1))
	h.wait(10*time.Minute, gang, next, other)
	h.says(amy, contract.Release{Offer: gang.ID})
	if c := one[contract.Commit](h, amy); c.Offer != other.ID {
		t.Errorf("offer %d got the place, want that of the single task", c.Offer)
	}
}

// If tasks are ordered by levels there are no such turns: single tasks go first each time.
func TestNoTurnsOfGangsInAnOrderByLevels(t *testing.T) {
	h := newGangHost(t, 1)
	other := single(90, gpus(1))
	for i := range uint64(12) { // two hours: turns would have changed several times
		first, second := member(2*i+1, 1, gpus(1)), member(2*i+2, 1, gpus(1))
		first.Work.By, second.Work.By = contract.ByAttained, contract.ByAttained
		other.ID, other.Attempt, other.Work.By = 900+i, attempt(900+i, 1), contract.ByAttained
		h.wait(10*time.Minute, first, second, other)
		h.says(amy, contract.Release{Offer: first.ID})
		if c := one[contract.Commit](h, amy); c.Offer != other.ID {
			t.Fatalf("round %d: offer %d got the place, want that of the single task", i, c.Offer)
		}
		h.says(amy, contract.Release{Offer: second.ID})
		h.says(amy, contract.Release{Offer: other.ID})
	}
}
