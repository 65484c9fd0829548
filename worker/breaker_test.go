package worker_test

// The breaker: what pauses a host or a GPU, what does not, and what ends the pause.

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker"
	"github.com/musterhq/muster/worker/driver"
)

// tries is a host that runs tasks one after the other.
type tries struct {
	*host
	s contract.Session
	n uint64
	// checkpoint is the checkpoint exit code of the tasks.
	checkpoint int
}

func newTries(t *testing.T, gpus int) *tries {
	h := newHost(t, config(gpus))
	return &tries{host: h, s: h.meet(amy, 1)}
}

// taken offers a task of the user, and reports whether the host starts it.
func (r *tries) taken(user string, need job.Resources) (job.Attempt, bool) {
	r.t.Helper()
	r.n++
	o := offer(r.n, attempt(r.n, 1), need)
	o.User = user
	r.says(amy, o)
	if len(got[contract.Commit](r.host, amy)) == 0 {
		return o.Attempt, false
	}
	m := start(r.n, o.Attempt, r.s, need)
	m.User, m.File = user, edited(m.File, func(s *job.Spec) { s.CheckpointExitCode = r.checkpoint })
	if e := r.says(amy, m); len(e.Start) != 1 {
		r.t.Fatalf("started %+v, want 1 of them", e.Start)
	}
	return o.Attempt, true
}

// ends runs a task of the user that exits with the code after some time.
func (r *tries) ends(user string, need job.Resources, code int, after time.Duration) {
	r.t.Helper()
	a, ok := r.taken(user, need)
	if !ok {
		r.t.Fatalf("task %d of %s was not taken: %+v", r.n, user, got[contract.Decline](r.host, amy))
	}
	r.round(driver.Event{Attempt: a, Kind: driver.Started, PID: 42})
	began := r.now.Wall
	r.jump(after)
	e := exited(a, code)
	e.Exit.Began, e.Exit.Ended = began, r.now.Wall
	r.round(e)
}

func (r *tries) fails(user string, need job.Resources) {
	r.t.Helper()
	r.ends(user, need, 1, time.Millisecond)
}

// closed returns why the host accepts no tasks, or "" if it accepts them.
func (r *tries) closed() string { return r.core.View().Closed.Detail }

func TestFailuresOfDifferentJobsPauseTheHost(t *testing.T) {
	r := newTries(t, 0)
	for _, user := range []string{"ada", "bea", "ada", "cyd"} {
		r.fails(user, cpu)
	}
	if why := r.closed(); why != "" {
		t.Fatalf("paused after four failures: %s, want none", why)
	}
	got[contract.Availability](r.host, amy)
	r.jump(time.Second)
	r.fails("ada", cpu)
	if why := r.closed(); !strings.Contains(why, "5 different jobs failed in a row") {
		t.Fatalf(`closed = %q, want "5 different jobs failed in a row" in it`, why)
	}
	r.pass(time.Second)
	told := got[contract.Availability](r.host, amy)
	if len(told) == 0 || !told[len(told)-1].Draining || !strings.Contains(told[len(told)-1].Detail, "5 different jobs") {
		t.Fatalf("schedulers were told %+v, want a last one that says 5 different jobs", told)
	}
	if _, ok := r.taken("bob", cpu); ok {
		t.Fatal("a paused host accepts a task")
	}
	r.pass(29 * time.Second)
	if why := r.closed(); why != "" {
		t.Fatalf("still paused: %s, want none", why)
	}
	// The tasks fail again, so the next pause is longer.
	for _, user := range []string{"ada", "bea", "ada", "cyd", "ada"} {
		r.fails(user, cpu)
	}
	r.pass(59 * time.Second)
	if r.closed() == "" {
		t.Fatal("the second pause is no longer than the first")
	}
	r.pass(2 * time.Second)
	if why := r.closed(); why != "" {
		t.Fatalf("still paused after the second pause: %s, want none", why)
	}
}

func TestFailuresOfOneUserDoNotPauseTheHost(t *testing.T) {
	r := newTries(t, 0)
	for range 50 {
		r.fails("ada", cpu)
	}
	r.fails("bea", cpu)
	if why := r.closed(); why != "" {
		t.Fatalf("one user's bad commands paused the host: %s, want none", why)
	}
}

func TestSuccessResetsTheBreaker(t *testing.T) {
	r := newTries(t, 0)
	for i := range 20 {
		r.fails(fmt.Sprint("user", i), cpu)
		if i%4 == 3 {
			r.ends("ada", cpu, 0, time.Millisecond)
		}
	}
	if why := r.closed(); why != "" {
		t.Fatalf("paused though tasks succeed: %s, want none", why)
	}
}

// A task that has saved its state did not fail.
func TestBreakerIgnoresCheckpoints(t *testing.T) {
	r := newTries(t, 0)
	r.checkpoint = 85
	for range 2 {
		for _, user := range []string{"ada", "bea", "ada", "cyd"} {
			r.fails(user, cpu)
		}
		r.ends("ada", cpu, 85, time.Millisecond)
	}
	if why := r.closed(); why != "" {
		t.Errorf("paused: %s, want none", why)
	}
	for range 6 {
		r.ends("ada", cpu, 85, time.Millisecond)
	}
	if why := r.closed(); why != "" {
		t.Errorf("paused after checkpoints alone: %s, want none", why)
	}
}

func TestBreakerIgnoresSlowFailures(t *testing.T) {
	r := newTries(t, 0)
	for i := range 20 {
		r.ends(fmt.Sprint("user", i), cpu, 1, 30*time.Second)
		r.answer(amy, 1)
	}
	if why := r.closed(); why != "" {
		t.Fatalf("paused after slow failures: %s, want none", why)
	}
}

// unstarted is the event of an attempt that the host could not start.
func unstarted(a job.Attempt) driver.Event {
	return driver.Event{Attempt: a, Kind: driver.Failed, Exit: job.Exit{State: job.NodeFail, Code: 125, Reason: "make scratch directory"}}
}

// cannotStart starts tasks of so many jobs at once. The host can start none of them.
func (r *tries) cannotStart(jobs int) {
	r.t.Helper()
	var all []worker.Event
	for range jobs {
		a, ok := r.taken("ada", cpu)
		if !ok {
			r.t.Fatalf("paused too early: %s", r.closed())
		}
		all = append(all, unstarted(a))
	}
	for _, e := range all {
		r.jump(time.Millisecond)
		r.round(e)
	}
}

// A host that lacks something for a moment fails all starts that are under way. That causes one pause, even if some
// fail only after it.
func TestStartsThatFailTogetherPauseTheHostOnce(t *testing.T) {
	r := newTries(t, 0)
	late, ok := r.taken("bea", cpu)
	if !ok {
		t.Fatal("the task was not accepted")
	}
	r.cannotStart(7)
	r.pass(29 * time.Second)
	if r.closed() == "" {
		t.Fatal("the pause is too short")
	}
	r.pass(2 * time.Second)
	if why := r.closed(); why != "" {
		t.Fatalf("the pause is longer than 30 s: %s, want none", why)
	}
	r.round(unstarted(late))
	if why := r.closed(); why != "" {
		t.Fatalf("a start from before the pause has paused the host: %s, want none", why)
	}
	// The first start after the pause is the trial. The others do not count.
	r.cannotStart(7)
	if why := r.closed(); !strings.Contains(why, "could not start the first task after a pause") {
		t.Fatalf(`closed = %q, want "could not start the first task after a pause" in it`, why)
	}
	r.pass(59 * time.Second)
	if r.closed() == "" {
		t.Fatal("the second pause is no longer than the first")
	}
	r.pass(2 * time.Second)
	if why := r.closed(); why != "" {
		t.Fatalf("the second pause is longer than a minute: %s, want none", why)
	}
	// A start that succeeds ends the trial.
	r.ends("ada", cpu, 1, time.Second)
	r.cannotStart(1)
	if why := r.closed(); why != "" {
		t.Fatalf("a single failure paused the host: %s, want none", why)
	}
}

// The same holds for jobs that fail: jobs that ran at the start of the pause do not extend it.
func TestFailuresOfRunningTasksPauseTheHostOnce(t *testing.T) {
	r := newTries(t, 0)
	var all []job.Attempt
	for i := range 8 {
		a, ok := r.taken(fmt.Sprint("user", i), job.Resources{})
		if !ok {
			t.Fatal("the task was not accepted")
		}
		r.round(driver.Event{Attempt: a, Kind: driver.Started, PID: 42})
		all = append(all, a)
	}
	more := func() {
		for _, a := range all {
			r.round(exited(a, 1))
		}
	}
	for i := range 2 {
		r.fails(fmt.Sprint("other", i), job.Resources{})
	}
	more()
	r.pass(31 * time.Second)
	if why := r.closed(); why != "" {
		t.Fatalf("still paused: %s, want none", why)
	}
}

// A host is paused for a minute, and then starts a task that runs for days. The next pause is short.
func TestLongRunMakesTheNextPauseShort(t *testing.T) {
	r := newTries(t, 0)
	r.cannotStart(3)
	r.pass(31 * time.Second)
	r.cannotStart(1)
	r.pass(61 * time.Second)
	a, ok := r.taken("bea", cpu)
	if !ok {
		t.Fatalf("still paused: %s", r.closed())
	}
	r.round(driver.Event{Attempt: a, Kind: driver.Started, PID: 42})
	r.pass(31 * time.Second)
	r.answer(amy, 1)
	r.cannotStart(1)
	if why := r.closed(); why != "" {
		t.Fatalf("a single failure paused the host: %s, want none", why)
	}
	r.cannotStart(2)
	r.pass(31 * time.Second)
	if why := r.closed(); why != "" {
		t.Fatalf("the pause is longer than 30 s: %s, want none", why)
	}
}

// A job counts once: no job alone pauses a host for others, however many of its tasks the host cannot start.
func TestBreakerCountsAJobOnce(t *testing.T) {
	r := newTries(t, 0)
	for i := range 10 {
		r.n++
		m := offer(r.n, attempt(1, 1), cpu)
		m.Attempt.Task = i + 1
		r.says(amy, m)
		if why := r.closed(); why != "" {
			t.Fatalf("one job paused the host: %s, want none", why)
		}
		r.says(amy, start(r.n, m.Attempt, r.s, cpu))
		r.round(unstarted(m.Attempt))
	}
	r.n++
	r.cannotStart(1)
	if why := r.closed(); why != "" {
		t.Fatalf("two jobs paused the host: %s, want none", why)
	}
	r.cannotStart(1)
	if why := r.closed(); !strings.Contains(why, "could not start tasks of 3 jobs in a row") {
		t.Fatalf(`closed = %q, want "could not start tasks of 3 jobs in a row" in it`, why)
	}
}

// A task that the host could not start counts against the host, whichever user it belongs to.
func TestBreakerCountsTasksThatTheHostCouldNotStart(t *testing.T) {
	r := newTries(t, 0)
	for range 3 {
		a, ok := r.taken("ada", cpu)
		if !ok {
			t.Fatalf("paused too early: %s", r.closed())
		}
		r.round(unstarted(a))
	}
	if why := r.closed(); !strings.Contains(why, "could not start tasks of 3 jobs in a row") {
		t.Fatalf(`closed = %q, want "could not start tasks of 3 jobs in a row" in it`, why)
	}
	r.round(worker.Drain{}) // resume
	if _, ok := r.taken("ada", cpu); !ok {
		t.Fatal("resume did not end the pause")
	}
}

// A command that does not exist does not count against the host.
func TestBreakerIgnoresMissingCommands(t *testing.T) {
	r := newTries(t, 0)
	for range 10 {
		a, ok := r.taken("ada", cpu)
		if !ok {
			t.Fatalf("paused: %s", r.closed())
		}
		r.round(driver.Event{Attempt: a, Kind: driver.Failed, Exit: job.Exit{State: job.Failed, Code: 127}})
	}
}

// If tasks fail on one GPU, that GPU is paused, and not the host.
func TestBreakerPausesOneGPU(t *testing.T) {
	r := newTries(t, 2)
	for _, user := range []string{"ada", "bea", "ada", "cyd", "ada"} {
		r.fails(user, gpus(1)) // always the same one: the first that is free
	}
	v := r.core.View()
	if v.Closed.Word != "" || len(v.Quarantined) != 1 || !strings.Contains(v.Quarantined["GPU-a"], "5 different jobs failed in a row") {
		t.Fatalf("closed %v, in quarantine %v, want no pause of the host, and GPU-a because of 5 different jobs", v.Closed, v.Quarantined)
	}
	a, ok := r.taken("bob", gpus(1))
	if !ok {
		t.Fatal("the other GPU is not allocated")
	}
	r.round(exited(a, 0))
	if _, ok := r.taken("bob", gpus(2)); ok {
		t.Fatal("the paused GPU is allocated")
	}
	r.pass(31 * time.Second)
	if v := r.core.View(); len(v.Quarantined) != 0 {
		t.Fatalf("in quarantine after the pause: %v, want none", v.Quarantined)
	}
}
