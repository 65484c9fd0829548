package scheduler

// Tasks that go before higher priorities because little of them is left to run.

import (
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
)

func beforeStory(t *testing.T, order contract.OrderBy, most time.Duration) *story {
	s := newStory(t, 1)
	s.cfg.Order, s.cfg.MaxWait = order, most
	s.core = NewCore(s.cfg, Saved{}, s.now)
	s.do("lead")
	s.do("worker here cpus=1 free=0")
	return s
}

// A task with a time limit goes before higher priorities, with the level of its work, once it has waited for as long as
// it has left to run. This needs a longest wait and holds for this order alone. As it may be preempted then, it takes
// any host. A task without a limit, or with more left, keeps its place.
func TestTaskWithLittleLeftGoesBeforeHigherPriorities(t *testing.T) {
	for _, c := range []struct {
		order  contract.OrderBy
		most   time.Duration
		submit string
		after  time.Duration // 0: never
	}{
		{contract.ByRemaining, 100 * time.Hour, "limit=5h", 5 * time.Hour},
		{contract.ByRemaining, 100 * time.Hour, "limit=1m", contract.MinRun},
		{contract.ByRemaining, 100 * time.Hour, "limit=90h", 90 * time.Hour},
		{contract.ByRemaining, 100 * time.Hour, "", 0},
		{contract.ByRemaining, 0, "limit=5h", 0},
		{contract.ByAttained, 100 * time.Hour, "limit=5h", 0},
		{contract.ByAge, 100 * time.Hour, "limit=5h", 0},
	} {
		t.Run(c.order.String()+" "+c.most.String()+" "+c.submit, func(t *testing.T) {
			s := beforeStory(t, c.order, c.most)
			s.do("submit a priority=7 " + c.submit)
			before := func() bool { return s.offer([]string{"here", "a"}).Priority == job.MaxPriority }
			if c.after == 0 {
				s.do("wait 95h")
				if before() {
					t.Fatal("the task goes before higher priorities, want it to keep its place")
				}
				return
			}
			s.do("wait " + (c.after - time.Minute).String())
			if before() {
				t.Fatal("the task goes before higher priorities too soon")
			}
			s.do("wait 2m")
			m := s.offer([]string{"here", "a"})
			if m.Priority != job.MaxPriority || m.Level != m.Work.Level() || m.Work.Time != m.Limit.Truncate(time.Minute) {
				t.Fatalf("priority %d, level %d of %v, want %v, %v and Time %v", m.Priority, m.Level, m.Work, job.MaxPriority, m.Work.Level(), m.Limit.Truncate(time.Minute))
			}
			x, _ := s.core.View().Job(s.id("a"))
			if said := x.Tasks[0].Reason.Detail; !strings.Contains(said, "it has waited for as long as it has left to run, and goes before higher priorities (max-wait)") {
				t.Errorf(`got %v, want "it has waited for as long as it has left to run, and goes before higher priorities (max-wait)" in it`, said)
			}
			s.do("wait 102h")
			if m := s.offer([]string{"here", "a"}); m.Priority != job.MaxPriority || m.Level != 0 || m.Work.Time != contract.MaxWork {
				t.Errorf("overdue: priority %d, level %d of %v, want %v, 0 and Time %v", m.Priority, m.Level, m.Work, job.MaxPriority, contract.MaxWork)
			}
		})
	}
}

// The time that a task has run counts for it, and so do all its waits.
func TestPastRunsCountForGoingBeforeHigherPriorities(t *testing.T) {
	s := newStory(t, 1)
	s.cfg.Order, s.cfg.MaxWait = contract.ByRemaining, 1000*time.Hour
	s.core = NewCore(s.cfg, Saved{}, s.now)
	for _, line := range []string{
		"lead", "worker here cpus=1 free=0", "submit a priority=7 limit=20h", "wait 4h", "free here cpus=1", "take here a", "event here a RUNNING", "wait 10h",
		"event here a PREEMPTED ran=10h", "free here cpus=0", "wait 5h50m",
	} {
		s.do(line)
	}
	if s.offer([]string{"here", "a"}).Priority == job.MaxPriority {
		t.Fatal("the task goes before higher priorities, though it has 10 h left and has waited for less")
	}
	s.do("wait 20m")
	if s.offer([]string{"here", "a"}).Priority != job.MaxPriority {
		t.Fatal("the task has waited for 10 h, which is as long as it has left, and does not go before higher priorities")
	}
}
