package scheduler

// Limits of users over the whole cluster: which job of one daemon goes first, and how far other daemons are believed.

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler/step"
)

// waits returns the reason of the only waiting job with this priority at an owner.
func (o *ally) waits(t *testing.T, priority int) job.Reason {
	t.Helper()
	for _, l := range o.core.View().Page(job.Query{Limit: 100}) {
		if l.Job.State() == job.Pending && l.Job.Spec.Priority == priority {
			return l.Job.Reason
		}
	}
	t.Fatalf("no job of priority %d waits", priority)
	return job.Reason{}
}

// runs returns the GPUs of the running tasks of an owner.
func (o *ally) runs() string {
	all := []int{}
	for _, r := range o.running {
		all = append(all, r.gpus)
	}
	return fmt.Sprint(all)
}

// A large job with a higher priority gets what ends, although smaller jobs with a lower priority would fit beside what
// runs: waiting ones, later ones, and jobs of another daemon.
func TestClusterLimitIsKeptForTheHigherPriority(t *testing.T) {
	as := newAllies(t, 2, 4, 100)
	o := as.owners[0]
	for range 6 {
		as.submit(0, "amy", 1, 10)
	}
	as.settle(time.Second)
	as.want(4, 0)
	as.submit(0, "amy", 3, 90)
	as.submit(1, "amy", 1, 20)
	as.settle(time.Minute)
	as.finish(o, 0)
	as.settle(time.Minute)
	as.submit(0, "amy", 1, 50)
	as.settle(time.Minute)
	as.want(3, 0)
	const why = "goes first, by the limits over the cluster"
	if r := o.waits(t, 50); r.Word != job.ReasonQuota || !strings.Contains(r.Detail, " of user amy has priority 90 and "+why) {
		t.Errorf("the reason: %s, want Word %v and Detail %v in it", r, job.ReasonQuota, " of user amy has priority 90 and "+why)
	}
	s := job.DefaultSpec()
	s.Command, s.Resources.GPUs = []string{"true"}, 1
	if x, err := o.core.View().Offers("amy", false, s); err != nil || len(x.Now) > 0 || !strings.Contains(x.Reason.Detail, why) {
		t.Errorf("a dry run: %+v, %v, want no error, no Now and Reason.Detail %v in it", x, err, why)
	}
	as.submit(0, "amy", 0, 10) // a job without GPUs, which takes nothing of the limit
	as.settle(time.Minute)
	if got := o.runs(); got != "[1 1 1 0]" {
		t.Errorf(`%s run, want "[1 1 1 0]"`, got)
	}
	as.finish(o, 0)
	as.settle(time.Minute)
	as.want(2, 0)
	as.finish(o, 0)
	as.settle(time.Minute)
	as.want(4, 0)
	if got := o.runs(); got != "[1 0 3]" {
		t.Errorf(`%s run, want "[1 0 3]"`, got)
	}
	as.finish(o, 0)
	as.settle(time.Minute)
	as.want(4, 0) // then the job of priority 50
}

// What ends at a daemon with waiting tasks of the user goes within a second to a task with a higher priority at another
// daemon, even if that task needs several ends.
func TestClusterLimitMovesWithinASecond(t *testing.T) {
	as := newAllies(t, 2, 4, 100)
	for range 8 {
		as.submit(1, "amy", 1, 50)
	}
	as.settle(time.Second)
	as.submit(0, "amy", 3, 90)
	as.settle(time.Minute)
	for left := 3; left >= 1; left-- {
		as.want(0, left+1)
		as.finish(as.owners[1], 0)
		as.settle(time.Second)
	}
	as.want(3, 1)
}

// Nothing is kept for a job that no host can run, or that the limit no longer allows.
func TestClusterLimitIsNotKeptForJobsThatCannotRun(t *testing.T) {
	as := newAllies(t, 1, 4, 100)
	o := as.owners[0]
	for range 6 {
		as.submit(0, "amy", 1, 10)
	}
	as.settle(time.Second)
	as.want(4)
	other := contract.Profile{Name: "other", Store: "s", CPUs: 8, Drivers: []string{"exec"}, Worker: true}
	for i := range 4 {
		other.GPUs = append(other.GPUs, gpu.Device{UUID: fmt.Sprint("a", i), Class: "a100-80gb", Memory: 80e9})
	}
	as.step(o, step.SessionUp{Peer: "other"}, step.FromWorker{Peer: "other", Msg: contract.Hello{Profile: other}})
	as.submit(0, "amy", 3, 90, func(s *job.Spec) { s.Resources.GPUModel = "a100" })
	as.step(o, step.SessionDown{Peer: "other"})
	as.submit(0, "amy", 3, 80)
	as.settle(time.Minute)
	o.core.turn.Config.Limits = &contract.UserLimits{PerUser: contract.Limit{contract.LimitClusterGPUs: 2}}
	o.core.plan.allotments.reset()
	as.settle(time.Minute)
	for want := 3; want >= 2; want-- {
		as.finish(o, 0)
		as.settle(time.Minute)
		as.want(want)
	}
	as.finish(o, 0)
	as.settle(time.Minute)
	as.want(2)
	if r := o.waits(t, 90); r.Word == job.ReasonQuota || r.Word == job.ReasonPriority {
		t.Errorf("its only host is silent: %s, want another reason than the quota or the priority", r)
	}
	if r := o.waits(t, 80); r.Word != job.ReasonNoMatch || !strings.Contains(r.Detail, "at most 2 gpus in the cluster") {
		t.Errorf(`the limit is below it: %s, want Word %v and Detail "at most 2 gpus in the cluster" in it`, r, job.ReasonNoMatch)
	}
}

// A user who holds more GPUs than the limit, because it was lowered, may start what asks for none.
func TestUserOverTheLimitOfGPUsStartsTasksWithoutGPUs(t *testing.T) {
	as := newAllies(t, 1, 4, 100)
	o := as.owners[0]
	as.submit(0, "amy", 4, 50)
	as.settle(time.Second)
	o.core.turn.Config.Limits = &contract.UserLimits{PerUser: contract.Limit{contract.LimitClusterGPUs: 2}}
	o.core.plan.allotments.reset()
	as.submit(0, "amy", 0, 50)
	as.settle(time.Second)
	if got := o.runs(); got != "[4 0]" {
		t.Errorf(`%s run, want "[4 0]"`, got)
	}
}

// If each job of a user has another project, every job is considered, however many there are.
func TestEveryShapeUnderTheClusterLimitIsConsidered(t *testing.T) {
	as := newAllies(t, 1, 2, 100)
	o := as.owners[0]
	const shapes = 2000
	for i := range shapes {
		as.submit(0, "amy", 1, 50, func(s *job.Spec) { s.Project = fmt.Sprint("p", i) })
	}
	as.settle(time.Second)
	for range 50 {
		as.finish(o, 0)
		as.settle(time.Second)
		as.want(2)
	}
	if c := o.core.View().Counts(); c[job.Pending] != shapes-52 || c[job.Succeeded] != 50 {
		t.Errorf("%v, want [job.Pending] %v and [job.Succeeded] 50", c, shapes-52)
	}
}

// A daemon that reports more and more groups is believed about a few only, so that its figures cannot overflow a sum.
func TestReportsOfOtherDaemonsAreBounded(t *testing.T) {
	ts := newHeardAllotments()
	huge := contract.Held{Tasks: 1 << 60, CPUs: 1 << 60, Milli: 1 << 60, Memory: 1 << 60}
	for g := range 1000 {
		ts.hear("liar", contract.Allotment{User: "amy", Group: job.Group(g), Held: huge, Priority: 100, Asks: true}, storyStart)
	}
	for u := range 2 * maxHeardAllotments {
		ts.hear("liar", contract.Allotment{User: fmt.Sprint("u", u), Group: 1, Held: huge}, storyStart)
	}
	if n := len(ts.of["amy"]); n != maxGroups {
		t.Errorf("%d groups, want %v", n, maxGroups)
	}
	if n := len(ts.of); n > maxHeardAllotments || ts.count["liar"] != maxHeardAllotments {
		t.Errorf("%d users, %d sayings, want at most %v and %v", n, ts.count["liar"], maxHeardAllotments, maxHeardAllotments)
	}
	sum := contract.Held{}
	for _, o := range ts.of["amy"] {
		sum = sum.Plus(o.Wants)
	}
	if sum.Milli < gpu.Whole || sum.Memory < 0 {
		t.Errorf("%+v, want Milli at least %v and Memory at least 0", sum, gpu.Whole)
	}
}
