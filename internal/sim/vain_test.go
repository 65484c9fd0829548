package sim

// Gangs that cannot start, and single tasks that could.

import (
	"testing"
	"time"

	"github.com/musterhq/muster/internal/sim/load"
	"github.com/musterhq/muster/internal/sim/record"
)

// One of two hosts is busy for days. Twenty gangs that need both hosts wait, and so take turns with the other host. A
// job that needs only that host still starts within half an hour, and when the busy host is free all gangs run.
func TestGangsThatCannotStartLetOthersRun(t *testing.T) {
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
		t.Fatalf("%d jobs have finished, want %d", r.Finished, len(jobs))
	}
	for _, x := range log {
		if x.Kind != record.Start {
			continue
		}
		if late := x.At - jobs[x.Job].Submit; x.Job == single && late > 30*time.Minute {
			t.Errorf("the single job started after %s, want at most 30 minutes", late)
		}
		if late := x.At - busy; x.Job > 0 && x.Job != single && late > 2*time.Hour {
			t.Errorf("gang %d started %s after the busy host was free, want at most 2 h", x.Job, late)
		}
	}
}
