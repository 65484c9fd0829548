package worker_test

// Backfill beside gangs: what is kept for which offer, and what no forecast may count on.

import (
	"fmt"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker"
)

// Of many offers with the same need that do not fit, only the first holds anything back. Tasks of other schedulers get
// all CPUs but those of one offer, although no GPU is free.
func TestOnlyTheFirstOfferOfANeedHoldsBack(t *testing.T) {
	const cpus = 12
	for name, c := range map[string]struct {
		limit time.Duration // of the task that holds the GPUs
		gang  bool
	}{"tasks": {}, "gangs": {gang: true}, "tasks with a booking": {limit: time.Hour}, "gangs with a booking": {limit: time.Hour, gang: true}} {
		t.Run(name, func(t *testing.T) {
			cfg := config(2)
			cfg.Profile.CPUs = cpus
			h := newHost(t, cfg)
			s := h.meet(amy, 1)
			holder := timed(1, gpus(2), c.limit)
			h.says(amy, holder)
			h.committed()
			h.begins(holder, s)
			for i := range uint64(8) {
				m := timed(10+i, gpus(2), 0)
				if c.gang {
					m = member(10+i, 1, gpus(2))
				}
				h.says(amy, m)
			}
			h.owner(bob, group+1)
			for i := range uint64(2 * cpus) {
				m := timed(1000+i, job.Resources{CPUs: 1}, 0)
				m.Age, m.Group = 0, group+1
				h.says(bob, m)
			}
			if n := len(got[contract.Commit](h, bob)); n < cpus-2 {
				t.Errorf("%d of %d CPUs are for tasks without GPUs; 1 is in use and 1 may be kept, want at least %v", n, cpus, cpus-2)
			}
		})
	}
}

// Devices that are promised to a gang are not lent to a later task, however short that task is and whatever limits the
// promised tasks have. This holds even if an earlier offer with the same need lets others use what is free at the time.
func TestBackfillDoesNotUsePromisedDevices(t *testing.T) {
	for _, rests := range []bool{false, true} {
		t.Run(fmt.Sprintf("an offer before it rests: %t", rests), func(t *testing.T) {
			f := newFilled(t, 2)
			f.run(50, 1, true) // without a limit
			if rests {
				m := timed(400, gpus(2), 0)
				m.Priority = 90
				f.says(amy, m)
				for range 63 { // 21 minutes: others may use it for 10, it is kept for 10, and then others may use it again
					f.pass(20 * time.Second)
					f.renew(amy)
					f.says(amy, m)
				}
				if x := f.forecasts()[400]; x.Shared == 0 {
					t.Fatalf("forecast %+v, want Shared above 0", x)
				}
			}
			m := f.asks(500, 90, 2)
			f.says(amy, m)
			if c := one[contract.Commit](f.host, amy); !c.Conditional {
				t.Fatalf("commit %+v, want a conditional one", c)
			}
			short := timed(600, gpus(1), time.Second)
			short.Age = 0
			f.says(amy, short)
			if cs := got[contract.Commit](f.host, amy); len(cs) > 0 {
				t.Fatalf("lent: %+v, want none", cs)
			}
			f.says(amy, contract.Release{Offer: m.ID}, contract.Release{Offer: 400})
			if c := one[contract.Commit](f.host, amy); c.Offer != short.ID {
				t.Errorf("commit %+v, want Offer %v", c, short.ID)
			}
		})
	}
}

// Nobody knows when the place of a gathering gang becomes free, whatever time limit its tasks have. Once the gang has
// started, its limit counts.
func TestPlaceOfAGatheringGangHasNoEnd(t *testing.T) {
	h := newGangHost(t, 2)
	m := member(1, 1, gpus(1))
	m.Limit = time.Hour + grace
	h.says(amy, m)
	c := one[contract.Commit](h, amy)
	big := timed(5000, gpus(2), time.Hour)
	h.says(amy, big)
	h.pass(time.Second)
	if f := h.forecasts()[big.ID]; f.Shared == 0 {
		t.Errorf("forecast %+v while the gang gathers, want Shared above 0", f)
	}
	st := startOf(m, c)
	st.File = edited(st.File, func(s *job.Spec) { s.TimeLimit, s.Grace = job.Duration(time.Hour), job.Duration(grace) })
	if e := h.says(amy, st); len(e.Start) != 1 {
		t.Fatalf("not started: %+v", got[contract.Event](h, amy))
	}
	h.pass(time.Second)
	if f := h.forecasts()[big.ID]; f.Start < 59*time.Minute || f.Start > 62*time.Minute {
		t.Errorf("forecast %+v, once the gang is started, want Start at least %v and Start at most %v", f, 59*time.Minute, 62*time.Minute)
	}
}

// A gang takes the place of a later gang only if it then fits beside what is kept for offers before it.
func TestGangRevokesOnlyIfItFitsBesideWhatIsKept(t *testing.T) {
	for need, want := range map[int]bool{1: true, 2: false} {
		f := newFilled(t, 3)
		f.run(0, 1, false)
		f.round(worker.Down{Peer: amy}, worker.Up{Peer: amy})
		f.answer(amy, 1)
		later := member(9, 1, gpus(1))
		f.says(amy, later)
		one[contract.Commit](f.host, amy)
		first := timed(700, gpus(3), 0)
		first.Age = 48 * time.Hour
		f.says(amy, first)
		f.untilKept(first, later)
		got[contract.Commit](f.host, amy) // the place of the later gang, again
		m := member(2, 2, gpus(need))
		f.says(amy, m)
		ds, cs := got[contract.Decline](f.host, amy), got[contract.Commit](f.host, amy)
		if want != (len(ds) == 1 && ds[0].Offer == later.ID && len(cs) == 1 && cs[0].Offer == m.ID) || !want && len(ds)+len(cs) > 0 {
			t.Errorf("a gang that needs %d: declines %+v, commits %+v, want the later one declined and this one committed only if it fits", need, ds, cs)
		}
	}
}
