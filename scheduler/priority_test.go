package scheduler

// The highest priority that a user may give: at the submission, for accepted jobs, and at hosts that allow less.

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler/step"
)

// priorityStory is a story in which users may give at most this priority.
func priorityStory(t *testing.T, most int) *story {
	s := newStory(t, step.DefaultConfig().KeepWhole)
	s.cfg.Priorities = &contract.Priorities{PerUser: most, Operators: []string{contract.Root}, PerMember: job.MaxPriority}
	s.core = NewCore(s.cfg, Saved{}, s.now)
	s.do("lead")
	return s
}

// said performs a line of the story and returns its outcome.
func (s *story) said(line string) string {
	s.out.Reset()
	s.do(line)
	return s.out.String()
}

func TestPriorityAboveTheLimitIsRefused(t *testing.T) {
	s := priorityStory(t, 60)
	s.do("worker n1 cpus=4")
	const why = "priority 61 of user ada is above 60, the highest here (limits.per_user.priority)"
	spec := func(priority int, hold bool) job.Spec {
		x := job.DefaultSpec()
		x.Command, x.Priority, x.Hold = []string{"true"}, priority, hold
		return x
	}
	submit := func(user string, x job.Spec) error {
		s.tokens++
		fx := s.core.Step(s.now, step.Submit{Token: s.tokens, Submission: job.Submission{User: user, Operator: true, Spec: x}})
		for _, r := range fx.Reply {
			if r.Token == s.tokens {
				return r.Err
			}
		}
		return nil
	}
	for _, hold := range []bool{false, true} {
		if err := submit("ada", spec(61, hold)); !errors.Is(err, step.ErrLimit) || !strings.Contains(err.Error(), why) {
			t.Errorf("hold %t: submitted: %v, want ErrLimit and %v in it", hold, err, why)
		}
		if err := submit("ada", spec(60, hold)); err != nil {
			t.Errorf("hold %t: the highest priority is refused: %v", hold, err)
		}
	}
	if err := submit(contract.Root, spec(100, false)); err != nil {
		t.Errorf("root's job is refused: %v", err)
	}
	if _, err := s.core.View().Offers("ada", false, spec(61, false)); !errors.Is(err, step.ErrLimit) {
		t.Errorf("a dry run: %v, want ErrLimit", err)
	}
	if _, err := s.core.View().Offers("ada", false, spec(60, false)); err != nil {
		t.Errorf("a dry run of the highest priority is refused: %v", err)
	}
}

// A job may have been accepted with more, by an earlier version or another configuration. It continues with the
// priority that is allowed now, and its reason says so.
func TestAcceptedPriorityIsLoweredToTheLimit(t *testing.T) {
	s := priorityStory(t, 100)
	s.do("worker n1 cpus=1 free=0")
	s.do("submit a priority=90")
	if m := s.offer([]string{"n1", "a"}); m.Priority != 90 {
		t.Fatalf("offered with %d, want 90", m.Priority)
	}
	s.cfg.Priorities = &contract.Priorities{PerUser: 50, PerMember: job.MaxPriority}
	s.do("restart rows")
	s.do("lead")
	s.do("worker n1 cpus=1 free=0")
	if m := s.offer([]string{"n1", "a"}); m.Priority != 50 {
		t.Fatalf("offered with %d, want 50", m.Priority)
	}
	x, _ := s.core.View().Job(s.id("a"))
	if why := x.Tasks[0].Reason.Detail; !strings.Contains(why, "is above 50, the highest here (limits.per_user.priority), and counts as 50") {
		t.Errorf(`the reason: %s, want "is above 50, the highest here (limits.per_user.priority), and counts as 50" in it`, why)
	}
	s.core.turn.Config.Priorities = &contract.Priorities{PerUser: 100, PerMember: job.MaxPriority} // a reload, which changes nothing here
	x, _ = s.core.View().Job(s.id("a"))
	if why := x.Tasks[0].Reason.Detail; !strings.Contains(why, "priority 90 was above the highest here when the daemon started, and counts as 50") {
		t.Errorf(`after a reload: %s, want "priority 90 was above the highest here when the daemon started, and counts as 50" in it`, why)
	}
}

// A host that allows less declines the task for good and is not asked again. The user's other tasks go there, even
// those with the same request. When the host says Hello again, it is asked again.
func TestHostThatDeclinesAPriorityIsNotAskedAgain(t *testing.T) {
	s := priorityStory(t, 100)
	s.do("worker n1 cpus=8")
	s.do("submit high priority=90")
	s.do("decline n1 high never=1")
	for range 10 {
		if out := s.said("wait 1m"); strings.Contains(out, "high") {
			t.Fatalf("offered again to the host that declined: %s", out)
		}
	}
	if out := s.said("submit low priority=50"); !strings.Contains(out, "n1 <- offer #2 low.0.1") {
		t.Fatalf(`a task of a priority that the host allows: %s, want "n1 <- offer #2 low.0.1" in it`, out)
	}
	if out := s.said("worker n1 cpus=8"); !strings.Contains(out, "high.0.2") {
		t.Fatalf(`after Hello: %s, want "high.0.2" in it`, out)
	}
}

// An overdue task goes just before all of users with the same highest priority. A host that allows less declines it,
// and the user's other tasks of the kind go there.
func TestOverdueTaskStaysBelowHigherLimits(t *testing.T) {
	s := priorityStory(t, 60)
	s.cfg.MaxWait = time.Hour
	s.core = NewCore(s.cfg, Saved{}, s.now)
	s.do("lead")
	s.do("worker n1 cpus=1 free=0")
	s.do("submit a priority=7")
	s.do("submit b priority=7")
	s.do("wait 62m")
	m := s.offer([]string{"n1", "a"})
	if m.Priority != 61 || m.Level != contract.MaxLevel || m.Precedence() <= contract.Precedence(60, 0) || m.Precedence() >= contract.Precedence(61, 0) {
		t.Fatalf("offered with priority %d and level %d, want 61, the highest level and a precedence between those of 60 and 61", m.Priority, m.Level)
	}
	s.do("decline n1 a never=1")
	if out := s.said("submit c priority=7"); !strings.Contains(out, "n1 <- offer") {
		t.Fatalf(`another task of the kind: %s, want "n1 <- offer" in it`, out)
	}
}

// Thousands of urgent tasks for which a host cannot make room do not delay other tasks: the host is offered what waits
// as soon as it has capacity.
func TestDeclinedPreemptionDoesNotPauseTheHost(t *testing.T) {
	s := priorityStory(t, 100)
	s.do("worker n1 cpus=4 free=0")
	s.do("free n1 cpus=0 yields=10:4")
	names := []string{"a", "b", "c", "d", "e", "f", "g", "h"}
	for _, name := range names {
		s.do("submit " + name + " priority=90")
	}
	for _, name := range names {
		if out := s.said("decline n1 " + name); !strings.Contains(out, name+".0.1 wait=30s\n") {
			t.Fatalf("%s does not queue on like any other task: %s", name, out)
		}
	}
	if out := s.said("submit more priority=95"); !strings.Contains(out, "n1 <- offer") {
		t.Errorf(`nothing is offered to the host: %s, want "n1 <- offer" in it`, out)
	}
}

// A task for which no host makes room asks one host after the other, including hosts where it does not queue. It asks
// again when some have other preemptible tasks.
func TestTaskAsksEachHostToMakeRoomOnce(t *testing.T) {
	s := priorityStory(t, 100)
	var names []string
	for i := range spreadMost + 4 {
		n := fmt.Sprintf("n%d", i)
		names = append(names, n)
		s.do("worker " + n + " cpus=4 free=0")
		s.do("free " + n + " cpus=0 yields=10:4")
	}
	s.do("submit a priority=90")
	d := s.core.entries.byID[s.id("a")].task(0).dispatch
	for asked := 0; d.preempt != nil; asked++ {
		if asked > 2*len(names) {
			t.Fatal("the task asks without end")
		}
		if !d.at(d.preempt) {
			t.Fatalf("after %d hosts the task waits for one that it has not asked", asked)
		}
		s.do("decline " + d.preempt.Name() + " a yields=10:4")
	}
	if n := len(d.offers); n > spreadMost {
		t.Errorf("it queues at %d hosts, want at most %v", n, spreadMost)
	}
	for range 3 {
		s.do("wait 1m")
		if d.preempt == nil || !d.at(d.preempt) {
			t.Fatalf("later the task asks no host to make room for it")
		}
		s.do("decline " + d.preempt.Name() + " a yields=10:4")
	}
}
