package worker_test

// Turns: what is free is set aside for an offer without a forecast start, and shared, in turns.

import (
	"maps"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker"
	"github.com/musterhq/muster/worker/leaseclock"
)

// The turns in which something is set aside become longer than any task, and are never more than half of the time. The
// first turn is for others.
func TestTurnsAreAtMostHalfOfTheTime(t *testing.T) {
	const since, first = leaseclock.BootTime(time.Hour), 10 * time.Minute
	var kept time.Duration
	if k, until := worker.Turns(since, since, first); k || until != since.Add(first) {
		t.Errorf("the first turn: kept %v, until %v, want it shared until the end of the first turn", k, until)
	}
	for at := since; at < since.Add(100*time.Hour); {
		k, until := worker.Turns(since, at, first)
		if until <= at {
			t.Fatalf("the turn at %v ends at %v, want later", at, until)
		}
		if k {
			kept += until.Sub(at)
		}
		if kept*2 > until.Sub(since) || k && kept*2 != until.Sub(since) {
			t.Errorf("at %v it was kept for %v of %v, want at most half", until, kept, until.Sub(since))
		}
		at = until
	}
	if kept < 40*time.Hour {
		t.Errorf("kept for %v in all, want at least %v", kept, 40*time.Hour)
	}
}

// Of several offers without a forecast, only the first has turns. The others get no forecast until its turns were in
// vain for a long time.
func TestOnlyTheFirstOfferWithoutAForecastHasTurns(t *testing.T) {
	h, _ := newHostWithEightGPUs(t, 0)
	first, second := timed(2, gpus(8), 0), timed(3, job.Resources{CPUs: 8}, 0)
	known := map[uint64]contract.Forecast{}
	pass := func(d time.Duration) {
		for end := h.now.Boot.Add(d); h.now.Boot < end; {
			h.pass(20 * time.Second)
			h.renew(amy)
			h.says(amy, first, second)
			maps.Copy(known, h.forecasts())
		}
	}
	zero := h.now.Boot
	h.says(amy, first, second)
	for _, c := range []struct {
		after         time.Duration
		first, second string
	}{
		{time.Minute, "shared", ""},
		{11 * time.Minute, "kept", ""},
		{21 * time.Minute, "shared", ""},
		{41 * time.Minute, "kept", ""},
		{61 * time.Minute, "shared", ""},
		{101 * time.Minute, "kept", ""},
		{141 * time.Minute, "shared", "shared"}, // its three turns were in vain
		{151 * time.Minute, "shared", "kept"},
		{161 * time.Minute, "shared", "shared"},
		{241 * time.Minute, "kept", "kept"},
	} {
		pass(c.after - h.now.Boot.Sub(zero))
		for id, want := range map[uint64]string{2: c.first, 3: c.second} {
			f := known[id]
			if f.Start != 0 || (f.Kept > 0) != (want == "kept") || (f.Shared > 0) != (want == "shared") {
				t.Errorf("after %v the forecast of offer %d is %+v, want %q", c.after, id, f, want)
			}
		}
	}
	if got := h.committed(); len(got) > 0 {
		t.Errorf("committed %v, want none", got)
	}
}

// An offer does not starve behind one that never starts, even if it needs something else. A task without an end holds a
// GPU. The first offer needs all GPUs, the second all other CPUs, and tasks for one CPU keep arriving.
func TestNoOfferStarvesBehindOneThatNeverStarts(t *testing.T) {
	h, s := newHostWithEightGPUs(t, 0)
	first, second := timed(2, job.Resources{GPUs: 8}, 0), timed(3, job.Resources{CPUs: 7}, 0)
	h.says(amy, first)
	id, running := uint64(100), map[job.Attempt]leaseclock.BootTime{}
	for zero := h.now.Boot; h.now.Boot.Sub(zero) < 2*24*time.Hour; {
		for _, a := range sortedEnds(running) {
			if h.now.Boot >= running[a] {
				delete(running, a)
				h.round(exited(a, 0))
				h.says(amy, contract.Ack{Attempt: a, N: 4})
			}
		}
		if id > 107 { // the CPUs are in use
			h.says(amy, second)
		}
		if h.core.View().Queued < 6 {
			id++
			m := timed(id, job.Resources{CPUs: 1}, 0)
			m.Age = 0
			h.says(amy, m)
		}
		for _, o := range h.committed() {
			if o == second.ID {
				t.Logf("it started after %s", h.now.Boot.Sub(zero))
				return
			}
			h.begins(timed(o, job.Resources{CPUs: 1}, 0), s)
			running[attempt(o, 1)] = h.now.Boot.Add(time.Hour + time.Duration(o%7)*5*time.Minute)
		}
		h.says(amy, first)
		h.pass(20 * time.Second)
		h.renew(amy)
		got[contract.Event](h, amy)
		got[contract.Decline](h, amy)
	}
	t.Fatal("the second offer never started")
}

// The turns of an offer continue where they were after an offer that ranks before it has gone. Meanwhile it has no
// forecast.
func TestTurnsContinueAfterAnEarlierOffer(t *testing.T) {
	h, _ := newHostWithEightGPUs(t, 0)
	first := timed(2, gpus(8), 0)
	h.says(amy, first)
	h.untilKept(first)
	h.pass(time.Second)
	if f := h.forecasts()[2]; f.Kept == 0 {
		t.Fatalf("forecast %+v, want Kept above 0", f)
	}
	before := timed(3, gpus(7), 0)
	before.Need.CPUs, before.Priority = 8, 60
	h.says(amy, before)
	h.pass(time.Second)
	if all := h.forecasts(); all[2] != (contract.Forecast{Offer: 2}) || all[3].Shared == 0 {
		t.Errorf("forecasts %+v, want none for 2 behind the other offer, which shares", all)
	}
	h.says(amy, contract.Release{Offer: 3})
	h.pass(time.Second)
	if f := h.forecasts()[2]; f.Kept == 0 || f.Kept > worker.DefaultSetAside-2*time.Second {
		t.Errorf("forecast %+v, want its turn to continue", f)
	}
}

// A gang gives its places back after a while, and its offers are new ones then. So its first turn is not for others:
// otherwise it would never have one.
func TestFirstTurnOfAGangIsItsOwn(t *testing.T) {
	h, _ := newHostWithEightGPUs(t, 0)
	h.says(amy, member(50, 1, gpus(8)))
	h.pass(time.Second)
	if f := h.forecasts()[501]; f.Kept == 0 || f.Kept > worker.DefaultSetAside {
		t.Errorf("forecast %+v, want it kept for one turn at most", f)
	}
	small := timed(3, gpus(1), 0)
	small.Age = 0
	h.says(amy, small)
	if got := h.committed(); len(got) > 0 {
		t.Errorf("committed %v, want none", got)
	}
}

// Nothing is set aside for a spare offer: later ones get what is free at any time, and it has no forecast. Still it
// ranks first, and once its scheduler has this host keep what is free, its turns begin.
func TestSpareOffersHaveNoTurns(t *testing.T) {
	h, s := newHostWithEightGPUs(t, 0)
	spare := timed(2, gpus(8), 0)
	spare.Spare = true
	h.says(amy, spare)
	for id := uint64(3); id < 6; id++ {
		for range 100 { // in half an hour there would be a turn of setting aside
			h.pass(20 * time.Second)
			h.renew(amy)
			h.says(amy, spare)
		}
		h.says(amy, timed(id, gpus(1), 0))
		if got := h.committed(); len(got) != 1 || got[0] != id {
			t.Fatalf("committed %v, want %d: nothing is kept for the spare offer", got, id)
		}
		h.begins(timed(id, gpus(1), 0), s)
	}
	if f := h.forecasts()[2]; f != (contract.Forecast{}) {
		t.Errorf("forecast %+v of a spare offer, want %v", f, (contract.Forecast{}))
	}
	spare.Spare = false
	h.says(amy, spare)
	h.untilKept(spare)
	h.says(amy, timed(7, gpus(1), 0))
	if got := h.committed(); len(got) > 0 {
		t.Errorf("committed %v in the turn of another, want none", got)
	}
	spare.Spare = true // its scheduler has another host keep what is free
	h.says(amy, spare)
	if got := h.committed(); len(got) != 1 || got[0] != 7 {
		t.Errorf("committed %v, want 7", got)
	}
}

// A spare offer does not hide another offer with the same need, for which this host is to keep what is free.
func TestSpareOfferDoesNotHideAnotherOffer(t *testing.T) {
	h, _ := newHostWithEightGPUs(t, 0)
	spare, stands := timed(2, gpus(8), 0), timed(3, gpus(8), 0)
	spare.Spare = true
	h.says(amy, spare, stands)
	h.untilKept(stands)
	h.pass(time.Second)
	h.says(amy, spare, stands)
	if all := h.forecasts(); all[3].Kept == 0 || all[2] != (contract.Forecast{}) {
		t.Errorf("forecasts %+v, want Kept above 0 for 3, and none for 2", all)
	}
}

// If time limits show when a spare offer fits, it is booked like any other.
func TestSpareOffersAreBooked(t *testing.T) {
	h, _ := newHostWithEightGPUs(t, time.Hour)
	spare := timed(2, gpus(8), time.Hour)
	spare.Spare = true
	h.says(amy, spare, timed(3, gpus(1), 30*time.Minute), timed(4, gpus(1), 2*time.Hour))
	if got := h.committed(); len(got) != 1 || got[0] != 3 {
		t.Errorf("committed %v, want only what ends before the booking", got)
	}
}
