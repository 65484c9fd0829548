package sim

// The orders of tasks with one priority: by what they have had, and by what they have left.

import (
	"fmt"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/internal/sim/load"
	"github.com/musterhq/muster/internal/sim/record"
	"github.com/musterhq/muster/job"
)

// Long jobs, one of them a gang, compete with a never-ending stream of short ones. In each order all of them end, the
// long ones within bounded time, and the number of preemptions is bounded.
func TestLongJobsEndBesideManyShortOnes(t *testing.T) {
	const long, shorts = 6 * time.Hour, 2800
	for _, order := range []contract.OrderBy{contract.ByAge, contract.ByAttained, contract.ByRemaining} {
		t.Run(order.String(), func(t *testing.T) {
			most := 4 * long
			if order == contract.ByRemaining { // a task goes first when it has waited for 16 times what it has left
				most = 20 * long
			}
			var jobs []load.Job
			for i := range 3 {
				x := jobOf(i, 8, 0, long)
				if x.Name = fmt.Sprint("long-", i); i == 2 {
					x.Spec.Nodes = 2
				}
				jobs = append(jobs, x)
			}
			for i := range shorts {
				jobs = append(jobs, jobOf(i, 4, time.Minute+time.Duration(i)*3*time.Minute, 9*time.Minute))
			}
			for i := range jobs {
				jobs[i].Spec.Preemptible, jobs[i].Spec.TimeLimit = true, job.Duration(jobs[i].Runs+2*time.Minute)
			}
			r, log := runs(t, Config{Load: load.Load{Machines: machinesOf(3), Jobs: jobs}, Queueing: Queueing{Order: order}, Restart: time.Minute})
			if r.Finished != len(jobs) {
				t.Fatalf("%d jobs have finished, want %d", r.Finished, len(jobs))
			}
			ended, wait := map[int]int{}, time.Duration(0)
			for _, x := range log {
				switch {
				case x.Kind == record.Preempt:
					ended[x.Job]++
				case x.Kind == record.Finish && x.Job >= 3:
					wait += x.At - jobs[x.Job].Submit - jobs[x.Job].Runs
				case x.Kind == record.Finish:
					if late := x.At - long; late > most {
						t.Errorf("%s ended %s late, want at most %v", jobs[x.Job].Name, late, most)
					}
				}
			}
			for i, n := range ended {
				if order == contract.ByAge || n > 40 { // 10 minutes for each at least, in at most 24 hours
					t.Errorf("%s was preempted %d times, want at most 40, and never by age", jobs[i].Name, n)
				}
			}
			t.Logf("short jobs wait for %s on average; ended: %v", wait/shorts, ended)
		})
	}
}

// In both orders a short job does not wait for the end of a long preemptible job of its priority. It does wait for one
// that is not preemptible.
func TestShortJobPreemptsALongOne(t *testing.T) {
	for _, order := range []contract.OrderBy{contract.ByAge, contract.ByAttained, contract.ByRemaining} {
		for _, may := range []bool{true, false} {
			jobs := []load.Job{jobOf(0, 8, 0, 5*time.Hour), jobOf(1, 8, time.Hour, time.Minute)}
			for i := range jobs {
				jobs[i].Spec.Preemptible, jobs[i].Spec.TimeLimit = may, job.Duration(jobs[i].Runs+2*time.Minute)
			}
			r, log := runs(t, Config{Load: load.Load{Machines: machinesOf(1), Jobs: jobs}, Queueing: Queueing{Order: order}, Restart: time.Minute})
			want := 0
			if may && order != contract.ByAge {
				want = 1
			}
			if r.Preempted != want || r.Finished != 2 {
				t.Errorf("%s, preemptible %t: %d preempted, %d finished: %v, want %v and 2", order, may, r.Preempted, r.Finished, log, want)
			}
		}
	}
}
