package sim

// More scenes: tasks that bring hosts down, wall clocks, a full cluster, weeks, and what is left at the end.

import (
	"slices"
	"testing"
	"time"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker"
)

// TestTaskThatBringsHostsDownIsHeld checks that a task that brings its host down each time is not placed on one host
// after the other for ever.
func TestTaskThatBringsHostsDownIsHeld(t *testing.T) {
	w, o := scene(t, 6, hostSpec{cpus: 4}, options{})
	j := w.newWork(o, "ada", cpus(1), 100*time.Millisecond)
	j.poison, j.poisonFor = true, 200*time.Millisecond
	j.submitAt(time.Second)
	others := 0
	for i := range 60 {
		x := w.newWork(o, "bob", cpus(1), time.Second)
		x.submitAt(time.Duration(i) * time.Minute)
	}
	w.start()
	w.runAll(time.Hour)
	hosts := map[*host]bool{}
	for _, p := range j.tries {
		hosts[p.h] = true
	}
	for _, x := range w.works {
		if x != j && x.state == job.Succeeded {
			others++
		}
	}
	if j.starts > 12 {
		t.Errorf("the task took hosts down %d times within an hour (%d different ones), want at most 12", j.starts, len(hosts))
	}
	if j.state != job.Held || j.reason.Word == "" {
		t.Errorf("after %d hosts the job is %s (%s), want HELD with a reason", len(hosts), j.state, j.reason)
	}
	if len(hosts) < 3 {
		t.Errorf("it was given to %d hosts, want 3 before it is held", len(hosts))
	}
	if others < 55 {
		t.Errorf("only %d of 60 jobs of another user succeeded, want at least 55", others)
	}
}

// TestJobsKeepTheirOrderWhenTheWallClockIsSet checks that waiting jobs keep their order while the owner's wall clock is
// set back by an hour, and later forward by two.
func TestJobsKeepTheirOrderWhenTheWallClockIsSet(t *testing.T) {
	w, o := scene(t, 2, hostSpec{gpus: "1xH100", cpus: 4}, options{})
	for i := range 60 {
		w.newWork(o, "ada", gpus(1), 40*time.Second).submitAt(time.Second + time.Duration(i)*15*time.Second)
	}
	w.start()
	w.at(5*time.Minute, func() { o.wallOff = -time.Hour })
	w.at(12*time.Minute, func() { o.wallOff = time.Hour })
	w.runAll(40 * time.Minute)
	started := slices.DeleteFunc(slices.Clone(w.works), func(j *work) bool { return j.starts == 0 })
	if len(started) < len(w.works) {
		t.Errorf("%d of %d jobs started, want all", len(started), len(w.works))
	}
	slices.SortFunc(started, func(a, b *work) int { return int(a.startAt - b.startAt) })
	for i, j := range started {
		if d := j.index - i; d > 2 || d < -2 { // two hosts: neighbours may change places
			t.Errorf("job %d was the %dth to start, want at most 2 places away", j.index, i)
			break
		}
	}
	for _, j := range w.works {
		if j.attempt > 1 {
			t.Errorf("job %d took %d attempts, want at most 1", j.index, j.attempt)
			break
		}
	}
}

// TestBeginTimeFollowsTheWallClock checks that a job begins when its owner's wall clock says so, even if the clock is set.
// If the clock is set back after the begin time, nothing changes.
func TestBeginTimeFollowsTheWallClock(t *testing.T) {
	w, o := scene(t, 1, hostSpec{cpus: 4}, options{})
	at := func(d time.Duration) *time.Time {
		t := time.Unix(firstDay, 0).Add(d).UTC()
		return &t
	}
	const late = 15 * time.Second
	var all []*work
	for _, begin := range []time.Duration{-time.Hour, 20 * time.Minute, time.Hour, 2 * time.Hour, 200 * time.Minute} {
		j := w.newWork(o, "ada", cpus(1), time.Second)
		j.spec.Begin = at(begin)
		j.submitAt(time.Second)
		all = append(all, j)
	}
	full := w.newWork(o, "ada", cpus(4), 10*time.Minute) // the clock is set back while it runs
	full.submitAt(115 * time.Minute)
	w.start()
	w.at(30*time.Minute, func() { o.wallOff = 20 * time.Minute })
	w.at(100*time.Minute, func() { o.wallOff = 0 })
	w.at(121*time.Minute, func() { o.wallOff = -time.Hour })
	w.at(150*time.Minute, func() { o.restart(time.Second) })
	w.runAll(5 * time.Hour)
	for i, want := range []time.Duration{time.Second, 20 * time.Minute, 40 * time.Minute, 125 * time.Minute, 260 * time.Minute} {
		if got := all[i].startAt; got < want || got > want+late {
			t.Errorf("the job that begins at %v started at %v, want %v", all[i].spec.Begin, got, want)
		}
	}
}

// TestExclusiveTaskStartsAmongSmallOnes checks that an exclusive task starts soon after the others' first turn,
// although small tasks of two owners keep arriving, and that these go on afterwards.
func TestExclusiveTaskStartsAmongSmallOnes(t *testing.T) {
	w, o := scene(t, 2, hostSpec{gpus: "2xH100", cpus: 8}, options{})
	other := w.addOwner(nil)
	for i := range 720 {
		w.newWork([]*owner{o, other}[i%2], "ada", cpus(2), 45*time.Second).submitAt(time.Second + time.Duration(i)*5*time.Second)
	}
	alone := w.newWork(other, "bob", cpus(1), 2*time.Minute)
	alone.spec.Exclusive = true
	alone.submitAt(10 * time.Minute)
	w.start()
	w.runAll(90 * time.Minute)
	if wait := alone.startAt - alone.acceptAt; alone.starts != 1 || wait > worker.DefaultSetAside+2*time.Minute {
		t.Errorf("the exclusive task started %d times, and waited %v for tasks of 45 s, want 1 and at most %v", alone.starts, wait, worker.DefaultSetAside+2*time.Minute)
	}
	for _, j := range w.works {
		if j.state != job.Succeeded {
			t.Fatalf("%s is %s: %s, want %v", j, j.state, j.reason, job.Succeeded)
		}
	}
}

// TestFullClusterRunsAllJobs runs 90 hosts, three owners, and thousands of jobs of mixed sizes. The longest waits are in
// the log.
func TestFullClusterRunsAllJobs(t *testing.T) {
	w, o := scene(t, 90, hostSpec{gpus: "8xH100", cpus: 64}, options{standing: 128})
	owners := []*owner{o, w.addOwner(nil), w.addOwner(nil)}
	r := w.chance
	users := []string{"ada", "bob", "cyd", "dan", "eve"}
	n, within := 3000, 45*time.Minute
	if testing.Short() { // under the race detector, at the same rate
		n, within = 500, 450*time.Second
	}
	for range n {
		need := gpus([]int{1, 1, 1, 1, 2, 2, 4, 8}[r.IntN(8)])
		j := w.newWork(owners[r.IntN(3)], users[r.IntN(5)], need, logNormal(r, 4*time.Minute, 1, 5*time.Second, time.Hour))
		if r.IntN(10) == 0 {
			j.spec.Priority = 30 + r.IntN(50)
		}
		j.submitAt(between(r, 0, within))
	}
	w.start()
	w.runAll(within + 15*time.Minute)
	w.heal()
	if !w.runAny(4*time.Hour, w.done) {
		w.failUnsettled()
	}
	t.Logf("90 hosts with 8 GPUs each, %d jobs\n%s", len(w.works), w.stats.String())
	jobs := float64(len(w.works))
	if steps := float64(w.stats.steps) / jobs; steps > 80 {
		t.Errorf("P6: %.1f steps of a scheduler for a job, want at most 80", steps)
	}
	w.checkOffers()
}

// TestMemoryOfCoresDoesNotGrow checks that cores without jobs hold as much after twice as many jobs (P3).
func TestMemoryOfCoresDoesNotGrow(t *testing.T) {
	w, o := scene(t, 8, hostSpec{gpus: "2xH100", cpus: 8, real: true}, options{keepEnded: 50, keepWhole: 8})
	r := w.chance
	users := []string{"ada", "bob", "cyd"}
	wave := func(from time.Duration) {
		for range 600 {
			j := w.newWork(o, users[r.IntN(3)], gpus(1+r.IntN(2)), logNormal(r, 20*time.Second, 1, time.Second, 5*time.Minute))
			if r.IntN(10) == 0 {
				w.at(from+between(r, 0, time.Hour), j.cancel)
			}
			j.submitAt(from + between(r, 0, 30*time.Minute))
		}
		for _, h := range w.hosts {
			w.at(from+between(r, 0, 40*time.Minute), func() { h.restart(3 * time.Second) })
		}
		for _, l := range o.order {
			w.at(from+between(r, 0, 40*time.Minute), func() { l.sever(w.cfg.Costs.Notice, 4*time.Second) })
		}
		w.at(from+20*time.Minute, func() { o.restart(2 * time.Second) })
	}
	measure := func() (sizes, sizes) {
		all := sizes{}
		for _, h := range w.hosts {
			for name, n := range sizesOf(h.core) {
				all[name] += n
			}
		}
		return sizesOf(o.core), all
	}
	wave(0)
	w.start()
	w.run(90 * time.Minute)
	owner1, hosts1 := measure()
	wave(w.now)
	w.run(w.now + 90*time.Minute)
	if len(w.defects) > 0 {
		return
	}
	if !w.done() {
		w.failUnsettled()
		return
	}
	owner2, hosts2 := measure()
	t.Logf("the owner's core: %s", owner2.largest(8))
	t.Logf("the hosts' cores: %s", hosts2.largest(8))
	for name, n := range owner2 {
		if n > owner1[name]+owner1[name]/4+32 {
			t.Errorf("P3: %s held %d after %d jobs and %d after %d, want at most %v", name, owner1[name], 600, n, 1200, owner1[name]+owner1[name]/4+32)
		}
	}
	for name, n := range hosts2 {
		if n > hosts1[name]+hosts1[name]/4+64 {
			t.Errorf("P3: %s held %d after %d jobs and %d after %d, want at most %v", name, hosts1[name], 600, n, 1200, hosts1[name]+hosts1[name]/4+64)
		}
	}
	w.checkSizes()
}

// TestJobsArePurgedAWeekAfterTheirEnd checks that jobs are purged a week after their end, whatever the clocks of the
// hosts that ran them say.
func TestJobsArePurgedAWeekAfterTheirEnd(t *testing.T) {
	w, o := scene(t, 3, hostSpec{cpus: 4}, options{sampling: time.Hour})
	w.hosts[1].wallOff = 400 * 24 * time.Hour  // a year ahead
	w.hosts[2].wallOff = -400 * 24 * time.Hour // a year behind
	const day = 24 * time.Hour
	for i := range 24 * 9 {
		w.newWork(o, "ada", cpus(1), time.Minute).submitAt(time.Duration(i) * time.Hour)
	}
	for i := range 9 { // some must run at each host
		for _, h := range w.hosts {
			j := w.newWork(o, "bob", cpus(1), time.Minute)
			j.spec.NodeList = []string{h.cfg.Profile.Name}
			j.submitAt(time.Duration(i)*day + time.Minute)
		}
	}
	w.start()
	w.at(2*day, func() { o.wallOff = time.Hour })
	w.at(3*day, func() { o.wallOff = -time.Hour })
	early := func(when string) {
		for _, j := range w.works {
			if _, kept := o.rows[j.id]; j.endAt > 0 && !kept && w.now-j.endAt < 6*day {
				t.Errorf("%s: %s is purged %v after its end, want at least 6 days", when, j, w.now-j.endAt)
				return
			}
		}
	}
	w.run(6*day + 12*time.Hour)
	early("after six days")
	w.run(10 * day)
	early("after ten days")
	late := 0
	for _, j := range w.works {
		if _, kept := o.rows[j.id]; kept && w.now-j.endAt > 7*day+6*time.Hour {
			late++
		}
	}
	if late > 0 {
		t.Errorf("%d of %d jobs that ended more than a week ago are not forgotten, want 0", late, len(w.works))
	}
}
