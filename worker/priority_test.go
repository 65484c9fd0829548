package worker_test

// The highest priority of a user's tasks on this host, whatever their scheduler says.

import (
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker"
	"github.com/musterhq/muster/worker/driver"
)

func priorities(t *testing.T, settings map[string]string) *contract.Priorities {
	t.Helper()
	return limits(t, settings).Priorities([]string{contract.Root}, false)
}

// A scheduler lies about the priority of a user's task. The offer is declined for good with the name of the limit, and
// no task is preempted for it. When the limit is raised, the scheduler may offer again.
func TestPriorityAboveTheLimitIsDeclined(t *testing.T) {
	cfg := config(1)
	cfg.Priorities = priorities(t, nil)
	h := newHost(t, cfg)
	f := &filled{host: h, session: h.meet(amy, 1)}
	low := f.run(10, 1, true)
	if ended := f.ask(100, 1); len(ended) > 0 {
		t.Fatalf("%v end for a priority that ada may not have, want none", ended)
	}
	d := one[contract.Decline](h, amy)
	if !d.Never || d.Reason.Word != job.ReasonQuota || !strings.Contains(d.Reason.Detail, "priority 100 of user ada is above 50, the highest here (limits.per_user.priority)") {
		t.Fatalf("declined with %+v, want it for good, with limits.per_user.priority in the reason", d)
	}
	got[contract.Hello](h, amy)
	h.round(worker.LimitsChanged{Priorities: priorities(t, map[string]string{"users.ada.priority": "90"})})
	one[contract.Hello](h, amy)
	if ended := f.ask(100, 1); len(ended) > 0 {
		t.Fatalf("%v end for a priority above the new limit, want none", ended)
	}
	if d := one[contract.Decline](h, amy); !strings.Contains(d.Reason.Detail, "limits.users.ada.priority") {
		t.Fatalf(`declined with %+v, want Reason.Detail "limits.users.ada.priority" in it`, d)
	}
	if ended := f.ask(90, 1); len(ended) != 1 || ended[0] != low {
		t.Fatalf("%v end for a priority that ada may have now, want 1 of them and [0] %v", ended, low)
	}
	h.round(worker.LimitsChanged{Priorities: priorities(t, map[string]string{"users.ada.priority": "90"})})
	if again := got[contract.Hello](h, amy); len(again) > 0 {
		t.Error("Hello is sent though nothing has changed")
	}
}

// The priorities that another daemon may offer are limited too, whoever its users are.
func TestPriorityOfAnotherDaemonIsLimited(t *testing.T) {
	cfg := config(1)
	cfg.Priorities = priorities(t, map[string]string{"per_user.priority": "80", "per_member.priority": "30", "members." + string(amy) + ".priority": "60"})
	h := newHost(t, cfg)
	h.meet(amy, 1)
	m := offer(1, attempt(1, 1), cpu)
	m.Priority = 70
	h.says(amy, m)
	if d := one[contract.Decline](h, amy); !strings.Contains(d.Reason.Detail, "above 60") || !strings.Contains(d.Reason.Detail, "limits.members."+string(amy)+".priority") {
		t.Fatalf(`declined with %+v, want Reason.Detail "above 60" in it and Reason.Detail %v in it`, d, "limits.members."+string(amy)+".priority")
	}
	m = offer(2, attempt(2, 1), cpu)
	m.Priority = 60
	h.says(amy, m)
	one[contract.Commit](h, amy)
}

// Waiting offers are declined when the limit is lowered.
func TestLoweredLimitOfPriorityDeclinesWaitingOffers(t *testing.T) {
	cfg := config(1)
	cfg.Priorities = priorities(t, map[string]string{"per_user.priority": "80"})
	h := newHost(t, cfg)
	f := &filled{host: h, session: h.meet(amy, 1)}
	f.run(10, 1, false)
	for i, priority := range []int{80, 50} {
		m := offer(uint64(70+i), attempt(uint64(70+i), 1), gpus(1))
		m.Priority, m.Wait = priority, time.Minute
		h.says(amy, m)
	}
	h.round(worker.LimitsChanged{Priorities: priorities(t, nil)})
	if d := one[contract.Decline](h, amy); d.Offer != 70 || !d.Never {
		t.Fatalf("declined %+v, want offer 70 for good", d)
	}
}

// A running task has the priority of its offer, not the one in its job file: a task with a higher priority preempts it.
func TestTaskHasThePriorityOfItsOffer(t *testing.T) {
	cfg := config(1)
	cfg.Priorities = priorities(t, map[string]string{"users.ada.priority": "60"})
	h := newHost(t, cfg)
	f := &filled{host: h, session: h.meet(amy, 1)}
	a := attempt(1, 1)
	m := start(1, a, f.session, gpus(1))
	m.File = edited(m.File, func(s *job.Spec) { s.Priority, s.Preemptible = 100, true })
	h.says(amy, offer(1, a, gpus(1))) // with priority 50
	h.says(amy, m)
	f.n = 1
	if ended := f.ask(60, 1); len(ended) != 1 {
		t.Fatalf("%v end, want 1 of them", ended)
	}
}

// Several offers preempt at the same time, each its own victims, even offers that need CPUs alone. A task that already
// ends is not reported as preemptible.
func TestSeveralOffersPreemptAtOnce(t *testing.T) {
	cfg := config(0)
	cfg.Profile.CPUs = 3
	h := newHost(t, cfg)
	s := h.meet(amy, 1)
	for i := range uint64(3) {
		a := attempt(i+1, 1)
		m := start(i+1, a, s, cpu)
		m.File = edited(m.File, func(s *job.Spec) { s.Preemptible = true })
		h.says(amy, offer(i+1, a, cpu))
		h.says(amy, m)
		h.round(driver.Event{Attempt: a, Kind: driver.Started, PID: int(i + 1)})
	}
	ended := map[job.Attempt]bool{}
	for i := range uint64(4) {
		m := offer(10+i, attempt(10+i, 1), cpu)
		m.Priority, m.Wait, m.Preempt = 90, time.Minute, true
		for _, x := range h.says(amy, m).Stop {
			ended[x.Attempt] = true
		}
	}
	if len(ended) != 3 {
		t.Fatalf("%d tasks end for four offers, want 3", len(ended))
	}
	if d := one[contract.Decline](h, amy); d.Offer != 13 || len(d.Free.Preemptible) > 0 {
		t.Fatalf("declined %+v, want Offer 13 and no Free.Preemptible", d)
	}
}
