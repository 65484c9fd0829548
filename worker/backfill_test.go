package worker_test

// Backfill: later offers run before those that cannot start yet, and delay none of them.

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker"
	"github.com/musterhq/muster/worker/driver"
	"github.com/musterhq/muster/worker/leaseclock"
)

const grace = time.Second

// timed is an offer of a task with this time limit; 0 means none.
func timed(id uint64, need job.Resources, limit time.Duration) contract.Offer {
	m := offer(id, attempt(id, 1), need)
	m.Wait, m.Age = contract.MaxOfferWait, 24*time.Hour-time.Duration(id)*time.Second
	if limit > 0 {
		m.Limit = limit + grace
	}
	return m
}

// begins starts the task of an offer to which the host has committed.
func (h *host) begins(m contract.Offer, s contract.Session) {
	h.t.Helper()
	st := start(m.ID, m.Attempt, s, m.Need)
	st.User = m.User
	st.File = edited(st.File, func(spec *job.Spec) {
		if m.Limit > 0 {
			spec.TimeLimit, spec.Grace = job.Duration(m.Limit-grace), job.Duration(grace)
		}
	})
	if e := h.says(amy, st); len(e.Start) != 1 {
		h.t.Fatalf("%d tasks started; told %+v, want 1", len(e.Start), got[contract.Event](h, amy))
	}
	h.round(driver.Event{Attempt: m.Attempt, Kind: driver.Started, PID: 42})
}

// committed returns the offers to which the host has committed since the last call.
func (h *host) committed() (out []uint64) {
	for _, c := range got[contract.Commit](h, amy) {
		out = append(out, c.Offer)
	}
	return out
}

// forecasts returns the newest forecast of each offer.
func (h *host) forecasts() map[uint64]contract.Forecast {
	out := map[uint64]contract.Forecast{}
	for _, a := range got[contract.Availability](h, amy) {
		for _, f := range a.Forecasts {
			out[f.Offer] = f
		}
	}
	return out
}

// untilKept renews offers and leases until what is free is kept for an offer that is now blocked for the first time.
func (h *host) untilKept(ms ...contract.ToWorker) {
	h.t.Helper()
	for end := h.now.Boot.Add(worker.DefaultSetAside); h.now.Boot < end; {
		h.pass(20 * time.Second)
		h.renew(amy)
		h.says(amy, ms...)
	}
}

// newHostWithEightGPUs is a host with eight GPUs. A task with this limit holds one of them.
func newHostWithEightGPUs(t *testing.T, limit time.Duration) (*host, contract.Session) {
	h := newHost(t, config(8))
	s := h.meet(amy, 1)
	m := timed(1, gpus(1), limit)
	h.says(amy, m)
	h.committed()
	h.begins(m, s)
	return h, s
}

func TestBackfillStartsWhatEndsBeforeTheBooking(t *testing.T) {
	h, s := newHostWithEightGPUs(t, time.Hour)
	h.says(amy, timed(2, gpus(8), time.Hour), timed(3, gpus(1), 30*time.Minute), timed(4, gpus(1), 2*time.Hour), timed(5, gpus(1), 0))
	if got := h.committed(); !slices.Equal(got, []uint64{3}) {
		t.Fatalf("committed %v, want only what ends before the large one can start", got)
	}
	h.begins(timed(3, gpus(1), 30*time.Minute), s)
	h.pass(time.Second)
	if f := h.forecasts()[2]; f.Start < time.Hour-2*time.Second || f.Start > time.Hour+2*grace+worker.StartWithin {
		t.Errorf("forecast %+v, want Start at least %v and Start at most %v", f, time.Hour-2*time.Second, time.Hour+2*grace+worker.StartWithin)
	}
	for range 60 {
		h.pass(20 * time.Second)
		h.renew(amy)
		h.says(amy, timed(2, gpus(8), time.Hour), timed(4, gpus(1), 2*time.Hour), timed(5, gpus(1), 0))
	}
	h.round(exited(attempt(3, 1), 0)) // earlier than its limit
	h.round(exited(attempt(1, 1), 0))
	if got := h.committed(); !slices.Equal(got, []uint64{2}) {
		t.Fatalf("committed %v, want the large one", got)
	}
}

// A task that uses none of the devices and CPUs of the booking may run past its start.
func TestBackfillUsesWhatABookingLeaves(t *testing.T) {
	h, _ := newHostWithEightGPUs(t, time.Hour)
	big := timed(2, job.Resources{CPUs: 4, GPUs: 4}, time.Hour)
	big.Need.GPUs = 8
	h.says(amy, big)
	h.says(amy, timed(3, job.Resources{CPUs: 4}, 0), timed(4, job.Resources{CPUs: 1}, 0))
	if got := h.committed(); !slices.Equal(got, []uint64{3}) {
		t.Fatalf("committed %v: of 8 CPUs 4 are booked for later and 1 is released by then, want %v", got, []uint64{3})
	}
}

// The bookings of two needs do not use the same devices, and a later offer delays neither.
func TestTwoBookingsUseDifferentDevices(t *testing.T) {
	h := newHost(t, config(4))
	s := h.meet(amy, 1)
	for id, limit := range []time.Duration{time.Hour, time.Hour, 2 * time.Hour} {
		m := timed(uint64(id+1), gpus(1), limit)
		h.says(amy, m)
		h.begins(m, s)
	}
	h.committed()
	// Offer 11 gets the free GPU and two others in one hour. Offer 12 gets the rest in two hours at the earliest.
	h.says(amy, timed(11, gpus(3), 3*time.Hour), timed(12, gpus(2), time.Hour), timed(13, gpus(1), 40*time.Minute), timed(14, gpus(1), 90*time.Minute))
	if got := h.committed(); !slices.Equal(got, []uint64{13}) {
		t.Fatalf("committed %v, want %v", got, []uint64{13})
	}
	h.pass(time.Second)
	f := h.forecasts()
	near := func(d, want time.Duration) bool { return d > want-time.Minute && d < want+time.Minute }
	if !near(f[11].Start, time.Hour) || !near(f[12].Start, 4*time.Hour) {
		t.Errorf("forecasts %+v, want 11 in an hour and 12 in four", f)
	}
}

// A Start may not have a longer time limit than its offer, as the offer passed others because of its limit.
func TestStartWithALongerLimitThanItsOfferIsRefused(t *testing.T) {
	for limit, want := range map[time.Duration]bool{0: false, 29 * time.Minute: true, 30 * time.Minute: true, 31 * time.Minute: false} {
		h, s := newHostWithEightGPUs(t, time.Hour)
		h.says(amy, timed(2, gpus(8), time.Hour))
		m := timed(3, gpus(1), 30*time.Minute)
		h.says(amy, m)
		st := start(3, m.Attempt, s, m.Need)
		st.File = edited(st.File, func(spec *job.Spec) { spec.TimeLimit, spec.Grace = job.Duration(limit), job.Duration(grace) })
		if e := h.says(amy, st); (len(e.Start) == 1) != want {
			t.Errorf("limit %s: %d tasks started, want a start only within the limit of the offer", limit, len(e.Start))
		}
		if refused := got[contract.Event](h, amy); !want && !strings.Contains(fmt.Sprint(refused), "longer time limit than") {
			t.Errorf("limit %s: told %+v, want a reason about the longer limit", limit, refused)
		}
	}
}

// A job for eight GPUs waits while a task without a limit holds one. The job does not keep the others idle for ever,
// and does not starve when that task ends one day although later tasks keep coming.
func TestJobForAllGPUsNeitherIdlesThemNorStarves(t *testing.T) {
	h, s := newHostWithEightGPUs(t, 0)
	big := timed(2, gpus(8), 0)
	h.says(amy, big)
	id, running := uint64(100), map[job.Attempt]leaseclock.BootTime{}
	idle, since := time.Duration(0), h.now.Boot
	foreign := 9 * time.Hour // then the other task ends
	var forecast contract.Forecast
	words := map[string]bool{}
	for h.now.Boot.Sub(since) < 4*24*time.Hour {
		for a, at := range running {
			if h.now.Boot >= at {
				delete(running, a)
				h.round(exited(a, 0))
				h.says(amy, contract.Ack{Attempt: a, N: 4})
			}
		}
		if foreign > 0 && h.now.Boot.Sub(since) >= foreign {
			foreign = 0
			h.round(exited(attempt(1, 1), 0))
		}
		commits := h.committed()
		if slices.Contains(commits, 2) {
			at := h.now.Boot.Sub(since)
			t.Logf("the job for eight started after %s; seven GPUs were idle for %s of it", at, idle)
			if idle > at*6/10 || !words["kept"] || !words["shared"] {
				t.Errorf("idle for %s of %s; forecasts %v, want at most 60 %% and forecasts with and without keeping", idle, at, words)
			}
			return
		}
		for _, o := range commits { // other tasks run for three hours each, without a limit
			h.begins(timed(o, gpus(1), 0), s)
			running[attempt(o, 1)] = h.now.Boot.Add(3 * time.Hour)
		}
		h.says(amy, big)
		if h.core.View().Queued < 8 {
			id++
			m := timed(id, gpus(1), 0)
			m.Age = 0
			h.says(amy, m)
		}
		h.renew(amy)
		if len(running) == 0 {
			idle += 15 * time.Second
		}
		h.pass(15 * time.Second)
		h.renew(amy)
		if f, told := h.forecasts()[2]; told {
			forecast = f
			words["kept"] = words["kept"] || f.Kept > 0
			words["shared"] = words["shared"] || f.Shared > 0
		}
		got[contract.Event](h, amy)
		got[contract.Decline](h, amy)
	}
	t.Fatalf("the job never started; last forecast %+v", forecast)
}

// trial is a host with a quick sequence of random offers. Tasks with a limit end by it, some of them much earlier.
type trial struct {
	*host
	session contract.Session
	rng     *rand.Rand
	offers  map[uint64]contract.Offer
	real    map[uint64]time.Duration // the run time of each task
	ends    map[job.Attempt]leaseclock.BootTime
	renewed leaseclock.BootTime
	started map[uint64]leaseclock.BootTime
}

func newTrial(t tb, seed uint64, n int) *trial {
	x := &trial{
		host: newHost(t, config(n)), rng: rand.New(rand.NewPCG(seed, 91)), offers: map[uint64]contract.Offer{}, real: map[uint64]time.Duration{},
		ends: map[job.Attempt]leaseclock.BootTime{}, started: map[uint64]leaseclock.BootTime{},
	}
	x.session = x.meet(amy, 1)
	return x
}

// step starts the tasks of all Commits, and reports whether there were any.
func (x *trial) step() (any bool) {
	for again := true; again; {
		again = false
		for _, id := range x.committed() {
			m, waits := x.offers[id]
			if !waits { // a renewal crossed the Commit, and was answered with another one
				continue
			}
			delete(x.offers, id)
			x.begins(m, x.session)
			x.started[id] = x.now.Boot
			x.ends[m.Attempt] = x.now.Boot.Add(x.real[id])
			again, any = true, true
		}
	}
	return any
}

// move advances to the next end of a task, at most by this time. It renews offers and leases on the way.
func (x *trial) move(most time.Duration) {
	to := x.now.Boot.Add(most)
	for _, at := range x.ends {
		to = min(to, max(at, x.now.Boot))
	}
	for x.now.Boot < to {
		next := min(to, max(x.now.Boot, x.renewed.Add(20*time.Second)))
		if at, ok := x.core.Wake(); ok {
			next = min(next, max(at, x.now.Boot))
		}
		x.jump(next.Sub(x.now.Boot))
		x.round()
		if x.step() {
			break
		}
		if x.now.Boot >= x.renewed.Add(20*time.Second) {
			x.renewed = x.now.Boot
			var again []contract.ToWorker
			for _, m := range x.offers {
				again = append(again, m)
			}
			x.says(amy, again...)
		}
		x.renew(amy)
	}
	for _, a := range sortedEnds(x.ends) {
		if x.now.Boot >= x.ends[a] {
			delete(x.ends, a)
			x.round(exited(a, 0))
			x.says(amy, contract.Ack{Attempt: a, N: 4})
		}
	}
	got[contract.Event](x.host, amy)
	got[contract.Availability](x.host, amy)
	if d := got[contract.Decline](x.host, amy); len(d) > 0 {
		x.t.Fatalf("declined: %+v", d[0])
	}
}

func sortedEnds(ends map[job.Attempt]leaseclock.BootTime) (out []job.Attempt) {
	for a := range ends {
		out = append(out, a)
	}
	slices.SortFunc(out, func(a, b job.Attempt) int { return strings.Compare(a.String(), b.String()) })
	return out
}

// No booking is ever delayed by an offer that ranks after it. So the booking of the first in the queue is never
// delayed.
func TestLaterOffersDelayNoBooking(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(2, 8).Draw(t, "gpus")
		x := newTrial(t, 1, n)
		id, booked, unlimited := uint64(0), map[uint64]leaseclock.BootTime{}, false
		never := func(what string, first uint64) {
			t.Helper()
			now := worker.Booked(x.core)
			for o, at := range booked {
				was, waits := now[o]
				switch {
				case first != 0 && o != first:
				case x.started[o] != 0 && x.started[o] > at:
					t.Fatalf("offer %d was booked for %v and started at %v, after %s", o, at, x.started[o], what)
				case x.started[o] == 0 && !waits:
					t.Fatalf("offer %d was booked for %v, now it has no booking, after %s", o, at, what)
				case waits && was > at:
					t.Fatalf("offer %d was booked for %v, now it is booked for the later %v, after %s", o, at, was, what)
				case x.started[o] == 0 && x.now.Boot > at:
					t.Fatalf("offer %d was booked for %v and still waits at %v, after %s", o, at, x.now.Boot, what)
				}
			}
		}
		for range rapid.IntRange(5, 25).Draw(t, "steps") {
			for range rapid.IntRange(0, 3).Draw(t, "arrivals") {
				id++
				need := job.Resources{
					CPUs: rapid.IntRange(0, 4).Draw(t, "cpus"), GPUs: rapid.IntRange(0, n).Draw(t, "gpus of one"),
					Memory: job.Size(rapid.IntRange(0, 3).Draw(t, "memory")) * 20 << 30,
				}
				need.Exclusive = rapid.IntRange(0, 15).Draw(t, "exclusive") == 0
				limit := time.Duration(rapid.IntRange(1, 100).Draw(t, "limit")) * time.Minute
				m := timed(id, need, limit)
				if rapid.IntRange(0, 9).Draw(t, "without a limit") == 0 {
					m.Limit, unlimited = 0, true
				}
				x.offers[id], x.real[id] = m, limit*time.Duration(rapid.IntRange(1, 100).Draw(t, "part"))/100
				x.round(worker.LimitsChanged{}) // a pass, as tasks have begun since the last one
				booked = worker.Booked(x.core)
				x.says(amy, m)
				never("the arrival of an offer", 0)
				x.step()
			}
			first := uint64(0) // in the queue
			for o := range x.offers {
				if first == 0 || o < first {
					first = o
				}
			}
			booked = worker.Booked(x.core)
			if first != 0 && booked[first] == 0 && !unlimited {
				t.Fatalf("offer %d is the first in the queue and has no booking, although all tasks have limits", first)
			}
			for range rapid.IntRange(1, 3).Draw(t, "moves") {
				x.move(time.Duration(rapid.IntRange(1, 60).Draw(t, "minutes")) * time.Minute)
				x.step()
				never("some time", first)
			}
		}
	})
}

// Backfill uses more of a host than starting in the order of the queue alone. Both run the same jobs to the end.
func TestBackfillUsesMoreOfAHost(t *testing.T) {
	var spans [2]time.Duration
	var work time.Duration
	for seed := range uint64(20) {
		x := newTrial(t, seed, 8)
		var msgs []contract.ToWorker
		var ends [8]time.Duration // of the last task of each GPU in the order of the queue; the first to end first
		last := time.Duration(0)  // when the last task began
		for id := uint64(1); id <= contract.MaxOffers; id++ {
			need := job.Resources{GPUs: []int{1, 1, 1, 2, 2, 4, 8}[x.rng.IntN(7)]}
			limit := time.Duration(1+x.rng.IntN(90)) * time.Minute
			m := timed(id, need, limit)
			x.real[id] = limit * time.Duration(30+x.rng.IntN(71)) / 100
			work += x.real[id] * time.Duration(need.GPUs)
			last = max(last, ends[need.GPUs-1])
			for i := range need.GPUs {
				ends[i] = last + x.real[id]
			}
			slices.Sort(ends[:])
			x.offers[id] = m
			msgs = append(msgs, m)
		}
		spans[1] += ends[7]
		zero := x.now.Boot
		x.says(amy, msgs...)
		for len(x.offers)+len(x.ends) > 0 {
			x.step()
			x.move(10 * time.Minute)
			if x.now.Boot.Sub(zero) > 30*24*time.Hour {
				t.Fatalf("seed %d: %d jobs still wait after 30 days", seed, len(x.offers))
			}
		}
		spans[0] += x.now.Boot.Sub(zero)
	}
	used := func(span time.Duration) float64 { return 100 * float64(work) / float64(8*span) }
	t.Logf("%d jobs on 8 GPUs: %s and %.0f%% used with backfill, %s and %.0f%% in the order of the queue",
		contract.MaxOffers, spans[0]/20, used(spans[0]), spans[1]/20, used(spans[1]))
	if used(spans[0]) < used(spans[1])+5 {
		t.Errorf("backfill uses less than 5 percentage points more")
	}
}

// Bookings do not accumulate: they are removed with their offers.
func TestBookingsDoNotGrow(t *testing.T) {
	x := newTrial(t, 3, 8)
	id := uint64(0)
	var sizes map[string]int
	for round := range 400 {
		for range 4 {
			id++
			m := timed(id, gpus(1+x.rng.IntN(8)), time.Duration(x.rng.IntN(3))*time.Hour)
			m.Age = 0
			x.offers[id], x.real[id] = m, time.Duration(1+x.rng.IntN(60))*time.Minute
			x.says(amy, m)
		}
		x.step()
		x.move(5 * time.Minute)
		if len(x.offers) > 30 {
			for o := range x.offers {
				delete(x.offers, o)
				x.says(amy, contract.Release{Offer: o})
			}
			got[contract.Commit](x.host, amy)
		}
		x.step()
		if round == 100 {
			sizes = worker.Sizes(x.core)
		}
	}
	for o := range x.offers {
		x.says(amy, contract.Release{Offer: o})
		delete(x.offers, o)
	}
	got[contract.Commit](x.host, amy)
	for len(x.ends) > 0 {
		x.move(time.Hour)
	}
	for at, n := range worker.Sizes(x.core) {
		if strings.Contains(at, "forecasts") && n > 0 || n > sizes[at]+64 {
			t.Errorf("%s: %d, and %d long before, want at most 64 more and no forecasts", at, n, sizes[at])
		}
	}
}

// The time until when a task holds its devices changes with events of the task, and the booking changes with it.
func TestBookingFollowsTheEndsOfTasks(t *testing.T) {
	first := attempt(1, 1)
	for name, c := range map[string]struct {
		happens func(h *host)
		want    time.Duration // from then on
	}{
		"nothing":            {func(*host) {}, time.Hour + grace},
		"half of it is over": {func(h *host) { h.jump(30 * time.Minute) }, 30*time.Minute + grace},
		"it is told to end": {func(h *host) {
			h.says(amy, contract.Cancel{Attempt: first, Group: group, Epoch: epoch(1), Grace: time.Minute})
		}, time.Minute},
		"it ends sooner anyway": {func(h *host) {
			h.jump(time.Hour)
			h.says(amy, contract.Cancel{Attempt: first, Group: group, Epoch: epoch(1), Grace: time.Minute})
		}, grace},
		"it runs past its limit": {func(h *host) { h.jump(2 * time.Hour) }, time.Second},
		"a restart of the daemon": {func(h *host) {
			h.jump(10 * time.Minute)
			h.boot(driver.Event{Attempt: first, Kind: driver.Started, PID: 42})
			h.meet(amy, 1)
		}, 50*time.Minute + grace},
		"a restart, and the clock was set": {func(h *host) {
			h.now.Wall = h.now.Wall.Add(-24 * time.Hour)
			h.boot(driver.Event{Attempt: first, Kind: driver.Started, PID: 42})
			h.meet(amy, 1)
		}, time.Hour + grace},
	} {
		t.Run(name, func(t *testing.T) {
			h, _ := newHostWithEightGPUs(t, time.Hour)
			c.happens(h)
			h.says(amy, timed(2, gpus(8), time.Hour))
			if at := worker.Booked(h.core)[2].Sub(h.now.Boot); at != c.want {
				t.Errorf("booked in %v, want %v", at, c.want)
			}
		})
	}
	t.Run("its process has not begun", func(t *testing.T) {
		h := newHost(t, config(8))
		s := h.meet(amy, 1)
		m := timed(1, gpus(1), time.Hour)
		h.says(amy, m)
		st := start(1, first, s, m.Need)
		st.File = edited(st.File, func(spec *job.Spec) { spec.TimeLimit, spec.Grace = job.Duration(time.Hour), job.Duration(grace) })
		h.says(amy, st)
		h.jump(30 * time.Minute)
		h.says(amy, timed(2, gpus(8), time.Hour))
		if at := worker.Booked(h.core)[2].Sub(h.now.Boot); at != time.Hour+grace {
			t.Errorf("booked in %v, want %v", at, time.Hour+grace)
		}
	})
}

// An offer for which tasks are preempted is booked for the end of their grace.
func TestPreemptingOfferIsBookedForTheEndOfTheGrace(t *testing.T) {
	f := newFilled(t, 2)
	f.run(50, 2, true)
	if ended := f.ask(90, 2); len(ended) != 1 {
		t.Fatalf("%v end, want 1 of them", ended)
	}
	if at := worker.Booked(f.core)[f.n].Sub(f.now.Boot); at != job.DefaultGrace {
		t.Errorf("booked in %v, want %v", at, job.DefaultGrace)
	}
}
