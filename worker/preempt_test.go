package worker_test

// Preemption: which tasks end so that an offer of a higher priority fits.

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker"
	"github.com/musterhq/muster/worker/driver"
)

// filled is a host with running tasks.
type filled struct {
	*host
	session contract.Session
	n       uint64
	grace   time.Duration // of the tasks
}

func newFilled(t *testing.T, gpus int) *filled {
	h := newHost(t, config(gpus))
	return &filled{host: h, session: h.meet(amy, 1)}
}

// run starts a task that holds GPUs. Each task is a second younger than the one before.
func (f *filled) run(priority, devices int, preemptible bool) job.Attempt {
	f.t.Helper()
	f.pass(time.Second)
	f.n++
	a := attempt(f.n, 1)
	m := start(f.n, a, f.session, gpus(devices))
	m.File = edited(m.File, func(s *job.Spec) { s.Priority, s.Preemptible, s.Grace = priority, preemptible, job.Duration(f.grace) })
	o := offer(f.n, a, gpus(devices))
	o.Priority = priority
	f.says(amy, o)
	f.says(amy, m)
	f.round(driver.Event{Attempt: a, Kind: driver.Started, PID: int(f.n)})
	got[contract.Event](f.host, amy)
	got[contract.Commit](f.host, amy)
	return a
}

// ask offers a task that may preempt, and returns the tasks that were told to end.
func (f *filled) ask(priority, devices int) (ended []job.Attempt) {
	f.n++
	m := offer(f.n, attempt(f.n, 1), gpus(devices))
	m.Priority, m.Wait, m.Preempt = priority, time.Minute, true
	for _, s := range f.says(amy, m).Stop {
		ended = append(ended, s.Attempt)
	}
	return ended
}

func TestVictimsAreTheFewestOfTheLeastPriority(t *testing.T) {
	type running struct {
		priority, gpus int
		kept           bool // not preemptible
	}
	for name, c := range map[string]struct {
		gpus    int
		running []running // the oldest first
		need    int
		want    []int // indexes of running
	}{
		"none is preemptible":             {2, []running{{10, 1, true}, {10, 1, true}}, 1, nil},
		"equal priority":                  {1, []running{{90, 1, false}}, 1, nil},
		"higher priority":                 {1, []running{{95, 1, false}}, 1, nil},
		"the only one":                    {1, []running{{50, 1, false}}, 1, []int{0}},
		"the least priority":              {3, []running{{20, 1, false}, {10, 1, false}, {30, 1, false}}, 1, []int{1}},
		"of equal ones the youngest":      {3, []running{{10, 1, false}, {10, 1, false}, {10, 1, false}}, 1, []int{2}},
		"not what may not be preempted":   {2, []running{{10, 1, true}, {80, 1, false}}, 1, []int{1}},
		"one rather than two":             {4, []running{{10, 1, false}, {10, 1, false}, {20, 2, false}}, 2, []int{2}},
		"no more than it takes":           {4, []running{{10, 1, false}, {10, 1, false}, {10, 1, false}, {10, 1, false}}, 2, []int{2, 3}},
		"with what is free":               {4, []running{{10, 1, false}, {10, 1, false}}, 3, []int{1}},
		"none if all would not be enough": {4, []running{{10, 1, false}, {10, 1, false}, {50, 2, true}}, 3, nil},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFilled(t, c.gpus)
			var all, want []job.Attempt
			for _, r := range c.running {
				all = append(all, f.run(r.priority, r.gpus, !r.kept))
			}
			for _, i := range c.want {
				want = append(want, all[i])
			}
			ended := f.ask(90, c.need)
			slices.SortFunc(ended, func(a, b job.Attempt) int { return strings.Compare(a.String(), b.String()) })
			slices.SortFunc(want, func(a, b job.Attempt) int { return strings.Compare(a.String(), b.String()) })
			if !slices.Equal(ended, want) {
				t.Fatalf("%v end, want %v of %v", ended, want, all)
			}
			declined := len(got[contract.Decline](f.host, amy)) > 0
			if declined != (len(want) == 0) {
				t.Errorf("declined: %v, want %v", declined, (len(want) == 0))
			}
		})
	}
}

// The offer gets what its victim held, and the owner of the victim learns the reason. Until the victim has ended, no
// other offer gets it.
func TestOfferGetsWhatItsVictimHeld(t *testing.T) {
	f := newFilled(t, 1)
	low := f.run(50, 1, true)
	if ended := f.ask(90, 1); len(ended) != 1 {
		t.Fatalf("%v end, want 1 of them", ended)
	}
	f.says(amy, offer(99, attempt(99, 1), gpus(1)))
	one[contract.Decline](f.host, amy)
	if cs := got[contract.Commit](f.host, amy); len(cs) > 0 {
		t.Fatalf("committed before the victim has ended: %+v, want none", cs)
	}
	f.round(driver.Event{Attempt: low, Kind: driver.Exited, Exit: job.Exit{State: job.Failed, Code: 143, Signal: 15}})
	if c := one[contract.Commit](f.host, amy); c.Offer != 2 || len(c.Devices) != 1 {
		t.Fatalf("commit %+v, want Offer 2 and 1 Devices", c)
	}
	all := got[contract.Event](f.host, amy)
	e := all[len(all)-1]
	if e.Attempt != low || e.State != job.Preempted || !strings.Contains(e.Exit.Reason, "preempted by job") || !strings.Contains(e.Exit.Reason, "priority 90") {
		t.Fatalf("the victim's end %+v, want low PREEMPTED by a job of priority 90", e)
	}
}

// A preempted task has the grace of its job, but at most that of the host.
func TestGraceOfPreemptedTasksIsBounded(t *testing.T) {
	for _, c := range []struct{ asks, gives, want time.Duration }{
		{time.Hour, worker.DefaultPreemptGrace, 5 * time.Minute},
		{time.Minute, worker.DefaultPreemptGrace, time.Minute},
		{0, worker.DefaultPreemptGrace, job.DefaultGrace},
		{time.Minute, 0, 0},
	} {
		cfg := config(1)
		cfg.PreemptGrace = c.gives
		h := newHost(t, cfg)
		f := &filled{host: h, session: h.meet(amy, 1), grace: c.asks}
		f.run(50, 1, true)
		if f.ask(90, 1); len(h.done.Stop) != 1 || h.done.Stop[0].Grace != c.want {
			t.Errorf("grace %s at a host that gives %s: %+v, want %s", c.asks, c.gives, h.done.Stop, c.want)
		}
	}
}

// A task that ends for one offer is not counted again for another.
func TestVictimOfOneOfferIsNotCountedForAnother(t *testing.T) {
	f := newFilled(t, 2)
	first, second := f.run(50, 1, true), f.run(50, 1, true)
	if ended := f.ask(90, 1); !slices.Equal(ended, []job.Attempt{second}) {
		t.Fatalf("%v end, want %v", ended, []job.Attempt{second})
	}
	if ended := f.ask(80, 1); !slices.Equal(ended, []job.Attempt{first}) {
		t.Fatalf("for the second offer %v end, want %v", ended, []job.Attempt{first})
	}
	if ended := f.ask(80, 1); len(ended) > 0 {
		t.Fatalf("for the third offer %v end, want none", ended)
	}
}

// If a task ends anyway, the offer waits for it and nothing is preempted.
func TestNothingIsPreemptedIfTasksEndAnyway(t *testing.T) {
	f := newFilled(t, 2)
	kept, low := f.run(50, 1, false), f.run(50, 1, true)
	f.says(amy, contract.Cancel{Attempt: kept, Group: group, Epoch: epoch(1), Grace: time.Minute})
	if ended := f.ask(90, 1); len(ended) > 0 {
		t.Fatalf("%v end, %s is not needed, want none", ended, low)
	}
	if ds := got[contract.Decline](f.host, amy); len(ds) > 0 {
		t.Fatalf("declined: %+v, want none", ds)
	}
}

// A queued offer preempts when it is repeated with the wish to preempt.
func TestQueuedOfferPreemptsWhenItIsRepeated(t *testing.T) {
	f := newFilled(t, 1)
	low := f.run(50, 1, true)
	m := offer(7, attempt(7, 1), gpus(1))
	m.Priority, m.Wait = 90, time.Minute
	if e := f.says(amy, m); len(e.Stop) > 0 {
		t.Fatal("preempted without the wish")
	}
	m.Preempt = true
	if e := f.says(amy, m); len(e.Stop) != 1 || e.Stop[0].Attempt != low {
		t.Fatalf("stops %+v, want 1 of them and [0].Attempt %v", e.Stop, low)
	}
	if e := f.says(amy, m); len(e.Stop) > 0 {
		t.Fatalf("again: stops %+v, want none", e.Stop)
	}
}

// The host reports what preemptible tasks hold, by priority, even after a restart.
func TestHostReportsPreemptibleTasks(t *testing.T) {
	f := newFilled(t, 4)
	f.run(30, 2, true)
	young := f.run(10, 1, true)
	f.run(10, 1, false)
	want := []contract.Preemptible{{Priority: 10, CPUs: 1, GPUs: 1}, {Priority: 30, CPUs: 1, GPUs: 2}}
	told := func() []contract.Preemptible {
		f.pass(time.Second)
		f.says(amy, offer(1000+f.n, attempt(500, 1), job.Resources{CPUs: 100}))
		f.says(amy, offer(2000+f.n, attempt(501, 1), gpus(4)))
		f.n++
		ds := got[contract.Decline](f.host, amy)
		return ds[len(ds)-1].Free.Preemptible
	}
	if got := told(); !slices.Equal(got, want) {
		t.Errorf("told %+v, want %+v", got, want)
	}
	var found []driver.Event
	for a := range f.records {
		found = append(found, driver.Event{Attempt: a, Kind: driver.Started, PID: 5})
	}
	f.boot(found...)
	f.meet(amy, 1)
	if got := told(); !slices.Equal(got, want) {
		t.Errorf("after a restart told %+v, want %+v", got, want)
	}
	f.round(driver.Event{Attempt: young, Kind: driver.Exited, Exit: job.Exit{State: job.Succeeded}})
	if got := told(); !slices.Equal(got, want[1:]) {
		t.Errorf("after the end of one told %+v, want %v", got, want[1:])
	}
}

// Of 1,000 preemptible tasks only as many end as the offer needs: those of the least priority.
func TestNoMoreTasksAreEndedThanNeeded(t *testing.T) {
	cfg := config(0)
	cfg.Profile.CPUs = 2000
	h := newHost(t, cfg)
	f := &filled{host: h, session: h.meet(amy, 1)}
	for i := range 1000 {
		f.n++
		a := attempt(f.n, 1)
		m := start(f.n, a, f.session, job.Resources{CPUs: 2})
		m.File = edited(m.File, func(s *job.Spec) { s.Priority, s.Preemptible = i%40, true })
		o := offer(f.n, a, job.Resources{CPUs: 2})
		o.Priority = i % 40
		f.says(amy, o)
		f.says(amy, m)
	}
	m := offer(5000, attempt(5000, 1), job.Resources{CPUs: 100})
	m.Priority, m.Wait, m.Preempt = 90, time.Minute, true
	e := f.says(amy, m)
	if len(e.Stop) != 50 {
		t.Errorf("%d tasks end, want 50", len(e.Stop))
	}
	for _, s := range e.Stop {
		if p := f.records[s.Attempt].File.Spec().Priority; p > 1 {
			t.Fatal(fmt.Sprint("a task of priority ", p, " ends"))
		}
	}
}

func TestEnvironmentSaysThatATaskWasPreempted(t *testing.T) {
	f := newFilled(t, 1)
	m := start(1, attempt(1, 2), f.session, gpus(1))
	m.Element.Preempted = true
	f.says(amy, offer(1, m.Attempt, gpus(1)))
	if e := f.says(amy, m); !slices.Contains(e.Start[0].Env, "MUSTER_PREEMPTED=1") {
		t.Errorf(`environment %v, want "MUSTER_PREEMPTED=1" among them`, e.Start[0].Env)
	}
}

// No task ends for an offer that would not get its devices, because they are booked for an offer before it. That offer
// would start before this one has ended, and others would use the devices meanwhile, again and again.
func TestNothingIsPreemptedForDevicesThatAreBooked(t *testing.T) {
	for _, c := range []struct {
		limit time.Duration // of the second offer
		ends  bool
	}{{90 * time.Hour, true}, {200 * time.Hour, false}, {0, false}} {
		f := newFilled(t, 4)
		const limit = job.Duration(100 * time.Hour)
		for i := range 4 {
			f.n++
			m := start(f.n, attempt(f.n, 1), f.session, gpus(1))
			m.File = edited(m.File, func(s *job.Spec) { s.Priority, s.Preemptible, s.TimeLimit = 50, i > 0, limit })
			o := offer(f.n, m.Attempt, gpus(1))
			o.Limit = contract.LimitOf(&job.Spec{TimeLimit: limit})
			f.says(amy, o)
			f.says(amy, m)
			f.round(driver.Event{Attempt: m.Attempt, Kind: driver.Started, PID: int(f.n)})
		}
		f.n++
		all := offer(f.n, attempt(f.n, 1), gpus(4))
		all.Priority, all.Wait, all.Limit, all.Age = 95, time.Minute, time.Hour, 2*time.Hour
		f.says(amy, all)
		f.n++
		some := offer(f.n, attempt(f.n, 1), gpus(2))
		some.Priority, some.Wait, some.Preempt, some.Limit, some.Age = 95, time.Minute, true, c.limit, time.Hour
		out := f.says(amy, some)
		if (len(out.Stop) > 0) != c.ends {
			t.Errorf("limit %s: %d tasks were told to end, want some only in the other case", c.limit, len(out.Stop))
		}
		if declined := len(got[contract.Decline](f.host, amy)) > 0; declined == c.ends {
			t.Errorf("limit %s: declined: %t, want the opposite", c.limit, declined)
		}
	}
}
