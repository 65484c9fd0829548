package sim

// Gangs that cannot start, and single tasks that could.

import (
	"testing"
	"time"

	"github.com/musterhq/muster/internal/sim/load"
	"github.com/musterhq/muster/internal/sim/record"
)

// One of two hosts is busy for days. Twenty gangs of both hosts wait, and so take turns with the other host. A job that
// asks for that host alone starts within half an hour nevertheless, and when the busy host is free all gangs run.
func TestGangsInVainLetOthersRun(t *testing.T) {
	const busy = 48 * time.Hour
	jobs := []load.Job{jobOf(0, 8, 0, busy)}
	for i := range 20 {
		x := jobOf(1+i, 8, time.Minute, time.Minute)
		x.Spec.Nodes = 2
		jobs = append(jobs, x)
	}
	single := len(jobs)
	jobs = append(jobs, jobOf(single, 8, time.Hour, time.Minute))
	for i := range jobs {
		jobs[i].User = "ann"
	}
	r, log := runs(t, Config{Load: load.Load{Machines: machinesOf(2), Jobs: jobs}})
	if r.Finished != len(jobs) {
		t.Fatalf("%d of %d jobs have finished", r.Finished, len(jobs))
	}
	for _, x := range log {
		if x.Kind != record.Start {
			continue
		}
		if late := x.At - jobs[x.Job].Submit; x.Job == single && late > 30*time.Minute {
			t.Errorf("the single job started after %s", late)
		}
		if late := x.At - busy; x.Job > 0 && x.Job != single && late > 2*time.Hour {
			t.Errorf("gang %d started %s after the busy host was free", x.Job, late)
		}
	}
}
