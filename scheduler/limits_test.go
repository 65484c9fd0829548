package scheduler

// Limits that can never be met: at the submission, in a dry run, and for jobs that were accepted before.

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler/backlog"
	"github.com/musterhq/muster/scheduler/step"
)

// limitStory is a story with one host of 8 GPUs under these limits; see userLimits.
func limitStory(t *testing.T, limits string) *story {
	s := newStory(t, step.DefaultConfig().KeepWhole)
	s.do("lead")
	s.do("worker n1 gpus=8 cpus=16 mem=64GiB limits=" + limits)
	return s
}

// A dry run says the same as a submission: no host takes the job, and which limit of which node is the reason.
func TestDryRunNamesTheLimitThatForbidsAJob(t *testing.T) {
	for name, c := range map[string]struct {
		limits string
		need   job.Resources
		want   string
		near   contract.Nearest
	}{
		"gpus":   {"gpus:4", job.Resources{CPUs: 1, GPUs: 5}, "user ada may hold at most 4 gpus there (limits.per_user.gpus), 5 wanted", contract.Nearest{Ever: true, GPUs: 4}},
		"a user": {"gpus:8,ada/gpus:4", job.Resources{CPUs: 1, GPUs: 5}, "(limits.users.ada.gpus), 5 wanted", contract.Nearest{Ever: true, GPUs: 4}},
		"shares": {"gpus:0", job.Resources{CPUs: 1, GPUShare: 0.5}, "at most 0 gpus there (limits.per_user.gpus), 0.5 wanted", contract.Nearest{}},
		"cpus":   {"cpus:2", job.Resources{CPUs: 3}, "at most 2 cpus there (limits.per_user.cpus), 3 wanted", contract.Nearest{Ever: true, CPUs: 2}},
		"memory": {"memory:1073741824", job.Resources{CPUs: 1, Memory: 2 << 30}, "at most 1GiB memory there (limits.per_user.memory), 2GiB wanted", contract.Nearest{Ever: true, Memory: 1 << 30}},
		"tasks":  {"tasks:0", job.Resources{CPUs: 1}, "at most 0 tasks there (limits.per_user.tasks), 1 wanted", contract.Nearest{}},
		"whole":  {"cpus:15", job.Resources{CPUs: 1, Exclusive: true}, "at most 15 cpus there (limits.per_user.cpus), 16 wanted", contract.Nearest{}},
	} {
		t.Run(name, func(t *testing.T) {
			s := limitStory(t, c.limits)
			x := job.DefaultSpec()
			x.Command, x.Resources, x.Exclusive = []string{"true"}, c.need, c.need.Exclusive
			x.Resources.Exclusive = false
			e, err := s.core.View().Offers("ada", false, x)
			if err != nil || len(e.Now)+len(e.Later) > 0 || e.Reason.Word != job.ReasonNoMatch {
				t.Fatalf("%+v, %v, want no error, no hosts and NoMatch", e, err)
			}
			if !strings.Contains(e.Reason.Detail, "limits of user ada: 0 of 1 nodes (n1: ") || !strings.Contains(e.Reason.Detail, c.want) || !strings.Contains(e.Reason.Detail, raisedBy) {
				t.Errorf(`the reason: %s, want "limits of user ada: 0 of 1 nodes (n1: " in it, %v in it and %v in it`, e.Reason.Detail, c.want, raisedBy)
			}
			if e.Nearest != c.near {
				t.Errorf("nearest %+v, want %+v", e.Nearest, c.near)
			}
		})
	}
}

const raisedBy = "ask an operator of a node to raise the limit"

// The daemon allows the priority, and no host does.
func TestDryRunNamesThePriorityThatNoHostAllows(t *testing.T) {
	s := limitStory(t, "priority:50,root/priority:100")
	x := job.DefaultSpec()
	x.Command, x.Priority = []string{"true"}, 90
	e, err := s.core.View().Offers("ada", false, x)
	if err != nil || e.Reason.Word != job.ReasonNoMatch || !strings.Contains(e.Reason.Detail, "priority 90 of user ada is above 50, the highest here (limits.per_user.priority)") {
		t.Errorf(`%+v, %v, want no error, Reason.Word %v and Reason.Detail "priority 90 of user ada is above 50, the highest here (limits.per_user.priority)" in it`, e, err, job.ReasonNoMatch)
	}
	if e, err := s.core.View().Offers(contract.Root, false, x); err != nil || len(e.Now) != 1 {
		t.Errorf("root: %+v, %v, want no error and 1 Now", e, err)
	}
	s.core.hosts.workers["n1"].Profile.Limits = s.core.hosts.workers["n1"].Profile.Limits.ToMember(40)
	x.Priority = 41
	if e, err := s.core.View().Offers("ada", false, x); err != nil || !strings.Contains(e.Reason.Detail, "priority 41 of user ada is above 40, the highest here (limits.per_member.priority or limits.members)") {
		t.Errorf(`what the daemon may offer: %+v, %v, want no error and Reason.Detail "priority 41 of user ada is above 40, the highest here (limits.per_member.priority or limits.members)" in it`, e, err)
	}
	s = limitStory(t, "priority:50,root/priority:100")
	s.do("submit high priority=90 hold=1")
	s.do("release high")
	if out := s.said("show high"); !strings.Contains(out, "NoMatch") || !strings.Contains(out, "limits.per_user.priority") {
		t.Errorf(`a job that was accepted: %s, want "NoMatch" in it and "limits.per_user.priority" in it`, out)
	}
	if out := s.said("submit low priority=50"); !strings.Contains(out, "n1 <- offer") {
		t.Errorf(`one of a priority that the host allows: %s, want "n1 <- offer" in it`, out)
	}
}

// A job larger than all that its user may have waiting is refused for good, without the advice to wait until some jobs
// have started.
func TestJobThatExceedsTheBacklogIsRefusedForGood(t *testing.T) {
	s := limitStory(t, "gpus:8")
	s.core.entries.backlog.SetLimits(&backlog.Limits{PerUser: backlog.Amount{Jobs: 10, Bytes: 1000}, All: backlog.Amount{Jobs: 100, Bytes: 5000}, Users: map[string]backlog.Amount{"bob": {Jobs: 1000, Bytes: 9000}}})
	spec := func(array string, bytes int) job.Spec {
		x := job.DefaultSpec()
		x.Command, x.Array = []string{"true", strings.Repeat("x", bytes)}, array
		return x
	}
	for name, c := range map[string]struct {
		user     string
		operator bool
		spec     job.Spec
		want     string
	}{
		"jobs":               {"ada", false, spec("0-2999", 0), "counts as 34 jobs of user ada, and 10 are the most that may wait (limits.per_user.pending_jobs); split the job"},
		"bytes":              {"ada", false, spec("", 2000), "that may wait of user ada (limits.per_user.pending_bytes); split the job"},
		"what all may have":  {"bob", false, spec("", 6000), "(limits.all.pending_bytes)"},
		"an operator":        {"root", true, spec("", 6000), "(limits.all.pending_bytes)"},
		"an operator's jobs": {"root", true, spec("0-2999", 0), ""},
		"fits":               {"ada", false, spec("0-9", 0), ""},
	} {
		t.Run(name, func(t *testing.T) {
			s.tokens++
			var err error
			for _, r := range s.core.Step(s.now, step.Submit{Token: s.tokens, Submission: job.Submission{User: c.user, Operator: c.operator, Spec: c.spec}}).Reply {
				err = r.Err
			}
			_, dry := s.core.View().Offers(c.user, c.operator, c.spec)
			for _, err := range []error{err, dry} {
				if (err != nil) != (c.want != "") || err != nil && (!errors.Is(err, step.ErrLimit) || !strings.Contains(err.Error(), c.want)) {
					t.Errorf("%v, want %q", err, c.want)
				}
			}
		})
	}
}

// A job with a longer time limit than its user may have is refused, also in a dry run and on hold. So is one that no
// host would run for so long.
func TestJobAboveTheLongestTimeLimitIsRefused(t *testing.T) {
	s := limitStory(t, "max_time:7200,bob/max_time:86400")
	s.core.turn.Config.Limits = &contract.UserLimits{PerUser: contract.Limit{contract.LimitTime: 14400}, Users: map[string]contract.Limit{"bob": {contract.LimitTime: 200000}}}
	for name, c := range map[string]struct {
		user   string
		limit  time.Duration
		hold   bool
		ours   string // the reason why this daemon refuses it
		theirs string // the reason why no host takes it
	}{
		"fits":               {"ada", time.Hour, false, "", ""},
		"too long":           {"ada", 5 * time.Hour, false, "a task of user ada may run for 4h at most (limits.per_user.max_time), 5h wanted (-t)", ""},
		"on hold":            {"ada", 5 * time.Hour, true, "a task of user ada may run for 4h at most", ""},
		"no limit":           {"ada", 0, false, "a task of user ada may run for 4h at most (limits.per_user.max_time), and no time limit is given (-t)", ""},
		"too long for hosts": {"ada", 3 * time.Hour, false, "", "time limit: 3h: 0 of 1 nodes (n1: a task of user ada may run for 2h at most (limits.per_user.max_time), 3h wanted (-t))"},
		"of one user":        {"bob", 20 * time.Hour, false, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			x := job.DefaultSpec()
			x.Command, x.TimeLimit, x.Hold = []string{"true"}, job.Duration(c.limit), c.hold
			e, err := s.core.View().Offers(c.user, false, x)
			switch {
			case c.ours != "":
				if !errors.Is(err, step.ErrLimit) || !strings.Contains(err.Error(), c.ours) || !strings.Contains(err.Error(), "ask for less") {
					t.Errorf(`%v, want ErrLimit, %v in it and "ask for less" in it`, err, c.ours)
				}
			case err != nil || (len(e.Now) == 0) != (c.theirs != "") || !strings.Contains(e.Reason.Detail, c.theirs):
				t.Errorf("%+v, %v, want no error, and hosts unless the limits of hosts forbid it", e, err)
			}
			s.tokens++
			refused := error(nil)
			for _, r := range s.core.Step(s.now, step.Submit{Token: s.tokens, Submission: job.Submission{User: c.user, Spec: x}}).Reply {
				refused = r.Err
			}
			if (refused != nil) != (c.ours != "") {
				t.Errorf("submitted: %v, want an error only if this daemon refuses it", refused)
			}
		})
	}
}

// Hosts allow different times. A long task waits for the host that allows it, and no short task of the same kind waits
// behind it. This includes tasks that waited before a host reported its limit.
func TestLongTaskWaitsOnlyForHostsThatAllowIt(t *testing.T) {
	s := newStory(t, step.DefaultConfig().KeepWhole)
	s.do("lead")
	s.do("worker n1 cpus=1")
	s.do("worker n2 cpus=1")
	s.do("submit a limit=1h")
	s.do("take n1 a")
	s.do("submit b limit=1h")
	s.do("take n2 b")
	s.do("free n1 cpus=0 tasks=1")
	s.do("free n2 cpus=0 tasks=1")
	s.do("submit long limit=10h")
	s.do("submit short limit=1h")
	s.do("worker n1 cpus=1 free=0 again=1 limits=max_time:7200")
	s.do("decline n1 long never=1")
	if out := s.said("show long"); strings.Contains(out, "NoMatch") {
		t.Errorf("n2 could run the task, but it says: %s", out)
	}
	if out := s.said("free n1 cpus=1"); strings.Contains(out, "offer") && !strings.Contains(out, "short") {
		t.Errorf("n1 has free capacity, but offers are: %s", out)
	}
	s.do("worker n2 cpus=1 free=0 again=1 limits=max_time:7200")
	s.do("decline n2 long never=1")
	if out := s.said("show long"); !strings.Contains(out, "NoMatch: time limit: 10h: 0 of 2 nodes") {
		t.Errorf(`no node allows it: %s, want "NoMatch: time limit: 10h: 0 of 2 nodes" in it`, out)
	}
	if n := len(s.core.pending.shapes); n != 2 {
		t.Errorf("%d shapes, want 2", n)
	}
	s.do("submit other limit=90m")
	if out := s.said("free n2 cpus=1"); strings.Contains(out, "long") {
		t.Errorf("offered to a host that does not allow the task: %s", out)
	}
	s.do("worker n2 cpus=1 again=1 limits=max_time:86400")
	if out := s.said("show long"); strings.Contains(out, "NoMatch") {
		t.Errorf("after the limit was raised it still says: %s", out)
	}
}
