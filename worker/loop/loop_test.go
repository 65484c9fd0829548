package loop_test

// The loop: it saves many events at once, carries out effects only after the save, and starts and ends.

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker"
	"github.com/musterhq/muster/worker/driver"
	"github.com/musterhq/muster/worker/leaseclock"
	"github.com/musterhq/muster/worker/loop"
)

// site implements all parts of a loop, in memory.
type site struct {
	t     *testing.T
	loop  *loop.Loop
	began time.Time

	mu      sync.Mutex
	slow    time.Duration                   // the time of a save; guarded by mu, as all fields below
	hung    chan struct{}                   // no Save returns before it is closed; nil: all return
	failing error                           // returned by Save and Load
	refuse  error                           // returned by Start and Adopt
	policy  error                           // returned by Admit
	records map[job.Attempt]contract.Record // on disk
	saves   int
	sent    []contract.ToScheduler
	calls   []string
	wants   []string
	polls   int
}

func (s *site) Save(put []contract.Record, gone []job.Attempt, _ []contract.Claim, _ bool) error {
	s.mu.Lock()
	slow, hung := s.slow, s.hung
	s.mu.Unlock()
	if hung != nil {
		<-hung
	}
	pause(slow)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failing != nil {
		return s.failing
	}
	s.saves++
	for _, r := range put {
		s.records[r.Attempt] = r
	}
	for _, a := range gone {
		delete(s.records, a)
	}
	return nil
}

func (s *site) Load() ([]contract.Record, []contract.Claim, error) { return nil, nil, s.failing }

func (s *site) Want(p job.Peer) { s.set(func() { s.wants = append(s.wants, "want "+string(p)) }) }

func (s *site) Unwant(p job.Peer) { s.set(func() { s.wants = append(s.wants, "unwant "+string(p)) }) }

func (s *site) Send(_ job.Peer, m contract.ToScheduler) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch m := m.(type) {
	case contract.Commit:
		if s.records[m.Attempt].Phase != contract.PhaseReserved {
			s.t.Errorf("Commit of %s sent before its record was on disk", m.Attempt)
		}
	case contract.Event:
		if s.records[m.Attempt].EventN < m.N && s.hung == nil {
			s.t.Errorf("event %d of %s sent before it was on disk", m.N, m.Attempt)
		}
	default:
	}
	s.sent = append(s.sent, m)
	return nil
}

func (s *site) called(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, what)
}

func (s *site) Start(t driver.Task) error {
	s.called("start " + t.Attempt.String())
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.records[t.Attempt].Phase != contract.PhaseStarted {
		s.t.Errorf("%s started before its record was on disk", t.Attempt)
	}
	return s.refuse
}

func (s *site) Stop(a job.Attempt, _ time.Duration, _ string) error {
	s.called("stop " + a.String())
	return nil
}

func (s *site) Signal(a job.Attempt, _ int) error {
	s.called("signal " + a.String())
	return nil
}

func (s *site) Extend(map[job.Attempt]leaseclock.BootTime) error {
	s.called("extend")
	return nil
}

func (s *site) Forget(a job.Attempt) error {
	s.called("forget " + a.String())
	return nil
}

func (s *site) NeverBegun(job.Attempt) bool { return false }

func (s *site) Adopt(context.Context) ([]driver.Event, error) { return nil, s.refuse }

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{t: t, records: map[job.Attempt]contract.Record{}, began: time.Now()}
	l, err := loop.New(config(0), loop.Parts{
		Ledger: s, Sender: s, Driver: s, Adopter: s,
		Poll: func() { s.polls++ },
		Admit: func(string, job.Spec) error {
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.policy
		},
		Clocks: func() leaseclock.Moment {
			return leaseclock.Moment{Boot: leaseclock.BootTime(time.Hour + time.Since(s.began)), Wall: time.Now()}
		},
	}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	s.loop = l
	return s
}

// pause lets fake time pass.
func pause(d time.Duration) { <-time.NewTimer(d).C }

// with runs f while the loop runs, on a fake clock.
func with(t *testing.T, f func(t *testing.T, s *site)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- s.loop.Run(ctx) }()
		f(t, s)
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run = %v", err)
		}
	})
}

// meet opens a session and answers the renewal.
func (s *site) meet() contract.Session {
	s.t.Helper()
	s.loop.Up(amy, contract.Path{})
	s.loop.Deliver(amy, contract.Owns{Groups: []contract.GroupEpoch{{Group: group, Epoch: epoch(1), Founding: proof}}})
	synctest.Wait()
	all := take[contract.Renew](s)
	if len(all) != 1 {
		s.t.Fatalf("asked for renewal %d times, want once", len(all))
	}
	s.loop.Deliver(amy, answerTo(all[0], 1, true))
	return all[0].Session
}

// take returns the sent messages of one type, and drops all others.
func take[T contract.ToScheduler](s *site) []T {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []T
	for _, m := range s.sent {
		if v, ok := m.(T); ok {
			out = append(out, v)
		}
	}
	s.sent = nil
	return out
}

func (s *site) set(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

func TestLoopSharesOneSaveAmongManyEvents(t *testing.T) {
	with(t, func(t *testing.T, s *site) {
		s.meet()
		synctest.Wait()
		s.set(func() { s.slow, s.saves = 10*time.Millisecond, 0 })
		const n = 60
		for i := range uint64(n) {
			s.loop.Deliver(amy, offer(i+1, attempt(i+1, 1), job.Resources{Memory: 1 << 20}))
		}
		pause(50 * time.Millisecond)
		if c := take[contract.Commit](s); len(c) != n {
			t.Fatalf("%d commits, want %d", len(c), n)
		}
		s.set(func() {
			if s.saves > 3 {
				t.Errorf("%d saves for %d offers, want at most 3", s.saves, n)
			}
		})
	})
}

// One scheduler sends large job files as fast as it can while the disk is slow. It waits, with a few MiB in memory, and
// messages of another scheduler go first.
func TestFloodOfOneSchedulerDelaysNoOther(t *testing.T) {
	with(t, func(t *testing.T, s *site) {
		s.meet()
		synctest.Wait()
		s.set(func() { s.slow = 9 * time.Second })
		s.loop.Deliver(amy, offer(1, attempt(1, 1), cpu)) // now the loop waits for the disk
		synctest.Wait()
		large := start(7, attempt(7, 1), 1, cpu)
		sp := spec(cpu)
		sp.Script = strings.Repeat("#", 1<<19)
		large.File = file(sp)
		const flood = 100
		sent, done := 0, make(chan struct{})
		go func() {
			defer close(done)
			s.loop.Up("mallory", contract.Path{})
			for range flood {
				s.loop.Deliver("mallory", large)
				sent++
			}
		}()
		synctest.Wait()
		if sent > 4 {
			t.Errorf("%d messages of half a MiB wait, want at most 4", sent)
		}
		before := time.Now()
		s.loop.Deliver(amy, offer(2, attempt(2, 1), cpu))
		if time.Since(before) > 0 {
			t.Error("a message of another scheduler had to wait")
		}
		s.set(func() { s.slow = 0 })
		pause(10 * time.Second) // not 9 s, when the first save ends: it is undefined which timer fires first
		if c := take[contract.Commit](s); len(c) != 2 {
			t.Errorf("%d commits, want 2", len(c))
		}
		if <-done; sent != flood {
			t.Errorf("%d of %d messages were accepted, want all", sent, flood)
		}
	})
}

func TestLoopRunsATaskToItsEnd(t *testing.T) {
	with(t, func(t *testing.T, s *site) {
		session := s.meet()
		a := attempt(1, 1)
		s.set(func() { s.slow = time.Millisecond })
		s.loop.Deliver(amy, offer(9, attempt(9, 1), cpu))
		synctest.Wait() // the loop is saving, so the next events share a step
		s.loop.Deliver(amy, offer(1, a, cpu))
		s.loop.Deliver(amy, start(1, a, session, cpu))
		pause(10 * time.Millisecond)
		s.set(func() { s.slow = 0 })
		s.loop.Deliver(amy, contract.Release{Offer: 9})
		synctest.Wait()
		if ev := take[contract.Event](s); len(ev) != 1 || ev[0].Refused == "" {
			t.Fatalf("a Start before its Commit: %+v, want it refused", ev)
		}
		a = attempt(2, 1)
		s.loop.Deliver(amy, offer(2, a, cpu))
		synctest.Wait()
		s.loop.Deliver(amy, start(2, a, session, cpu))
		synctest.Wait()
		s.loop.Driven(driver.Event{Attempt: a, Kind: driver.Started, PID: 9})
		s.loop.Deliver(amy, contract.Signal{Attempt: a, Group: group, Epoch: epoch(1), Number: 10})
		synctest.Wait()
		s.loop.Deliver(amy, contract.Cancel{Attempt: a, Group: group, Epoch: epoch(1)})
		synctest.Wait()
		recs, err := s.loop.Attempts(t.Context())
		if err != nil || len(recs) != 2 || recs[1].PID != 9 {
			t.Fatalf("attempts = %+v, %v, want no error, 2 of them and [1].PID 9", recs, err)
		}
		s.loop.Driven(exited(a))
		s.loop.Deliver(amy, contract.Ack{Attempt: a, N: 4})
		synctest.Wait()
		var states []job.State
		for _, ev := range take[contract.Event](s) {
			states = append(states, ev.State)
		}
		if len(states) != 4 || states[3] != job.Cancelled {
			t.Fatalf("told %v, want 4 of them and [3] %v", states, job.Cancelled)
		}
		s.loop.Deliver(amy, contract.Ack{Attempt: a, N: 4})
		synctest.Wait()
		want := "start X signal X stop X forget X"
		s.set(func() {
			// The tombstone of the first attempt is not acknowledged.
			if have := strings.Join(s.wants, " "); have != "want amy" {
				t.Errorf("wanted sessions: %q", have)
			}
			if have := strings.ReplaceAll(strings.Join(s.calls, " "), a.String(), "X"); have != want {
				t.Errorf("driver was asked %q, want %q", have, want)
			}
		})
	})
}

func TestLoopReportsATaskThatTheDriverRefuses(t *testing.T) {
	with(t, func(t *testing.T, s *site) {
		session := s.meet()
		s.set(func() { s.refuse = errors.New("runner is gone") })
		s.loop.Deliver(amy, offer(1, attempt(1, 1), cpu))
		synctest.Wait()
		s.loop.Deliver(amy, start(1, attempt(1, 1), session, cpu))
		synctest.Wait()
		ev := take[contract.Event](s)
		if len(ev) != 2 || ev[1].Exit == nil || ev[1].Exit.Code != 125 || ev[1].Exit.Reason != "runner is gone" {
			t.Fatalf("events = %+v, want a second with exit code 125, \"runner is gone\"", ev)
		}
		s.set(func() { s.refuse = nil })
	})
}

func TestLoopCommitsAgainOnceTheDiskWorks(t *testing.T) {
	with(t, func(t *testing.T, s *site) {
		s.meet()
		synctest.Wait()
		s.set(func() { s.failing = errDisk })
		s.loop.Deliver(amy, offer(1, attempt(1, 1), cpu))
		synctest.Wait()
		if d := take[contract.Decline](s); len(d) != 1 || !strings.Contains(d[0].Reason.Detail, "no space left") {
			t.Fatalf(`declines = %+v, want 1 of them and [0].Reason.Detail "no space left" in it`, d)
		}
		s.set(func() { s.failing = nil })
		pause(2 * time.Second)
		s.loop.Deliver(amy, offer(2, attempt(2, 1), cpu))
		synctest.Wait()
		if c := take[contract.Commit](s); len(c) != 1 {
			t.Fatalf("commits = %+v, want 1 of them", c)
		}
	})
}

func TestLoopRenewsLeasesWithoutEvents(t *testing.T) {
	with(t, func(t *testing.T, s *site) {
		s.meet()
		pause(contract.RenewEvery)
		if r := take[contract.Renew](s); len(r) != 1 {
			t.Fatalf("asked %d times, want 1", len(r))
		}
	})
}

func TestLoopEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- s.loop.Run(ctx) }()
		if v, err := s.loop.View(t.Context()); err != nil || v.Free.CPUs != 8 {
			t.Fatalf("view = %+v, %v, want no error and Free.CPUs 8", v, err)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run = %v, want nil", err)
		}
		for range 5000 { // more events than may wait
			s.loop.Down(amy)
		}
		if _, err := s.loop.Attempts(t.Context()); !errors.Is(err, loop.ErrStopped) {
			t.Errorf("Attempts = %v, want loop.ErrStopped", err)
		}
	})
}

func TestLoopReportsWhyItCannotStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		s.failing = errDisk
		if err := s.loop.Run(t.Context()); !errors.Is(err, errDisk) {
			t.Errorf("Run = %v, want the ledger's error", err)
		}
		if _, err := s.loop.View(t.Context()); !errors.Is(err, loop.ErrStopped) {
			t.Errorf("View = %v, want loop.ErrStopped", err)
		}
		s = newSite(t)
		s.refuse = errors.New("no runner")
		if err := s.loop.Run(t.Context()); !errors.Is(err, s.refuse) {
			t.Errorf("Run = %v, want the driver's error", err)
		}
	})
}

// A caller with its own clock calls each turn itself, without Run.
func TestLoopCanBeDrivenByTurns(t *testing.T) {
	s := newSite(t)
	now := leaseclock.Moment{Boot: leaseclock.BootTime(time.Hour), Wall: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	l, err := loop.New(config(1), loop.Parts{
		Ledger: s, Sender: s, Driver: s, Adopter: s, Clocks: func() leaseclock.Moment { return now },
	}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	says := func(m contract.ToWorker) { l.Turn(t.Context(), worker.Message{From: amy, Msg: m}) }
	l.Turn(t.Context(), worker.Up{Peer: amy})
	says(contract.Owns{Groups: []contract.GroupEpoch{{Group: group, Epoch: epoch(1), Founding: proof}}})
	renew := take[contract.Renew](s)[0]
	says(answerTo(renew, 1, true))
	says(offer(1, attempt(1, 1), gpus(1)))
	says(start(1, attempt(1, 1), renew.Session, gpus(1)))
	if ev := take[contract.Event](s); len(ev) != 1 || ev[0].State != job.Starting || s.calls[0] != "start "+attempt(1, 1).String() {
		t.Fatalf("events = %+v, calls = %v, want 1 of them, [0].State %v and [0] %v", ev, s.calls, job.Starting, "start "+attempt(1, 1).String())
	}
	at, ok := l.Wake()
	if !ok || at <= now.Boot {
		t.Fatalf("wake = %v, %v at %v, want a later time", at, ok, now.Boot)
	}
	now.Boot, now.Wall = at, now.Wall.Add(at.Sub(now.Boot))
	take[contract.Renew](s)
	l.Turn(t.Context())
	if next, _ := l.Wake(); next <= at {
		t.Fatalf("wake = %v after a turn at %v, want a later one", next, at)
	}
}

// While the disk hangs the loop goes on. A task that was about to start is refused and never starts. Another one is
// cancelled and its end is reported. Offers are declined with the reason, and leases are renewed. Once the disk works
// again, so does all the rest.
func TestLoopGoesOnWhileTheDiskHangs(t *testing.T) {
	with(t, func(t *testing.T, s *site) {
		session := s.meet()
		runs, starts := attempt(1, 1), attempt(2, 1)
		s.loop.Deliver(amy, offer(1, runs, cpu))
		s.loop.Deliver(amy, offer(2, starts, cpu))
		synctest.Wait()
		s.loop.Deliver(amy, start(1, runs, session, cpu))
		synctest.Wait()
		s.loop.Driven(driver.Event{Attempt: runs, Kind: driver.Started, PID: 9})
		synctest.Wait()
		take[contract.Event](s)
		thaw := make(chan struct{})
		s.set(func() { s.hung, s.calls = thaw, nil })
		s.loop.Deliver(amy, start(2, starts, session, cpu))
		pause(11 * time.Second)
		const why = "the disk of the data directory does not answer"
		if ev := take[contract.Event](s); len(ev) != 1 || ev[0].Attempt != starts || !strings.Contains(ev[0].Refused, why) {
			t.Fatalf("told %+v, want that the start was refused", ev)
		}
		s.loop.Deliver(amy, contract.Cancel{Attempt: runs, Group: group, Epoch: epoch(1)})
		synctest.Wait()
		s.set(func() {
			if have := strings.Join(s.calls, " "); have != "stop "+runs.String() {
				t.Errorf("driver was asked %q, want a stop", have)
			}
		})
		s.loop.Driven(exited(runs))
		pause(2 * time.Second)
		if ev := take[contract.Event](s); len(ev) == 0 || ev[len(ev)-1].State != job.Cancelled {
			t.Errorf("told %+v, want the end of the cancelled task", ev)
		}
		s.loop.Deliver(amy, offer(3, attempt(3, 1), cpu))
		synctest.Wait()
		if d := take[contract.Decline](s); len(d) != 1 || !strings.Contains(d[0].Reason.Detail, why) {
			t.Errorf("declines %+v, want 1 of them and [0].Reason.Detail %v in it", d, why)
		}
		pause(time.Minute)
		if r := take[contract.Renew](s); len(r) == 0 {
			t.Error("no lease was renewed")
		}
		close(thaw)
		s.set(func() { s.hung = nil })
		pause(2 * time.Second)
		s.set(func() {
			if p := s.records[starts].Phase; p != contract.PhaseRefused {
				t.Errorf("the start that was refused is %v on disk, want %v", p, contract.PhaseRefused)
			}
		})
		take[contract.Commit](s)
		s.loop.Deliver(amy, offer(4, attempt(4, 1), cpu))
		synctest.Wait()
		if c := take[contract.Commit](s); len(c) != 1 {
			t.Errorf("%d commits once the disk answers, want 1", len(c))
		}
		s.set(func() {
			for _, call := range s.calls {
				if call == "start "+starts.String() {
					t.Error("the refused start was carried out")
				}
			}
		})
	})
}

// The loop asks the policy in the same round, without a timer.
func TestLoopAsksThePolicyInTheSameRound(t *testing.T) {
	with(t, func(t *testing.T, s *site) {
		session := s.meet()
		s.set(func() { s.policy = errors.New("not today") })
		for i := range uint64(2) {
			s.loop.Deliver(amy, offer(i+1, attempt(i+1, 1), cpu))
			synctest.Wait()
			before := time.Now()
			s.loop.Deliver(amy, start(i+1, attempt(i+1, 1), session, cpu))
			synctest.Wait()
			ev := take[contract.Event](s)
			if len(ev) != 1 || (ev[0].Refused == "not admitted: not today") != (i == 0) || time.Since(before) != 0 {
				t.Fatalf("events = %+v after %v, want one at once, refused the first time alone", ev, time.Since(before))
			}
			s.set(func() { s.policy = nil })
		}
	})
}
