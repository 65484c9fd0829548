package sim

// Jobs that have waited for too long go first.

import (
	"fmt"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/internal/sim/load"
	"github.com/musterhq/muster/internal/sim/record"
	"github.com/musterhq/muster/job"
)

// There is a never-ending stream of urgent jobs, more than the hosts can run. Jobs with the lowest priority, one of
// them a gang, would wait until the last of those has ended. With a longest wait they start soon after it, the oldest
// first, and are not preempted then, though they are preemptible.
func TestOverdueJobsGoFirst(t *testing.T) {
	const wait, long, urgent = 4 * time.Hour, 3 * time.Hour, 300
	for _, order := range []contract.OrderBy{contract.ByAge, contract.ByAttained, contract.ByRemaining} {
		for _, most := range []time.Duration{0, wait} {
			t.Run(fmt.Sprintf("%s/%s", order, most), func(t *testing.T) {
				var jobs []load.Job
				for i := range 3 {
					x := jobOf(i, 8, time.Minute+time.Duration(i)*time.Second, long)
					if x.Name, x.Spec.Priority = fmt.Sprint("low-", i), 0; i == 2 {
						x.Spec.Nodes = 2
					}
					jobs = append(jobs, x)
				}
				for i := range urgent {
					x := jobOf(i, 8, time.Duration(i)*4*time.Minute, 9*time.Minute)
					x.Spec.Priority = 90
					jobs = append(jobs, x)
				}
				for i := range jobs {
					jobs[i].User = "ann"
					jobs[i].Spec.Preemptible, jobs[i].Spec.TimeLimit = true, job.Duration(jobs[i].Runs+2*time.Minute)
					if i < 3 { // longer than the wait, so that none goes before the urgent ones for having waited as long as it has left
						jobs[i].Spec.TimeLimit = job.Duration(wait + long)
					}
				}
				r, log := runs(t, Config{
					Load: load.Load{Machines: machinesOf(2), Jobs: jobs}, Queueing: Queueing{Order: order, MaxWait: most}, Restart: time.Minute,
				})
				if r.Finished != len(jobs) {
					t.Fatalf("%d jobs have finished, want %d", r.Finished, len(jobs))
				}
				for _, x := range log {
					late := x.At - jobs[x.Job].Submit
					switch {
					case x.Job >= 3:
					case most == 0 && x.Kind == record.Finish && late < 2*wait+2*long:
						t.Errorf("%s ended after %s, though nothing puts it first", jobs[x.Job].Name, late)
					case most > 0 && x.Kind == record.Preempt && late > wait:
						t.Errorf("%s was preempted after %s, when it was overdue", jobs[x.Job].Name, late)
					case most > 0 && x.Kind == record.Finish && late > wait+3*long:
						t.Errorf("%s ended after %s, want soon after the longest wait", jobs[x.Job].Name, late)
					}
				}
			})
		}
	}
}

// Long jobs with a high priority hold both hosts for days. With a longest wait, short jobs with the lowest priority,
// including a gang, go before them in the order of what is left once they have waited for long enough, and the long
// ones go on soon after. Otherwise the short ones wait for their end.
func TestShortJobsThatWaitedLongGoBeforeHigherPriorities(t *testing.T) {
	const wait, long = 200 * time.Hour, 50 * time.Hour
	for _, order := range []contract.OrderBy{contract.ByAge, contract.ByAttained, contract.ByRemaining} {
		for _, most := range []time.Duration{0, wait} {
			t.Run(fmt.Sprintf("%s/%s", order, most), func(t *testing.T) {
				var jobs []load.Job
				for i := range 4 {
					x := jobOf(i, 8, time.Duration(i)*time.Second, long)
					x.Spec.Priority = 90
					jobs = append(jobs, x)
				}
				for i := range 3 {
					x := jobOf(4+i, 8, 10*time.Hour, time.Hour)
					if x.Spec.Priority = 0; i == 2 {
						x.Spec.Nodes = 2
					}
					jobs = append(jobs, x)
				}
				for i := range jobs {
					jobs[i].Spec.Preemptible, jobs[i].Spec.TimeLimit = true, job.Duration(jobs[i].Runs+2*time.Minute)
				}
				r, log := runs(t, Config{Load: load.Load{Machines: machinesOf(2), Jobs: jobs}, Queueing: Queueing{Order: order, MaxWait: most}, Restart: time.Minute})
				if r.Finished != len(jobs) {
					t.Fatalf("%d jobs have finished, want %d", r.Finished, len(jobs))
				}
				for _, x := range log {
					waited, early := x.At-jobs[x.Job].Submit, order == contract.ByRemaining && most > 0
					switch {
					case x.Kind == record.Start && x.Job >= 4 && waited < time.Hour:
						t.Errorf("job %d started after %s, want at least an hour", x.Job, waited)
					case x.Kind == record.Finish && x.Job >= 4 && (waited < 5*time.Hour) != early:
						t.Errorf("job %d ended after %s, want within 5 hours exactly in this order", x.Job, waited)
					case x.Kind == record.Finish && x.Job < 4 && waited > 2*long+3*time.Hour:
						t.Errorf("long job %d ended after %s, want little later than alone", x.Job, waited)
					}
				}
			})
		}
	}
}

// One user has hundreds of overdue jobs. They do not all go before the job of another user.
func TestOverdueJobsOfOneUserDoNotPassAllOthers(t *testing.T) {
	const wait = 64 * time.Hour
	var jobs []load.Job
	for i := range 300 {
		x := jobOf(i, 8, 0, time.Hour)
		x.User, x.Spec.Priority = "ann", 10
		jobs = append(jobs, x)
	}
	late := jobOf(300, 8, 100*time.Hour+time.Minute, time.Hour)
	late.User, late.Spec.Priority = "bob", 90
	jobs = append(jobs, late)
	_, log := runs(t, Config{Load: load.Load{Machines: machinesOf(2), Jobs: jobs}, Queueing: Queueing{MaxWait: wait}})
	for _, x := range log {
		if wait := x.At - late.Submit; x.Job == 300 && x.Kind == record.Start && wait > 2*time.Hour {
			t.Errorf("the job of another user has waited for %s, want at most 2 h", wait)
		}
	}
}

// The time in which a job waits for another job, for its begin time or for its user does not count.
func TestOnlyWaitsForCapacityMakeAJobOverdue(t *testing.T) {
	const wait = 4 * time.Hour
	begin := time.Unix(firstDay, 0).Add(10 * time.Hour).UTC()
	for name, change := range map[string]func(*load.Job){
		"begin":      func(j *load.Job) { j.Spec.Begin = &begin },
		"dependency": func(j *load.Job) { j.Spec.Dependency = []string{"afterok:first"} },
	} {
		t.Run(name, func(t *testing.T) {
			first := jobOf(0, 1, 0, 10*time.Hour)
			first.Name = "first"
			low := jobOf(1, 8, 0, time.Hour)
			low.Spec.Priority = 0
			change(&low)
			jobs := []load.Job{first, low}
			for i := range 300 {
				x := jobOf(i, 8, time.Duration(i)*4*time.Minute, 9*time.Minute)
				x.Spec.Priority = 90
				jobs = append(jobs, x)
			}
			_, log := runs(t, Config{Load: load.Load{Machines: machinesOf(2), Jobs: jobs}, Queueing: Queueing{MaxWait: wait}})
			for _, x := range log {
				if x.Job == 1 && x.Kind == record.Start && (x.At < 14*time.Hour || x.At > 16*time.Hour) {
					t.Errorf("the job started at %s, want 14 to 16 h", x.At)
				}
			}
		})
	}
}
