package worker_test

// Quotas: what a user may hold, the reason of a refusal, and what ends a refusal.

import (
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker"
	"github.com/musterhq/muster/worker/driver"
	"github.com/musterhq/muster/worker/resources"
)

func limits(t *testing.T, settings map[string]string) resources.Limits {
	t.Helper()
	l, err := resources.ParseLimits(settings)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// limited returns a host with two GPUs and these limits.
func limited(t *testing.T, settings map[string]string) *tries {
	cfg := config(2)
	cfg.Limits = limits(t, settings)
	h := newHost(t, cfg)
	return &tries{host: h, s: h.meet(amy, 1)}
}

func (r *tries) wantQuota(user string, need job.Resources, word string) {
	r.t.Helper()
	if _, ok := r.taken(user, need); ok {
		r.t.Fatalf("%s got %+v beyond the quota", user, need)
	}
	d := one[contract.Decline](r.host, amy)
	if d.Reason.Word != job.ReasonQuota || d.Never || !strings.Contains(d.Reason.Detail, word) || !strings.Contains(d.Reason.Detail, user) {
		r.t.Fatalf("decline = %+v, want %q", d, word)
	}
}

// wantNever checks that an offer is declined for good: whatever ends, the user may not have it.
func (r *tries) wantNever(user string, need job.Resources, word string) {
	r.t.Helper()
	if _, ok := r.taken(user, need); ok {
		r.t.Fatalf("%s got %+v beyond the limit", user, need)
	}
	if d := one[contract.Decline](r.host, amy); d.Reason.Word != job.ReasonQuota || !d.Never || !strings.Contains(d.Reason.Detail, word) {
		r.t.Fatalf("decline = %+v, want %q for good", d, word)
	}
}

func TestEachLimitOfAUser(t *testing.T) {
	for name, c := range map[string]struct {
		limit, value string
		fits, over   job.Resources
		word         string
	}{
		"tasks":  {"tasks", "1", cpu, cpu, "holds 1 of at most 1 tasks"},
		"cpus":   {"cpus", "3", job.Resources{CPUs: 2}, job.Resources{CPUs: 2}, "holds 2 of at most 3 cpus"},
		"memory": {"memory", "3GiB", job.Resources{Memory: 2 << 30}, job.Resources{Memory: 2 << 30}, "holds 2GiB of at most 3GiB memory"},
		"gpus":   {"gpus", "1", gpus(1), gpus(1), "holds 1 of at most 1 gpus"},
		"shares": {"gpus", "1", job.Resources{CPUs: 1, GPUShare: .75}, job.Resources{CPUs: 1, GPUShare: .5}, "holds 0.75 of at most 1 gpus"},
	} {
		t.Run(name, func(t *testing.T) {
			r := limited(t, map[string]string{"per_user." + c.limit: c.value})
			a, ok := r.taken("ada", c.fits)
			if !ok {
				t.Fatal("the task was not accepted within the limit")
			}
			r.wantQuota("ada", c.over, c.word)
			if _, ok := r.taken("bea", c.fits); !ok {
				t.Fatal("the limit of one user applies to another")
			}
			r.round(exited(a, 0))
			if _, ok := r.taken("ada", c.over); !ok {
				t.Fatal("the end of a task did not lower the use")
			}
		})
	}
}

// When a user reaches the limit, the user's other offers are declined. What was held back for them is free at once for
// the next offer.
func TestNothingIsHeldBackForAUserAtTheLimit(t *testing.T) {
	r := limited(t, map[string]string{"per_user.tasks": "1"})
	if _, ok := r.taken("cyd", gpus(1)); !ok {
		t.Fatal("an empty host accepted nothing")
	}
	waits := func(id uint64, user string, need job.Resources, age time.Duration) contract.Offer {
		m := offer(id, attempt(id, 1), need)
		m.User, m.Wait, m.Age = user, time.Minute, age
		return m
	}
	first := waits(10, "ada", gpus(2), time.Hour)
	r.says(amy, first)
	r.untilKept(first)
	r.says(amy, waits(11, "bea", gpus(1), time.Minute))
	if got := got[contract.Commit](r.host, amy); len(got) != 0 {
		t.Fatalf("committed %+v, but what is free is held back for the first offer, want none", got)
	}
	r.says(amy, waits(12, "ada", cpu, time.Second))
	commits := got[contract.Commit](r.host, amy)
	if len(commits) != 2 || commits[0].Offer != 12 || commits[1].Offer != 11 {
		t.Fatalf("committed %+v, want ada's last offer and bea's", commits)
	}
	if d := one[contract.Decline](r.host, amy); d.Offer != 10 || d.Reason.Word != job.ReasonQuota {
		t.Errorf("declined %+v, want offer 10 for the quota", d)
	}
}

func TestLimitsOfOneUserReplaceThoseOfAll(t *testing.T) {
	r := limited(t, map[string]string{"per_user.gpus": "0", "per_user.tasks": "2", "users.ada.gpus": "1", "users.a.b.tasks": "0"})
	r.wantNever("bea", gpus(1), "user bea may hold at most 0 gpus there (limits.per_user.gpus), 1 wanted")
	if _, ok := r.taken("ada", gpus(1)); !ok {
		t.Fatal("a user with a higher limit was declined")
	}
	if _, ok := r.taken("ada", cpu); !ok {
		t.Fatal("the second of two allowed tasks was declined")
	}
	r.wantQuota("ada", cpu, "holds 2 of at most 2 tasks")
	r.wantNever("a.b", cpu, "user a.b may hold at most 0 tasks there (limits.users.a.b.tasks), 1 wanted")
	r.round(worker.LimitsChanged{Limits: limits(t, nil)})
	if _, ok := r.taken("ada", cpu); !ok {
		t.Fatal("declined after the limit was removed")
	}
}

// Schedulers get the limits at the start of a session, and again when they change. A queued offer that becomes
// impossible is declined for good.
func TestSchedulersAreToldTheLimits(t *testing.T) {
	cfg := config(2)
	cfg.Limits = limits(t, map[string]string{"per_user.gpus": "2", "per_user.scratch": "1GiB", "users.ada.pending_jobs": "7", "users.bea.cpus": "3"})
	cfg.Priorities = priorities(t, map[string]string{"users.bea.priority": "70"})
	r := &tries{host: newHost(t, cfg)}
	told := func() *contract.UserLimits {
		t.Helper()
		return one[contract.Hello](r.host, amy).Profile.Limits
	}
	r.round(worker.Up{Peer: amy})
	want := &contract.UserLimits{
		PerUser: contract.Limit{contract.LimitGPUs: 2, contract.LimitPriority: contract.UserPriority},
		Users:   map[string]contract.Limit{"bea": {contract.LimitCPUs: 3}, contract.Root: {contract.LimitPriority: job.MaxPriority}},
	}
	if got := told(); !want.Equal(got) {
		t.Errorf("told %+v, want %+v", got, want)
	}
	r.s = r.meet(amy, 1)
	one[contract.Hello](r.host, amy)
	if _, ok := r.taken("cyd", gpus(2)); !ok {
		t.Fatal("the task was not accepted within the limit")
	}
	m := offer(10, attempt(10, 1), gpus(2))
	m.Wait = time.Minute
	r.says(amy, m)
	r.round(worker.LimitsChanged{Limits: limits(t, map[string]string{"per_user.gpus": "1"}), Priorities: cfg.Priorities})
	if d := one[contract.Decline](r.host, amy); d.Offer != 10 || !d.Never || !strings.Contains(d.Reason.Detail, "limits.per_user.gpus") {
		t.Errorf("declined %+v, want offer 10 for good because of limits.per_user.gpus", d)
	}
	if got := told(); got.PerUser[contract.LimitGPUs] != 1 {
		t.Errorf("told %+v after the change, want PerUser[contract.LimitGPUs] 1", got)
	}
	r.round(worker.LimitsChanged{Limits: limits(t, map[string]string{"per_user.gpus": "1"}), Priorities: cfg.Priorities})
	if again := got[contract.Hello](r.host, amy); len(again) > 0 {
		t.Error("Hello is sent though nothing has changed")
	}
}

// A restart of the daemon keeps the use of running tasks and drops reservations.
func TestQuotaCountsRunningTasksAfterARestart(t *testing.T) {
	r := limited(t, map[string]string{"per_user.tasks": "1"})
	a, _ := r.taken("ada", cpu)
	r.boot(driver.Event{Attempt: a, Kind: driver.Started, PID: 42})
	r.s = r.meet(amy, 1)
	r.wantQuota("ada", cpu, "holds 1 of at most 1 tasks")
	r.round(exited(a, 0))
	r.n++
	r.says(amy, offer(r.n, attempt(r.n, 1), cpu))
	one[contract.Commit](r.host, amy)
	r.pass(11 * time.Second) // no Start comes
	if _, ok := r.taken("ada", cpu); !ok {
		t.Fatal("a lapsed reservation still counts")
	}
}

func TestStartForAnotherUserIsRefused(t *testing.T) {
	r := limited(t, nil)
	r.says(amy, offer(1, attempt(1, 1), cpu))
	one[contract.Commit](r.host, amy)
	m := start(1, attempt(1, 1), r.s, cpu)
	m.User = "mallory"
	if e := r.says(amy, m); len(e.Start) != 0 {
		t.Fatalf("started %+v, want none", e.Start)
	}
}

func TestLimitsAreParsed(t *testing.T) {
	for name, value := range map[string]string{
		"gpus": "1", "per_user.gpu": "1", "users.gpus": "1", "users..gpus": "1", "per_user.gpus": "-1", "per_user.tasks": "many",
		"per_user.memory": "8", "per_user.scratch": "0B", "users.ada.scratch": "0B", "per_user.cpus": "1.5", "all.gpus": "1", "": "",
	} {
		if err := resources.CheckLimit(name, value); err == nil {
			t.Errorf("%s=%s is accepted", name, value)
		}
	}
}
