package worker_test

// Limits over the cluster and the longest time limit, as a host applies them to offers.

import (
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker"
	"github.com/musterhq/muster/worker/resources"
)

// A host with a longest time limit accepts no task that may run longer, or without a limit, whatever its scheduler
// says.
func TestHostDeclinesTasksAboveItsLongestTime(t *testing.T) {
	cfg := config(2)
	cfg.Limits = limits(t, map[string]string{"per_user.max_time": "2h", "users.bob.max_time": "1d"})
	r := &tries{host: newHost(t, cfg)}
	r.s = r.meet(amy, 1)
	if told := one[contract.Hello](r.host, amy).Profile.Limits; told.PerUser[contract.LimitTime] != 7200 {
		t.Errorf("told %+v, want PerUser[contract.LimitTime] 7200", told)
	}
	offered := func(id uint64, user string, limit time.Duration) {
		t.Helper()
		m := offer(id, attempt(id, 1), cpu)
		m.User, m.Limit = user, contract.LimitOf(&job.Spec{TimeLimit: job.Duration(limit)})
		r.says(amy, m)
	}
	for i, c := range []struct {
		user  string
		limit time.Duration
		why   string
	}{
		{"ada", 2 * time.Hour, ""},
		{"ada", 0, "a task of user ada may run for 2h at most (limits.per_user.max_time), and no time limit is given (-t)"},
		{"ada", 4 * time.Hour, "a task of user ada may run for 2h at most (limits.per_user.max_time)"},
		{"bob", 4 * time.Hour, ""},
		{"bob", 48 * time.Hour, "may run for 1d at most (limits.users.bob.max_time)"},
	} {
		offered(uint64(i+1), c.user, c.limit)
		if c.why == "" {
			one[contract.Commit](r.host, amy)
			continue
		}
		if d := one[contract.Decline](r.host, amy); !d.Never || d.Reason.Word != job.ReasonQuota || !strings.Contains(d.Reason.Detail, c.why) {
			t.Errorf("%s, %s: declined with %+v, want it for good with the quota as the reason", c.user, c.limit, d)
		}
	}
	// A Start cannot have a longer limit than its offer.
	m := start(1, attempt(1, 1), r.s, cpu)
	m.File = edited(m.File, func(s *job.Spec) { s.TimeLimit = job.Duration(5 * time.Hour) })
	if e := r.says(amy, m); len(e.Start) != 0 {
		t.Errorf("started %+v, want none", e.Start)
	}
	wait := offer(20, attempt(20, 1), gpus(2))
	wait.Limit, wait.Wait = contract.LimitOf(&job.Spec{TimeLimit: job.Duration(2 * time.Hour)}), time.Minute
	r.says(amy, offerFor(30, "bob", gpus(2), time.Hour))
	one[contract.Commit](r.host, amy)
	r.says(amy, wait)
	r.round(worker.LimitsChanged{Limits: limits(t, map[string]string{"per_user.max_time": "30m"})})
	if d := one[contract.Decline](r.host, amy); d.Offer != 20 || !d.Never {
		t.Errorf("after the limit was lowered: %+v, want offer 20 declined for good", d)
	}
}

func offerFor(id uint64, user string, need job.Resources, limit time.Duration) contract.Offer {
	m := offer(id, attempt(id, 1), need)
	m.User, m.Limit = user, contract.LimitOf(&job.Spec{TimeLimit: job.Duration(limit)})
	return m
}

// What a user may hold in the cluster also limits what the user holds on one host.
func TestHostAppliesTheClusterLimit(t *testing.T) {
	r := limited(t, map[string]string{"per_user.gpus": "8", "per_user.cluster_gpus": "1"})
	if _, ok := r.taken("ada", gpus(1)); !ok {
		t.Fatal("the task was not accepted within the limit")
	}
	r.wantQuota("ada", gpus(1), "user ada holds 1 of at most 1 gpus in the cluster on this host (limits.per_user.cluster_gpus)")
	r.wantNever("ada", gpus(2), "user ada may hold at most 1 gpus in the cluster (limits.per_user.cluster_gpus), 2 wanted")
}

func TestTimeAndClusterLimitsAreParsed(t *testing.T) {
	for name, value := range map[string]string{
		"per_user.max_time": "0s", "users.ada.max_time": "24", "per_user.cluster_gpus": "many", "per_user.cluster_memory": "8", "all.cluster_gpus": "1",
		"per_member.max_time": "1h", "per_user.max_times": "1h", "users.bob.max_time": "400d", "per_user.cluster_tasks": "-1",
	} {
		if err := resources.CheckLimit(name, value); err == nil || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s=%s: %v, want an error in one line", name, value, err)
		}
	}
	l := limits(t, map[string]string{"per_user.max_time": "1d12h", "users.ada.cluster_memory": "1TiB", "per_user.cluster_tasks": "0"})
	if l.PerUser[contract.LimitTime] != 36*3600 || l.Users["ada"][contract.LimitClusterMemory] != 1<<40 || l.PerUser[contract.LimitClusterTasks] != 0 {
		t.Errorf(`parsed %+v, want PerUser[contract.LimitTime] %v, Users["ada"][contract.LimitClusterMemory] %v and PerUser[contract.LimitClusterTasks] 0`, l, 36*3600, 1<<40)
	}
}
