package worker_test

// Levels: which running tasks may end for one of their own priority.

import (
	"testing"
	"time"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker/driver"
)

// leveled starts a task by an offer with a level.
func (f *filled) leveled(preemptible bool, level int, w contract.Work) job.Attempt {
	f.t.Helper()
	return f.offered(50, preemptible, level, w)
}

// offered starts a task of a job with the priority 50, by an offer with another priority.
func (f *filled) offered(priority int, preemptible bool, level int, w contract.Work) job.Attempt {
	f.t.Helper()
	f.pass(time.Second)
	f.n++
	a := attempt(f.n, 1)
	m := start(f.n, a, f.session, gpus(1))
	m.File = edited(m.File, func(s *job.Spec) { s.Priority, s.Preemptible = 50, preemptible })
	o := offer(f.n, a, gpus(1))
	o.Priority, o.Level, o.Work = priority, level, w
	f.says(amy, o)
	f.says(amy, m)
	f.round(driver.Event{Attempt: a, Kind: driver.Started, PID: int(f.n)})
	got[contract.Event](f.host, amy)
	got[contract.Commit](f.host, amy)
	return a
}

func TestVictimsAreChosenByLevel(t *testing.T) {
	had := func(d time.Duration) contract.Work { return contract.Work{By: contract.ByAttained, Time: d} }
	left := func(d time.Duration) contract.Work { return contract.Work{By: contract.ByRemaining, Time: d} }
	for name, c := range map[string]struct {
		preemptible bool
		level       int // of the running task
		work        contract.Work
		ran         time.Duration
		offer       int // the level of the waiting offer
		ends        bool
	}{
		"by age nobody ends for an equal": {true, 0, contract.Work{}, time.Hour, 0, false},
		"has had more":                    {true, 3, had(8 * time.Hour), 11 * time.Minute, 2, true},
		"has had as much":                 {true, 3, had(8 * time.Hour), 11 * time.Minute, 3, false},
		"has had less":                    {true, 1, had(time.Hour), 11 * time.Minute, 2, false},
		"has just begun":                  {true, 3, had(8 * time.Hour), 9 * time.Minute, 0, false},
		"has had enough by now":           {true, 0, had(0), 70 * time.Minute, 0, true},
		"not preemptible":                 {false, 3, had(8 * time.Hour), time.Hour, 0, false},
		"waited long before":              {true, 0, had(8 * time.Hour), 20 * time.Minute, 0, false},
		"has more left":                   {true, 6, left(2 * time.Hour), 11 * time.Minute, 5, true},
		"has less left by now":            {true, 6, left(2 * time.Hour), 100 * time.Minute, 5, false},
		// A false report of its work gains a task no more than a false priority.
		"claims to have had nothing": {true, contract.MaxLevel, had(0), 10*time.Minute + time.Second, 0, false},
		"claims the most":            {true, 0, had(contract.MaxWork), 20 * time.Minute, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFilled(t, 1)
			a := f.leveled(c.preemptible, c.level, c.work)
			f.pass(c.ran)
			f.n++
			m := offer(f.n, attempt(f.n, 1), gpus(1))
			m.Priority, m.Wait, m.Preempt, m.Level = 50, time.Minute, true, c.offer
			if m.Work.By = c.work.By; m.Work.By == contract.ByAge {
				m.Level = 0
			}
			stops := f.says(amy, m).Stop
			if (len(stops) == 1 && stops[0].Attempt == a) != c.ends || len(stops) > 1 {
				t.Errorf("ended: %v, want %t", stops, c.ends)
			}
		})
	}
}

// A task that was offered with the highest priority, because it had waited for long, keeps it while it runs, whatever
// its job says. A lower priority in a later message has no effect.
func TestTaskThatWasOverdueIsNotPreempted(t *testing.T) {
	for _, w := range []contract.Work{{}, {By: contract.ByAttained, Time: contract.MaxWork}, {By: contract.ByRemaining, Time: contract.MaxWork}} {
		for offered, ends := range map[int]bool{99: true, job.MaxPriority: false} {
			f := newFilled(t, 1)
			a := f.offered(offered, true, 0, w)
			f.pass(100 * time.Hour)
			f.n++
			m := offer(f.n, attempt(f.n, 1), gpus(1))
			m.Priority, m.Wait, m.Preempt, m.Work.By = job.MaxPriority, time.Minute, true, w.By
			stops := f.says(amy, m).Stop
			if (len(stops) == 1 && stops[0].Attempt == a) != ends || len(stops) > 1 {
				t.Errorf("%s, offered with %d: ended: %v, want %t", w.By, offered, stops, ends)
			}
		}
	}
}
