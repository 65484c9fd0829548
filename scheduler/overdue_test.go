package scheduler

// Overdue tasks.

import (
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/job"
)

func overdueStory(t *testing.T, most time.Duration) *story {
	s := newStory(t, 1)
	s.cfg.MaxWait = most
	s.core = NewCore(s.cfg, Saved{}, s.now)
	s.do("lead")
	return s
}

// raised reports whether the newest offer of the task has the highest priority.
func (s *story) raised(task string) bool {
	s.t.Helper()
	m := s.offer([]string{"here", task})
	if m.Priority != job.MaxPriority {
		return false
	}
	if m.Level != 0 {
		s.t.Errorf("%s is offered with level %d, want 0", task, m.Level)
	}
	return true
}

// A task that has waited for too long is offered with the highest priority, and its reason says so. This survives a
// restart of the owner. Without the setting nothing changes.
func TestOverdueTaskGetsTheHighestPriority(t *testing.T) {
	for _, most := range []time.Duration{0, time.Hour} {
		s := overdueStory(t, most)
		s.do("worker here cpus=1 free=0")
		s.do("submit a priority=7")
		s.do("wait 59m")
		if s.raised("a") {
			t.Fatalf("with %s the task goes first before it has waited for so long", most)
		}
		s.do("wait 3m")
		if got := s.raised("a"); got != (most > 0) {
			t.Fatalf("with %s it goes first: %t, want %v", most, got, (most > 0))
		}
		x, _ := s.core.View().Job(s.id("a"))
		if said := strings.Contains(x.Tasks[0].Reason.Detail, "it has waited for more than 1h and goes first (max-wait)"); said != (most > 0) {
			t.Errorf("with %s: %s, want a reason that names max-wait only if it is set", most, x.Tasks[0].Reason)
		}
		s.do("restart rows")
		s.do("lead")
		s.do("worker here cpus=1 free=0")
		s.do("wait 3m")
		if got := s.raised("a"); got != (most > 0) {
			t.Errorf("after a restart, with %s, it goes first: %t, want %v", most, got, (most > 0))
		}
	}
}

// Runs do not count as waits. All waits of a task are added up. A task that goes first does so again after each run.
func TestWaitsOfAnOverdueTaskAreAddedUp(t *testing.T) {
	s := overdueStory(t, time.Hour)
	s.do("worker here cpus=1")
	s.do("submit a priority=7 partition=hold")
	s.do("take here a")
	s.do("event here a RUNNING")
	s.do("wait 30m")
	s.do("event here a PREEMPTED ran=30m")
	s.do("free here cpus=0")
	s.do("wait 58m")
	if s.raised("a") {
		t.Fatal("the task goes first though it has waited for less than an hour")
	}
	s.do("wait 4m")
	if !s.raised("a") {
		t.Fatal("the task has waited for more than an hour, and does not go first")
	}
}

// Of each user only the oldest overdue task goes first, one after the other. So a user with many does not pass all
// others at once.
func TestOverdueTasksOfOneUserGoFirstOneByOne(t *testing.T) {
	s := overdueStory(t, 64*time.Minute)
	s.do("worker here cpus=1 free=0")
	for _, name := range []string{"a", "b", "c"} {
		s.do("submit " + name + " priority=7")
	}
	s.do("submit d priority=9 user=bob")
	for _, want := range []string{"", "ad", "abd", "abcd"} {
		got := ""
		for _, name := range []string{"a", "b", "c", "d"} {
			if s.raised(name) {
				got += name
			}
		}
		if got != want {
			t.Fatalf("after %s %q go first, want %q", s.now.Sub(storyStart), got, want)
		}
		if want == "" {
			s.do("wait 65m10s")
		} else {
			s.do("wait 1m")
		}
	}
}

// Only waiting for capacity counts. Waiting for the user's release, another job, the begin time or other tasks of the
// array does not.
func TestOnlyWaitingForCapacityMakesATaskOverdue(t *testing.T) {
	for name, c := range map[string]struct{ before, submit, after string }{
		"hold":       {"", "submit a priority=7 hold=1", "release a"},
		"dependency": {"submit z hold=1", "submit a priority=7 dep=afternotok:z", "cancel z"},
		"begin":      {"", "submit a priority=7 begin=2h", ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := overdueStory(t, time.Hour)
			s.do("worker here cpus=1 free=0")
			if c.before != "" {
				s.do(c.before)
			}
			s.do(c.submit)
			s.do("wait 2h")
			if c.after != "" {
				s.do(c.after)
			}
			s.do("wait 59m")
			if s.raised("a") {
				t.Fatal("the task goes first before it could have run for an hour")
			}
			s.do("wait 3m")
			if !s.raised("a") {
				t.Fatal("the task has waited for capacity for more than an hour, and does not go first")
			}
		})
	}
}

// An overdue task is never preempted. So tasks are preempted for it on the smallest host that suffices: another task
// may need a larger one.
func TestOverdueTaskPreemptsOnTheSmallestHost(t *testing.T) {
	s := overdueStory(t, time.Hour)
	for _, line := range []string{
		"worker large cpus=8 free=0", "worker here cpus=4 free=0", "free large cpus=0 yields=1:8", "free here cpus=0 yields=2:4",
		"submit a cpus=4 priority=7",
	} {
		s.do(line)
	}
	at := func() (hosts string) {
		for _, host := range []string{"large", "here"} {
			if m, there := s.latest[host+" "+s.task("a").String()]; there && m.Preempt {
				hosts += host
			}
		}
		clear(s.latest)
		return hosts
	}
	if got := at(); got != "large" {
		t.Fatalf(`tasks of the least priority are on large; they end on %q, want "large"`, got)
	}
	s.do("wait 65m")
	if got := at(); got != "here" {
		t.Errorf(`here is the smallest host; tasks end on %q, want "here"`, got)
	}
}
