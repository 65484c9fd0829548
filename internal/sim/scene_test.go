package sim

// Scenes: larger worlds of one kind each, each for a fault that has happened.

import (
	"fmt"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker"
	"github.com/musterhq/muster/worker/resources"
)

// endless is longer than any scene.
const endless = 1000 * time.Hour

func gpus(n int) job.Resources { return job.Resources{CPUs: 1, GPUs: n} }

func cpus(n int) job.Resources { return job.Resources{CPUs: n} }

// scene is a world of so many equal hosts and one owner without a worker.
func scene(t *testing.T, hosts int, s hostSpec, opt options) (*world, *owner) {
	t.Helper()
	t.Parallel()
	w := newTestWorld(t, 7, opt)
	for range hosts {
		w.addHost(s)
	}
	o := w.addOwner(nil)
	t.Cleanup(w.report)
	if testing.Verbose() {
		t.Cleanup(func() { t.Logf("%v of virtual time\n%s", w.now, w.stats.String()) })
	}
	return w, o
}

// TestLargeJobIsNotStarved has two GPUs, one of which becomes free every 50 s, and a job for both that is first in
// line. Later ones start before it only in the turn for others.
func TestLargeJobIsNotStarved(t *testing.T) {
	w, o := scene(t, 1, hostSpec{gpus: "2xH100", cpus: 16}, options{})
	w.newWork(o, "ada", gpus(1), 50*time.Second).submitAt(time.Second)
	for i := range 440 {
		w.newWork(o, "ada", gpus(1), 100*time.Second).submitAt(time.Second + time.Duration(i)*50*time.Second)
	}
	large := w.newWork(o, "bob", gpus(2), 10*time.Second)
	large.submitAt(200 * time.Second)
	w.start()
	w.runAll(6 * time.Hour)
	later, kept := 0, large.acceptAt+worker.DefaultSetAside+settleTime
	for _, j := range w.works {
		if j != large && j.starts > 0 && j.acceptAt > large.acceptAt && j.startAt > kept && (large.starts == 0 || j.startAt < large.startAt) {
			later++
		}
	}
	switch wait := large.startAt - large.acceptAt; {
	case large.starts == 0:
		t.Errorf("the job for both GPUs never started within %v, but %d later ones did", w.now-large.acceptAt, later)
	case wait > worker.DefaultSetAside+4*time.Minute || later > 2:
		t.Errorf("the job for both GPUs waited %v, and %d later ones started before it after their turn, want at most %v and at most 2", wait, later, worker.DefaultSetAside+4*time.Minute)
	}
}

// TestLargeJobIsNotStarvedByOtherOwners is the same with jobs for one GPU from other owners: one order holds for all.
func TestLargeJobIsNotStarvedByOtherOwners(t *testing.T) {
	w, o := scene(t, 2, hostSpec{gpus: "4xH100", cpus: 16}, options{})
	others := []*owner{w.addOwner(nil), w.addOwner(nil)}
	for i := range 500 {
		w.newWork(others[i%2], "ada", gpus(1), 3*time.Minute).submitAt(time.Second + time.Duration(i)*24*time.Second)
	}
	large := w.newWork(o, "bob", gpus(4), time.Minute)
	large.submitAt(10 * time.Minute)
	w.start()
	w.runAll(2 * time.Hour)
	wait := large.startAt - large.acceptAt
	if large.starts == 0 {
		wait = w.now - large.acceptAt
	}
	if wait > worker.DefaultSetAside+5*time.Minute {
		t.Errorf("the job for four GPUs waited %v (started %d times), with tasks of 3 minutes running, want at most %v", wait, large.starts, worker.DefaultSetAside+5*time.Minute)
	}
}

// TestRestartsOfManyDaemonsLoseNoTask has an owner with a task on each of 99 hosts, far more than the sessions that are
// kept without need. The owner is killed and started again, and then the daemon of each host.
func TestRestartsOfManyDaemonsLoseNoTask(t *testing.T) {
	w, o := scene(t, 99, hostSpec{cpus: 1}, options{mute: true})
	for range w.hosts {
		j := w.newWork(o, "ada", cpus(1), endless)
		j.spec.Lease = job.Duration(30 * time.Second)
		j.submitAt(time.Second)
	}
	w.start()
	if !w.runAny(10*time.Minute, func() bool { return w.stats.jobs == len(w.works) }) {
		t.Fatalf("%d tasks run, want %d", w.stats.jobs, len(w.works))
	}
	w.runAll(w.now + time.Minute)
	lost := func(after string) {
		n := 0
		for _, j := range w.works {
			if j.starts != 1 || j.tries[0].over || j.attempt != 1 {
				n++
			}
		}
		if n > 0 {
			t.Errorf("%d of %d healthy tasks were lost after %s, want 0", n, len(w.works), after)
		}
	}
	o.restart(2 * time.Second)
	w.runAll(w.now + 3*time.Minute)
	lost("their owner was killed and started again")
	for _, h := range w.hosts {
		h.restart(2 * time.Second)
		w.runAll(w.now + time.Second)
	}
	w.runAll(w.now + 3*time.Minute)
	lost("the daemons of their hosts were killed and started again")
}

// runAll lets time pass even if a property does not hold.
func (w *world) runAll(until time.Duration) {
	for w.next(until) {
	}
	w.now = max(w.now, until)
}

// TestTaskOverAQuotaAtManyHostsStartsOnceItMay has one task more than its user may have, at 17 and at 100 hosts that
// all decline it.
func TestTaskOverAQuotaAtManyHostsStartsOnceItMay(t *testing.T) {
	for _, n := range []int{17, 100} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			limits := resources.Limits{PerUser: contract.Limit{contract.LimitTasks: 1}}
			w, o := scene(t, n, hostSpec{cpus: 4, limits: limits}, options{standing: 128})
			for range n {
				w.newWork(o, "ada", cpus(1), endless).submitAt(time.Second)
			}
			more := w.newWork(o, "ada", cpus(1), time.Minute)
			more.submitAt(5 * time.Minute)
			w.start()
			if !w.runAny(5*time.Minute, func() bool { return w.stats.jobs == n }) {
				t.Fatalf("%d tasks run, want %d", w.stats.jobs, n)
			}
			w.runAll(5 * time.Minute)
			before := w.stats.offers
			w.runAll(w.now + 10*time.Second)
			first := w.stats.offers - before
			w.runAll(w.now + 10*time.Minute)
			later := w.stats.offers - before - first
			if first > 2*n || later > 2*n {
				t.Errorf("one task over its quota was offered %d times to %d hosts within 10 s, and %d times in the next ten minutes, want at most %v and at most %v", first, n, later, 2*n, 2*n)
			}
			if w.runAll(w.now); more.starts > 0 {
				t.Errorf("the task runs although its user is over the quota")
			}
			freed := w.works[0].tries[0]
			freed.kill(byStop, time.Second, "the user ends it")
			if asked := w.now; !w.runAny(w.now+time.Minute, func() bool { return more.starts > 0 }) {
				t.Errorf("the user may have more since %v, but a minute later the task does not run", asked)
			}
		})
	}
}

// runAny is runUntil even if a property does not hold.
func (w *world) runAny(most time.Duration, so func() bool) bool {
	for !so() && w.now < most {
		w.runAll(min(w.now+time.Second, most))
	}
	return so()
}

// TestManyTasksOverAQuotaCostFewOffers has 20,000 tasks of a user who may have four at a time on each of ten hosts with
// capacity for many more.
func TestManyTasksOverAQuotaCostFewOffers(t *testing.T) {
	limits := resources.Limits{PerUser: contract.Limit{contract.LimitTasks: 4}}
	w, o := scene(t, 10, hostSpec{cpus: 64, limits: limits}, options{sampling: time.Hour, keepEnded: 100, keepWhole: 16})
	for i := range 20_000 {
		w.newWork(o, "ada", cpus(1), 30*time.Second).submitAt(time.Second + time.Duration(i)*time.Millisecond)
	}
	w.start()
	w.runAll(2 * time.Minute)
	offers, ended := w.stats.offers, w.stats.ended
	w.runAll(w.now + 10*time.Minute)
	offers, ended = w.stats.offers-offers, w.stats.ended-ended
	if ended < 500 {
		t.Errorf("only %d of about 800 tasks ended in ten minutes, want at least 500", ended)
	}
	if offers > 4*ended+600 {
		t.Errorf("%d offers for %d ends of tasks in ten minutes: %.1f a second, want at most %v", offers, ended, float64(offers)/600, 4*ended+600)
	}
	waiting := len(w.works)
	for name, n := range sizesOf(o.core) {
		if n > 4*waiting {
			t.Errorf("%d entries in %s for %d waiting jobs, want at most %v", n, name, waiting, 4*waiting)
		}
	}
}

// TestOnlyHostForAJobIsFoundAmongMany has 600 hosts, of which 512 have a session and are full. Only one host that a
// search finds can run the job.
func TestOnlyHostForAJobIsFoundAmongMany(t *testing.T) {
	w, o := scene(t, 599, hostSpec{cpus: 2}, options{sampling: time.Minute})
	last := w.addHost(hostSpec{cpus: 2, gpus: "1xH100", labels: map[string]string{"only": "here"}})
	for i := range 1100 {
		a := w.newWork(o, "ada", cpus(1), endless)
		a.spec.Exclude = []string{last.cfg.Profile.Name}
		a.submitAt(time.Second + time.Duration(i)*10*time.Millisecond)
	}
	j := w.newWork(o, "bob", gpus(1), time.Minute)
	j.label = [2]string{"only", "here"}
	j.spec.Constraint = "only=here"
	j.submitAt(15 * time.Minute)
	w.start()
	w.runAll(15 * time.Minute)
	sessions := 0
	for _, l := range o.order {
		if l.open {
			sessions++
		}
	}
	t.Logf("%d tasks run, %d sessions", w.stats.jobs, sessions)
	if o.links[last.peer].open {
		t.Logf("the last host already has a session")
	}
	if !w.runAny(w.now+2*time.Minute, func() bool { return j.starts > 0 }) {
		t.Errorf("the job that only the last host can run: accepted %v, %s, not started after 2 minutes", j.accepted, j.state)
	}
}
