package worker_test

// Offers that another host has booked: nothing is kept for them here.

import (
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker"
)

// elsewhere is the same offer with the mark that another host has booked it.
func elsewhere(m contract.Offer) contract.Offer {
	m.Elsewhere = true
	return m
}

// Once its owner says that another host keeps what a job for eight GPUs needs, nothing is kept for the job here. When
// the owner withdraws that, it is kept again, and the owner is told.
func TestNothingIsKeptForAnOfferBookedElsewhere(t *testing.T) {
	h, s := newHostWithEightGPUs(t, time.Hour)
	big := timed(2, gpus(8), time.Hour)
	h.says(amy, big, timed(3, gpus(1), 0))
	h.pass(time.Second)
	if f := h.forecasts()[2]; f.Start == 0 || f.Elsewhere || len(h.committed()) > 0 {
		t.Fatalf("forecast %+v, want a start here and no Commit", f)
	}

	h.says(amy, elsewhere(big))
	if got := h.committed(); !slices.Equal(got, []uint64{3}) {
		t.Fatalf("committed %v, want the job without a limit", got)
	}
	h.begins(timed(3, gpus(1), 0), s)
	h.round(exited(attempt(3, 1), 0))
	h.says(amy, contract.Ack{Attempt: attempt(3, 1), N: 4})
	h.pass(time.Second)
	if f := h.forecasts()[2]; f.Start < time.Hour-time.Minute || f.Start > time.Hour+time.Minute || !f.Elsewhere {
		t.Errorf("forecast %+v, want a start in an hour, marked Elsewhere", f)
	}

	h.says(amy, big, timed(4, gpus(1), 0))
	h.pass(time.Second)
	if f := h.forecasts()[2]; f.Start == 0 || f.Elsewhere {
		t.Errorf("forecast %+v, want one that says that it is kept", f)
	}
	if got := h.committed(); len(got) > 0 {
		t.Errorf("committed %v though the large one is booked again, want none", got)
	}
	h.round(exited(attempt(1, 1), 0))
	if got := h.committed(); !slices.Equal(got, []uint64{2}) {
		t.Errorf("committed %v, want %v", got, []uint64{2})
	}
}

// An offer that another host has booked gets at once what others leave.
func TestOfferBookedElsewhereGetsWhatIsFree(t *testing.T) {
	h, _ := newHostWithEightGPUs(t, time.Hour)
	h.says(amy, elsewhere(timed(2, gpus(8), time.Hour)))
	h.round(exited(attempt(1, 1), 0))
	if got := h.committed(); !slices.Equal(got, []uint64{2}) {
		t.Errorf("committed %v, want %v", got, []uint64{2})
	}
}

// Nothing is kept for it from jobs of a lower priority either, by a booking or without one.
func TestOfferBookedElsewhereKeepsNothingFromLowerPriorities(t *testing.T) {
	for _, limit := range []time.Duration{time.Hour, 0} {
		h, _ := newHostWithEightGPUs(t, limit)
		high := timed(2, gpus(8), time.Hour)
		high.Priority = 90
		h.says(amy, high, urgent(3, gpus(1), 10))
		if got := h.committed(); len(got) > 0 {
			t.Fatalf("committed %v, want none", got)
		}
		h.says(amy, elsewhere(high))
		if got := h.committed(); !slices.Equal(got, []uint64{3}) {
			t.Errorf("limit %v: committed %v, want %v", limit, got, []uint64{3})
		}
	}
}

// The next offer with the same need is booked in its place.
func TestNextOfferOfTheNeedIsBooked(t *testing.T) {
	h, _ := newHostWithEightGPUs(t, time.Hour)
	first, second := timed(2, gpus(8), time.Hour), timed(3, gpus(8), time.Hour)
	h.says(amy, first, second)
	h.pass(time.Second)
	if f := h.forecasts(); f[2].Start == 0 || f[3].Start > 0 {
		t.Fatalf("forecasts %+v, want a start of offer 2 alone", f)
	}
	h.says(amy, elsewhere(first), timed(4, gpus(1), 0))
	h.pass(time.Second)
	if f := h.forecasts(); !f[2].Elsewhere || f[3].Start == 0 || f[3].Elsewhere {
		t.Errorf("forecasts %+v, want offer 2 elsewhere and offer 3 booked here", f)
	}
	if got := h.committed(); len(got) > 0 {
		t.Errorf("committed %v: what is free is kept for the second one, want none", got)
	}
}

// Devices for which tasks are preempted are kept, whatever the owner says.
func TestPreemptedDevicesAreKeptForAnOfferBookedElsewhere(t *testing.T) {
	h := newHost(t, config(2))
	s := h.meet(amy, 1)
	low := timed(1, gpus(1), 0)
	low.Priority = 10
	h.says(amy, low)
	h.committed()
	st := start(1, low.Attempt, s, low.Need)
	st.File = edited(st.File, func(spec *job.Spec) {
		spec.Priority, spec.Preemptible, spec.Grace = 10, true, job.Duration(time.Minute)
	})
	h.says(amy, st)
	high := elsewhere(timed(2, gpus(2), 0))
	high.Priority, high.Preempt = 90, true
	h.says(amy, high, timed(3, gpus(1), 0))
	if got := h.committed(); len(got) > 0 {
		t.Errorf("committed %v, want none", got)
	}
	h.round(exited(attempt(1, 1), 0))
	if got := h.committed(); !slices.Equal(got, []uint64{2}) {
		t.Errorf("committed %v, want %v", got, []uint64{2})
	}
}

// kept returns the last report of what the host keeps.
func (h *host) kept() (out []contract.Kept) {
	for _, a := range got[contract.Availability](h, amy) {
		out = a.Kept
	}
	return out
}

// A host reports what it keeps of what is free, for which job, from which tasks, and for how long.
func TestHostReportsWhatItKeeps(t *testing.T) {
	h, _ := newHostWithEightGPUs(t, time.Hour)
	h.pass(2 * time.Second)
	if got := h.kept(); len(got) > 0 {
		t.Fatalf("kept %+v, want none", got)
	}
	big := timed(2, gpus(8), time.Hour)
	h.says(amy, big)
	h.pass(2 * time.Second)
	all := h.kept()
	if len(all) != 1 {
		t.Fatalf("kept %+v, want 1 of them", all)
	}
	if d := all[0].For; d < time.Hour-time.Minute || d > time.Hour+time.Minute {
		t.Errorf("kept for %v, want at least %v and at most %v", d, time.Hour-time.Minute, time.Hour+time.Minute)
	}
	all[0].For = 0
	if want := (contract.Kept{Job: big.Attempt.Job, User: "ada", Priority: 50, GPUs: []int{0, 1, 2, 3, 4, 5, 6}, Milli: 1000, Starts: true}); !reflect.DeepEqual(all[0], want) {
		t.Errorf("kept %+v, want %+v", all[0], want)
	}

	h.says(amy, elsewhere(big))
	h.pass(2 * time.Second)
	if got := h.kept(); len(got) > 0 {
		t.Errorf("kept %+v for a job that another host has booked, want none", got)
	}
}

// Without a booking it is kept from jobs of the same priority in turns, and from those of lower ones all the time. A
// private job is not named.
func TestHostReportsWhatItKeepsInTurns(t *testing.T) {
	h, _ := newHostWithEightGPUs(t, 0)
	big := timed(2, gpus(8), 0)
	big.Private = true
	low := urgent(3, gpus(1), 10)
	h.says(amy, big, low)
	h.pass(2 * time.Second)
	want := contract.Kept{Priority: 50, Below: true, CPUs: 1, GPUs: []int{0, 1, 2, 3, 4, 5, 6}, Milli: 1000}
	if got := h.kept(); len(got) != 1 || !reflect.DeepEqual(got[0], want) {
		t.Errorf("kept %+v, want %+v", got, want)
	}
	h.untilKept(big, low)
	h.pass(2 * time.Second)
	got := h.kept()
	if len(got) == 0 || got[0].For <= 0 {
		t.Fatalf("kept %+v in its turn, want a time above 0", got)
	}
	want.Below, want.For = false, got[0].For
	if !reflect.DeepEqual(got[0], want) {
		t.Errorf("kept %+v, want %+v", got[0], want)
	}
}

// A scheduler also gets the report at the start of its session.
func TestNewSessionReportsWhatIsKept(t *testing.T) {
	h, _ := newHostWithEightGPUs(t, time.Hour)
	h.says(amy, timed(2, gpus(8), time.Hour))
	h.pass(2 * time.Second)
	h.round(worker.Up{Peer: bob})
	all := got[contract.Availability](h, bob)
	if len(all) == 0 || len(all[0].Kept) != 1 {
		t.Errorf("told %+v, want one thing kept", all)
	}
}
