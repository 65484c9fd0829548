package loop

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler"
	"github.com/musterhq/muster/scheduler/state/statetest"
	"github.com/musterhq/muster/scheduler/step"
)

// fakeJournal commits records in its own goroutine.
type fakeJournal struct {
	deliver func(job.Committed)
	queue   chan []job.Record // bounded, like that of the journal
	delay   time.Duration

	mu      sync.Mutex
	applied uint64          // guarded by mu
	rows    statetest.Disk  // guarded by mu
	full    error           // the error of Propose; guarded by mu
	broken  error           // the error of Rows; guarded by mu
	entries []job.Committed // guarded by mu
}

var errDiskFull = errors.New("no space left on device")

func newFakeJournal() *fakeJournal {
	return &fakeJournal{queue: make(chan []job.Record, step.MaxOutgoing), delay: time.Millisecond, rows: statetest.Disk{}}
}

func (j *fakeJournal) Propose(records ...job.Record) error {
	j.mu.Lock()
	err := j.full
	j.mu.Unlock()
	if err != nil && slices.ContainsFunc(records, job.BeginsWork) {
		return err // records that end work may use the last of the disk space
	}
	select {
	case j.queue <- slices.Clone(records):
		return nil
	default:
		return step.ErrBusy
	}
}

func (j *fakeJournal) Raise(job.Epoch) {}

func (j *fakeJournal) ReadIndex(done func(job.Epoch, error)) { go done(job.Epoch{Term: 1}, nil) }

func (j *fakeJournal) Save(applied uint64, rows []job.Row, gone []job.ID) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.full != nil {
		return j.full
	}
	j.applied = applied
	j.rows.Save(rows, gone)
	return nil
}

func (j *fakeJournal) Rows(id job.ID, from, to string) ([]job.Row, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.rows.Rows(id, from, to), j.broken
}

func (j *fakeJournal) File(id job.ID) ([]byte, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.rows.File(id), j.broken
}

// breaks makes the disk unreadable, or readable again.
func (j *fakeJournal) breaks(err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.broken = err
}

func (j *fakeJournal) fill(err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.full = err
}

func (j *fakeJournal) run(ctx context.Context) {
	j.commit(job.Committed{Lead: true})
	for {
		select {
		case <-ctx.Done():
			return
		case records := <-j.queue:
			time.Sleep(j.delay) // one sync for all waiting records; the clock is that of the bubble
			for more := true; more; {
				j.commit(job.Committed{Records: records})
				select {
				case records = <-j.queue:
				default:
					more = false
				}
			}
		}
	}
}

func (j *fakeJournal) commit(m job.Committed) {
	j.mu.Lock()
	m.Index, m.Epoch = uint64(len(j.entries)+1), job.Epoch{Term: 1}
	j.entries = append(j.entries, m)
	j.mu.Unlock()
	j.deliver(m)
}

// fakeHost stands for all hosts: it commits to every offer, and its tasks end after a while.
type fakeHost struct {
	loop  *Loop
	runs  time.Duration
	store string                                  // of a host that connects now; "": s
	cpus  int                                     // likewise; 0: 64
	send  func(job.Peer, contract.ToWorker) error // in place of Send, if it is set

	mu     sync.Mutex
	wanted []job.Peer // guarded by mu
	starts int        // guarded by mu
}

// fakeParents follows nothing.
type fakeParents struct{}

func (fakeParents) Follow([]job.Follow) {}
func (fakeParents) Unfollow([]job.ID)   {}

type fakeAllotter struct{}

func (fakeAllotter) Allot([]step.AllotmentAsk) {}

func (h *fakeHost) Unwant(job.Peer) {}

func (h *fakeHost) Want(p job.Peer) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.wanted = append(h.wanted, p)
}

func (h *fakeHost) Send(to job.Peer, m contract.ToWorker) error {
	if h.send != nil {
		return h.send(to, m)
	}
	switch m := m.(type) {
	case contract.Offer:
		return h.loop.FromWorker(to, contract.Commit{Offer: m.ID, Attempt: m.Attempt, Group: m.Group, Session: 1})
	case contract.Start:
		h.mu.Lock()
		h.starts++
		h.mu.Unlock()
		e := contract.Event{Attempt: m.Attempt, Group: m.Group, N: 1, State: job.Running}
		time.AfterFunc(h.runs, func() {
			now := time.Now()
			e := contract.Event{Attempt: m.Attempt, Group: m.Group, N: 2, State: job.Succeeded}
			e.Exit = &job.Exit{State: job.Succeeded, Started: true, Began: now.Add(-h.runs), Ended: now}
			_ = h.loop.FromWorker(to, e)
			_ = h.loop.FromWorker(to, contract.Availability{Free: contract.Free{CPUs: 64}})
		})
		return h.loop.FromWorker(to, e)
	default:
		return nil
	}
}

func (h *fakeHost) connect(p job.Peer) {
	h.loop.SessionUp(p, contract.Path{})
	_ = h.loop.FromWorker(p, contract.Hello{
		Profile: contract.Profile{Name: string(p), Store: cmp.Or(h.store, "s"), CPUs: cmp.Or(h.cpus, 64), Drivers: []string{"exec"}, Worker: true}, Free: contract.Free{CPUs: cmp.Or(h.cpus, 64)},
	})
}

type fakeFinder struct{ peers []job.Peer }

func (f fakeFinder) Members() []job.Peer { return f.peers }

func (f fakeFinder) Find(ctx context.Context, _ string, _ int) <-chan job.Peer {
	out := make(chan job.Peer)
	go func() {
		defer close(out)
		for _, p := range f.peers {
			select {
			case out <- p:
			case <-ctx.Done():
				return
			}
		}
	}()
	return out
}

type fakeAnnouncer struct{}

func (fakeAnnouncer) Announce([]step.Want) {}

// loopRig is a running loop with fake neighbours.
type loopRig struct {
	loop    *Loop
	journal *fakeJournal
	host    *fakeHost
}

// withLoop runs f with a running loop in a bubble of synctest.
func withLoop(t *testing.T, finds []job.Peer, f func(t *testing.T, h loopRig)) {
	t.Helper()
	withLoopUntil(t, finds, nil, f)
}

// withLoopUntil is withLoop with a loop that ends with an error.
func withLoopUntil(t *testing.T, finds []job.Peer, end error, f func(t *testing.T, h loopRig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		h := loopRig{journal: newFakeJournal(), host: &fakeHost{runs: time.Second}}
		cfg := step.DefaultConfig()
		cfg.Self, cfg.Group, cfg.Seed, cfg.KeepWhole = "here", 7, 1, 2
		loop, err := New(cfg, scheduler.Saved{}, Needs{Journal: h.journal, Sessions: h.host, Finder: fakeFinder{finds}, Announcer: fakeAnnouncer{}, Parents: fakeParents{}, Allotter: fakeAllotter{}}, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		h.loop, h.host.loop, h.journal.deliver = loop, loop, loop.Deliver
		ctx, stop := context.WithCancel(t.Context())
		var all sync.WaitGroup
		all.Go(func() { h.journal.run(ctx) })
		all.Go(func() {
			if err := loop.Run(ctx); !errors.Is(err, end) {
				t.Errorf("Run = %v, want %v", err, end)
			}
		})
		f(t, h)
		stop()
		all.Wait()
		if _, err := loop.Submit(t.Context(), request("late")); !errors.Is(err, step.ErrStopped) {
			t.Errorf("Submit after the end = %v, want ErrStopped", err)
		}
	})
}

func request(name string) job.Submission {
	s := job.DefaultSpec()
	s.Name, s.Command = name, []string{"true"}
	return job.Submission{User: "amy", Spec: s}
}

func TestLoopRunsJobsToTheirEnd(t *testing.T) {
	withLoop(t, nil, func(t *testing.T, h loopRig) {
		h.host.connect("here")
		changes, err := h.loop.Watch(t.Context(), job.Query{})
		if err != nil {
			t.Fatal(err)
		}
		const n = 300
		var all sync.WaitGroup
		for i := range n {
			all.Go(func() {
				if _, err := h.loop.Submit(t.Context(), request(fmt.Sprint("j", i))); err != nil {
					t.Errorf("Submit = %v", err)
				}
			})
		}
		ends := map[job.ID]bool{}
		for len(ends) < n {
			select {
			case j := <-changes:
				if j.State() == job.Succeeded {
					ends[j.ID] = true
				}
			case <-time.After(time.Hour):
				t.Fatalf("%d of %d jobs ended, want all of them", len(ends), n)
			}
		}
		all.Wait()
		list, err := h.loop.Jobs(t.Context(), job.Query{States: []job.State{job.Succeeded}, User: "amy", Name: "j1?"})
		if err != nil || len(list) != 10 {
			t.Errorf("Jobs = %d, %v; want 10", len(list), err)
		}
		h.journal.mu.Lock()
		defer h.journal.mu.Unlock()
		if len(h.journal.rows) != n {
			t.Errorf("%d rows are saved, want %d", len(h.journal.rows), n)
		}
		for id := range h.journal.rows {
			if j, _ := h.journal.rows.Job(id); j.State() != job.Succeeded {
				t.Errorf("the row of %s says %s, want %v", id, j.State(), job.Succeeded)
			}
		}
	})
}

func TestLoopStartsWithinMilliseconds(t *testing.T) {
	withLoop(t, nil, func(t *testing.T, h loopRig) {
		h.host.connect("here")
		synctest.Wait()
		began := time.Now()
		if _, err := h.loop.Submit(t.Context(), request("a")); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		time.Sleep(2 * h.journal.delay)
		synctest.Wait()
		h.host.mu.Lock()
		defer h.host.mu.Unlock()
		if took := time.Since(began); h.host.starts != 1 || took > 5*time.Millisecond {
			t.Errorf("%d starts after %s, want 1 and at most %v", h.host.starts, took, 5*time.Millisecond)
		}
	})
}

// A submission waits for a host that was found and sends no Hello, but only for a second. Then it is accepted, as the
// host may be able to run the job. A host that has been silent for longer does not count.
func TestSubmissionWaitsASecondForAFoundHost(t *testing.T) {
	withLoop(t, []job.Peer{"far", "here"}, func(t *testing.T, h loopRig) {
		began := time.Now()
		_, err := h.loop.Submit(t.Context(), request("a"))
		if took := time.Since(began); err != nil || took < scheduler.MatchWait || took > scheduler.MatchWait+h.journal.delay {
			t.Errorf("Submit = %v after %s, want no error, at least %v and at most %v", err, took, scheduler.MatchWait, scheduler.MatchWait+h.journal.delay)
		}
		time.Sleep(scheduler.HelloWait)
		began = time.Now()
		_, err = h.loop.Submit(t.Context(), request("b"))
		var none *step.NoMatchError
		if !errors.As(err, &none) || none.Explanation.Reason.Word != job.ReasonNoPeers || time.Since(began) != scheduler.MatchWait {
			t.Errorf("Submit = %v after %s, want ErrNoPeers after a second", err, time.Since(began))
		}
		h.host.mu.Lock()
		wanted := slices.Compact(slices.Clone(h.host.wanted))
		h.host.mu.Unlock()
		if !slices.Equal(wanted, []job.Peer{"far"}) {
			t.Errorf("sessions wanted with %v", wanted)
		}
	})
}

func TestLoopAnswersWithTheErrorsOfTheCore(t *testing.T) {
	withLoop(t, nil, func(t *testing.T, h loopRig) {
		h.host.connect("here")
		h.journal.fill(errDiskFull)
		if _, err := h.loop.Submit(t.Context(), request("a")); !errors.Is(err, errDiskFull) {
			t.Errorf("Submit = %v, want what the journal said", err)
		}
		h.journal.fill(nil)
		j, err := h.loop.Submit(t.Context(), request("b"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := h.loop.Hold(t.Context(), job.NewID(7, 1), nil, false, ""); !errors.Is(err, step.ErrNotFound) {
			t.Errorf("Hold of nothing = %v, want ErrNotFound", err)
		}
		if _, err := h.loop.Job(t.Context(), job.NewID(7, 1)); !errors.Is(err, step.ErrNotFound) {
			t.Errorf("Job of nothing = %v, want ErrNotFound", err)
		}
		if _, err := h.loop.Submit(t.Context(), job.Submission{}); !errors.Is(err, step.ErrInvalid) {
			t.Errorf("Submit of nothing = %v, want ErrInvalid", err)
		}
		if _, err := h.loop.Cancel(t.Context(), j.ID, nil, "enough"); err != nil {
			t.Errorf("Cancel = %v", err)
		}
		x, err := h.loop.Why(t.Context(), j.ID)
		if err != nil || x.Job != j.ID || len(x.Now) != 1 {
			t.Errorf("Why = %+v, %v, want no error, Job %v and 1 Now", x, err, j.ID)
		}
		nodes, err := h.loop.Nodes(t.Context())
		if err != nil || len(nodes) != 1 || !nodes[0].Up {
			t.Errorf("Nodes = %+v, %v, want one node that is up", nodes, err)
		}
	})
}

// While the disk is full, ends are committed and waiting jobs stay. When there is space again, the waiting jobs run.
func TestFullDiskDelaysNewWorkOnly(t *testing.T) {
	withLoop(t, nil, func(t *testing.T, h loopRig) {
		h.host.connect("here")
		running, err := h.loop.Submit(t.Context(), request("running"))
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Millisecond)
		waiting := request("waiting")
		waiting.Spec.Hold = true
		held, err := h.loop.Submit(t.Context(), waiting)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(980 * time.Millisecond)
		h.journal.fill(errDiskFull)
		if _, err := h.loop.Hold(t.Context(), held.ID, nil, true, ""); err != nil {
			t.Fatal(err)
		}
		time.Sleep(30 * time.Second)
		r, _ := h.loop.Job(t.Context(), running.ID)
		w, _ := h.loop.Job(t.Context(), held.ID)
		if r.State() != job.Succeeded || w.State() != job.Pending || w.Tasks[0].Reason.Word != job.ReasonBackoff {
			t.Errorf("running is %s, waiting is %s for %s, want %v, %v and Word %v", r.State(), w.State(), w.Tasks[0].Reason, job.Succeeded, job.Pending, job.ReasonBackoff)
		}
		h.journal.fill(nil)
		time.Sleep(2 * time.Minute)
		if w, _ := h.loop.Job(t.Context(), held.ID); w.State() != job.Succeeded {
			t.Errorf("with room again, waiting is %s for %s, want %v", w.State(), w.Tasks[0].Reason, job.Succeeded)
		}
	})
}

// Rows that could not be saved are saved with the next ones.
func TestRowsThatCouldNotBeSavedAreSavedLater(t *testing.T) {
	withLoop(t, nil, func(t *testing.T, h loopRig) {
		h.host.connect("here")
		synctest.Wait()
		r := request("a")
		r.Spec.Hold = true
		if _, err := h.loop.Submit(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		h.journal.fill(errDiskFull)
		h.journal.commit(job.Committed{Records: []job.Record{job.SubmitRecord{Job: job.NewID(7, 5), Spec: r.Spec}}})
		synctest.Wait()
		h.journal.fill(nil)
		h.journal.commit(job.Committed{Records: []job.Record{job.SubmitRecord{Job: job.NewID(7, 6), Spec: r.Spec}}})
		synctest.Wait()
		h.journal.mu.Lock()
		defer h.journal.mu.Unlock()
		if len(h.journal.rows) != 3 || h.journal.applied != uint64(len(h.journal.entries)) {
			t.Errorf("%d rows, applied %d of %d, want 3 and %v", len(h.journal.rows), h.journal.applied, len(h.journal.entries), uint64(len(h.journal.entries)))
		}
	})
}

// A slow watcher gets the newest state. A watcher that has ended is forgotten.
func TestSlowWatcherGetsTheNewestState(t *testing.T) {
	withLoop(t, nil, func(t *testing.T, h loopRig) {
		h.host.connect("here")
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		j, err := h.loop.Submit(ctx, request("a"))
		if err != nil {
			t.Fatal(err)
		}
		slow, err := h.loop.Watch(ctx, job.Query{IDs: []job.ID{j.ID}})
		if err != nil {
			t.Fatal(err)
		}
		<-slow
		time.Sleep(time.Minute)
		var last job.Job
		for last.ID == "" || !last.State().Ended() {
			last = <-slow
		}
		if last.State() != job.Succeeded {
			t.Errorf("the last word is %s, want %v", last.State(), job.Succeeded)
		}
		stop()
		if _, more := <-slow; more {
			t.Error("a watch goes on after its context")
		}
		synctest.Wait()
	})
}

// News and messages of the daemon's own worker beyond a bound are refused.
func TestMailboxIsBounded(t *testing.T) {
	b := newMailbox()
	for i := range maxProgress {
		if !b.putNews(mail{event: step.Tick{}}) || !b.fromOwn("self", step.FromWorker{}) {
			t.Fatalf("message %d was refused", i)
		}
	}
	if b.putNews(mail{event: step.Tick{}}) || b.fromOwn("self", step.FromWorker{}) {
		t.Error("a message beyond the bound was taken")
	}
	if !b.call("amy", mail{event: step.Tick{}}) {
		t.Error("a request is refused although only messages fill the mailbox")
	}
	b.putEntry(step.Committed{})
	if got := len(b.take(nil)); got != maxProgress+1 {
		t.Errorf("took %d, want %v", got, maxProgress+1)
	}
}

// A replay waits while the mailbox is full. It goes on when the loop has taken the mail or has ended.
func TestReplayWaitsWhileTheMailboxIsFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newMailbox()
		put := 0
		var done sync.WaitGroup
		done.Go(func() {
			for range 2*maxEntries + 1 {
				b.putEntry(step.Committed{})
				put++
			}
		})
		synctest.Wait()
		if put != maxEntries {
			t.Fatalf("%d entries went in, want %d", put, maxEntries)
		}
		b.take(nil)
		synctest.Wait()
		if put != 2*maxEntries {
			t.Fatalf("%d entries went in, want %d", put, 2*maxEntries)
		}
		b.close()
		done.Wait()
	})
}

// A replay of large jobs also waits for the bytes of their job files.
func TestReplayWaitsForTheBytesOfLargeJobs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newMailbox()
		large := step.Committed{Committed: job.Committed{Records: []job.Record{job.SubmitRecord{Spec: job.Spec{Script: strings.Repeat("x", maxEntryBulk/2)}}}}}
		put := 0
		var done sync.WaitGroup
		done.Go(func() {
			for range 5 {
				b.putEntry(large)
				put++
			}
		})
		for _, want := range []int{2, 4, 5} {
			synctest.Wait()
			if put != want {
				t.Fatalf("%d entries went in, want %d", put, want)
			}
			b.take(nil)
		}
		done.Wait()
	})
}

func TestBadConfigIsRefused(t *testing.T) {
	good := step.DefaultConfig()
	good.Self, good.Group, good.Seed = "p", 7, 1
	if err := good.Validate(); err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(*step.Config){
		"self": func(c *step.Config) { c.Self = "" }, "group": func(c *step.Config) { c.Group = 0 }, "seed": func(c *step.Config) { c.Seed = 0 },
		"max jobs": func(c *step.Config) { c.MaxJobs = 0 }, "keep": func(c *step.Config) { c.KeepEnded = c.MaxJobs + 1 }, "keep whole": func(c *step.Config) { c.KeepWhole = -1 }, "keep for": func(c *step.Config) { c.KeepFor = 0 },
	} {
		bad := good
		spoil(&bad)
		if bad.Validate() == nil {
			t.Errorf("a configuration with a bad %s is valid", name)
		}
		if _, err := New(bad, scheduler.Saved{}, Needs{}, slog.New(slog.DiscardHandler)); err == nil {
			t.Errorf("New accepts a bad %s", name)
		}
	}
	if _, err := New(good, scheduler.Saved{}, Needs{}, slog.New(slog.DiscardHandler)); err == nil {
		t.Error("New accepts a configuration without neighbours")
	}
}
