package scheduler

// Many hosts: what the scheduler knows of them is bounded, and no host gets offers without a pause.

import (
	"fmt"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler/fleet"
	"github.com/musterhq/muster/scheduler/step"
)

// declineAll declines every offer for this reason until there are no more. It returns their number.
func (x *bench) declineAll(word string) (offers int) {
	for len(x.sent) > 0 {
		sent := x.sent
		x.sent = nil
		for _, o := range sent {
			if m, ok := o.Msg.(contract.Offer); ok {
				offers++
				x.step(step.FromWorker{Peer: o.To, Msg: contract.Decline{
					Offer: m.ID, Attempt: m.Attempt, Reason: job.Reason{Word: word, Detail: "no"}, Free: contract.Free{CPUs: 32},
				}})
			}
		}
	}
	return offers
}

// pass lets time pass and performs every step that is due. Every offer is declined.
func (x *bench) pass(d time.Duration, word string) (offers int) {
	for end := x.now.Add(d); x.now.Before(end); {
		offers += x.declineAll(word)
		wake := x.core.Wake()
		if wake.IsZero() || wake.After(end) {
			wake = end
		}
		x.now = wake
		x.step()
	}
	return offers
}

// A task that every host refuses is offered to each host once, and again after a growing pause. In earlier versions 17
// hosts got offers without any pause.
func TestTaskThatAllHostsRefuseIsOfferedLessAndLessOften(t *testing.T) {
	for _, hosts := range []int{16, 17, 100} {
		for _, word := range []string{job.ReasonQuota, "Admission"} {
			t.Run(fmt.Sprint(hosts, word), func(t *testing.T) {
				x := newBench(t, hosts, 32)
				x.step(step.Submit{Token: 1, Submission: job.Submission{User: "amy", Spec: benchSpec(0)}})
				if n := x.pass(10*time.Second, word); n < hosts/2 || n > 8*hosts {
					t.Errorf("%d offers in 10 s, want at least %v and at most %v", n, hosts/2, 8*hosts)
				}
				x.pass(10*time.Minute, word)
				if n := x.pass(10*time.Minute, word); n > 11*hosts {
					t.Errorf("%d offers in 10 min, want at most %v", n, 11*hosts)
				}
			})
		}
	}
}

// A host that reports free capacity and declines for lack of it gets the next offers only after a pause.
func TestHostThatDeclinesDespiteItsReportPauses(t *testing.T) {
	x := newBench(t, 1, 32)
	x.step(step.Submit{Token: 1, Submission: job.Submission{User: "amy", Spec: benchSpec(0)}})
	offers := 0
	for range 10_000 { // 10 s
		x.now = x.now.Add(time.Millisecond)
		x.step(step.FromWorker{Peer: "w0", Msg: contract.Availability{Free: contract.Free{CPUs: 32}}})
		for _, o := range x.sent {
			if m, ok := o.Msg.(contract.Offer); ok {
				offers++
				x.step(step.FromWorker{Peer: "w0", Msg: contract.Decline{Offer: m.ID, Attempt: m.Attempt, Reason: job.Reason{Word: job.ReasonResources}}})
			}
		}
		x.sent = nil
	}
	if offers > 2*missesMost {
		t.Errorf("%d offers in 10 s, want at most %v", offers, 2*missesMost)
	}
}

// A host that lets nothing queue, for instance because its disk is full, gets an offer again after its pause, even if
// it sends nothing in the meantime.
func TestSilentHostIsOfferedAgainAfterItsPause(t *testing.T) {
	x := newBench(t, 1, 1)
	x.step(step.FromWorker{Peer: "w0", Msg: contract.Availability{}})
	for i := range fleet.MaxQueued {
		x.tok++
		x.step(step.Submit{Token: x.tok, Submission: job.Submission{User: "amy", Spec: benchSpec(i)}})
	}
	for _, o := range x.sent {
		if m, ok := o.Msg.(contract.Offer); ok {
			x.step(step.FromWorker{Peer: "w0", Msg: contract.Decline{Offer: m.ID, Attempt: m.Attempt, Reason: job.Reason{Word: job.ReasonResources, Detail: "ledger"}}})
		}
	}
	x.step(step.FromWorker{Peer: "w0", Msg: contract.Availability{Free: contract.Free{CPUs: 32}}})
	x.sent = nil
	for end := x.now.Add(2 * retryMost); x.now.Before(end); {
		x.now = x.core.Wake()
		x.step()
		for _, o := range x.sent {
			if _, ok := o.Msg.(contract.Offer); ok {
				return
			}
		}
	}
	t.Errorf("nothing was offered for %s", 2*retryMost)
}

// 20,000 tasks of a user over the quota cost one offer for each time that the user's use falls, and a few bytes for
// each host.
func TestManyTasksOverAQuotaCostFewOffers(t *testing.T) {
	x := newBench(t, 15, 32)
	for i := range 20_000 {
		s := benchSpec(i % 50)
		x.tok++
		x.step(step.Submit{Token: x.tok, Submission: job.Submission{User: "amy", Spec: s}})
		if i%1000 == 0 {
			x.declineAll(job.ReasonQuota)
		}
	}
	x.declineAll(job.ReasonQuota)
	for _, w := range x.core.hosts.workers {
		if n := w.Quotas.Users(); n != 1 {
			t.Fatalf("%s remembers refusals of %d users, want 1", w.Peer, n)
		}
	}
	news := func(under []string) (offers int) {
		for range 100 {
			x.now = x.now.Add(100 * time.Millisecond)
			x.step(step.FromWorker{Peer: "w3", Msg: contract.Availability{Free: contract.Free{CPUs: 32}, UnderQuota: under}})
			offers += x.declineAll(job.ReasonQuota)
		}
		return offers
	}
	if n := news(nil); n != 0 {
		t.Errorf("%d offers though no host has said that she holds less, want 0", n)
	}
	if n := news([]string{"amy"}); n != 100 {
		t.Errorf("%d offers for 100 words that she holds less, want 100", n)
	}
	if n := x.pass(10*time.Minute, job.ReasonQuota); n > 15*2 {
		t.Errorf("%d offers in 10 minutes without a word, want at most %v", n, 15*2)
	}
}

// With many jobs and many hosts, no host is offered more than it has free, and every host is used.
func TestBurstOffersNoMoreThanIsFree(t *testing.T) {
	s := newStory(t, 0)
	s.do("lead")
	for i := range 200 {
		s.do(fmt.Sprintf("worker n%03d cpus=4", i))
	}
	for i := range 900 {
		s.do(fmt.Sprintf("submit j%d", i))
	}
	used := 0
	for _, w := range s.core.hosts.workers {
		claimed, queued := 0, 0
		for _, o := range s.core.offers.to(w) {
			if o.queued() {
				queued++
			} else {
				claimed += o.claim.Need.CPUs
			}
		}
		used += claimed
		if claimed > 4 || queued > fleet.MaxQueued {
			t.Errorf("%s is offered %d of 4 CPUs, and %d queue there, want at most 4 and at most %v", w.Peer, claimed, queued, fleet.MaxQueued)
		}
	}
	if used != 800 {
		t.Errorf("%d of 800 CPUs are used, want 800", used)
	}
}

// When the number of sessions is at its bound, a host found by a search replaces the least useful session. So a job
// that only this host can run is accepted.
func TestLeastUsefulSessionsAreClosed(t *testing.T) {
	x := newBench(t, 0, 0)
	var peers []job.Peer
	meet := func(p job.Peer, cpus int) {
		x.step(step.SessionUp{Peer: p}, step.FromWorker{Peer: p, Msg: contract.Hello{
			Profile: contract.Profile{Name: string(p), Store: "s", CPUs: cpus, Drivers: []string{"exec"}, Worker: true}, Free: contract.Free{CPUs: cpus},
		}})
	}
	for i := range maxSessions {
		peers = append(peers, job.Peer(fmt.Sprintf("w%d", i+1)))
	}
	x.step(step.Found{Class: "worker", Peers: peers})
	for _, p := range peers[1:] {
		meet(p, 4)
	}
	s := benchSpec(0)
	s.NodeList = []string{string(peers[7])} // so that one session is in use
	x.step(step.Submit{Token: 1, Submission: job.Submission{Spec: s}})
	x.serve()
	x.sent = nil
	x.now = x.now.Add(settleFor)
	big := benchSpec(0)
	big.Resources.CPUs = 64
	x.core.Step(x.now, step.Submit{Token: 2, Submission: job.Submission{Spec: big}})
	fx := x.core.Step(x.now, step.Found{Class: "cpu/32", Peers: []job.Peer{"in place of the one in use", "big"}})
	if len(fx.Want) != 2 || len(fx.Unwant) != 1 || fx.Unwant[0] != peers[0] {
		t.Fatalf("want %v, unwant %v; %s never came", fx.Want, fx.Unwant, peers[0])
	}
	x.now = x.now.Add(time.Millisecond)
	fx = x.core.Step(x.now, step.SessionUp{Peer: "big"}, step.FromWorker{Peer: "big", Msg: contract.Hello{
		Profile: contract.Profile{Name: "big", Store: "s", CPUs: 64, Drivers: []string{"exec"}, Worker: true}, Free: contract.Free{CPUs: 64},
	}})
	x.now = x.now.Add(MatchWait)
	for _, r := range x.core.Step(x.now).Reply {
		if r.Err != nil {
			t.Fatal(r.Err)
		}
	}
	if len(fx.Propose) != 1 {
		t.Fatalf("the job was not accepted: %+v, want 1 Propose", fx)
	}
	// All other sessions are closed when they were not used for an hour.
	x.now = x.now.Add(idleFor)
	gone := map[job.Peer]bool{}
	for range 120 {
		x.now = x.now.Add(giveUpEvery / 2)
		for _, p := range x.core.Step(x.now).Unwant {
			gone[p] = true
		}
	}
	if len(gone) < maxSessions-2 || len(x.core.contact.wanted) > 2 {
		t.Errorf("%d of %d sessions were given up, %d are wanted", len(gone), maxSessions, len(x.core.contact.wanted))
	}
}

// The wall clock is set back by an hour while jobs wait. Their order stays, and no age is negative.
func TestWallClockSetBackKeepsTheOrderOfJobs(t *testing.T) {
	x := newBench(t, 1, 1)
	cfg := x.core.turn.Config
	var saved Saved
	for i, at := range []time.Duration{-2 * time.Hour, -time.Hour, time.Hour} { // the last by a clock that was ahead
		add(t, &saved, job.Job{ID: job.NewID(cfg.Group, uint64(i+1)), Spec: benchSpec(0), Submitted: storyStart.Add(at), Tasks: []job.Task{{State: job.Pending}}})
	}
	if err := saved.End(); err != nil {
		t.Fatal(err)
	}
	c := NewCore(cfg, saved, storyStart)
	c.Step(storyStart, step.Committed{Committed: job.Committed{Index: 1, Epoch: job.Epoch{Term: 1}, Lead: true}})
	c.Step(storyStart.Add(time.Minute), step.Submit{Token: 1, Submission: job.Submission{Spec: benchSpec(0)}})
	fx := c.Step(storyStart.Add(time.Minute), step.SessionUp{Peer: "w0"}, step.FromWorker{Peer: "w0", Msg: contract.Hello{
		Profile: contract.Profile{Name: "w0", Store: "s", CPUs: 1, Drivers: []string{"exec"}, Worker: true},
	}})
	last := 24 * time.Hour
	for _, o := range fx.Send {
		if m, ok := o.Msg.(contract.Offer); ok {
			if m.Age < 0 || m.Age >= last {
				t.Errorf("%s is offered with an age of %s after one with %s, want a smaller one of at least 0", m.Attempt, m.Age, last)
			}
			last = m.Age
		}
	}
	if last == 24*time.Hour {
		t.Fatal("nothing was offered")
	}
}

// A job ended years ahead, by a clock that was set back since. It is kept as long as any other job, and does not delay
// the purge of other jobs.
func TestPurgeAfterTheClockWasSetBack(t *testing.T) {
	cfg := newBench(t, 0, 0).core.turn.Config
	var saved Saved
	for i, at := range []time.Duration{-8 * 24 * time.Hour, 365 * 24 * time.Hour, 700 * 24 * time.Hour} {
		ended := storyStart.Add(at)
		add(t, &saved, job.Job{
			ID: job.NewID(cfg.Group, uint64(i+1)), Spec: benchSpec(0), Submitted: storyStart.Add(-time.Hour),
			Tasks: []job.Task{{State: job.Succeeded, Ended: ended, Closed: ended}},
		})
	}
	if err := saved.End(); err != nil {
		t.Fatal(err)
	}
	c := NewCore(cfg, saved, storyStart)
	c.Step(storyStart, step.Committed{Committed: job.Committed{Index: 1, Epoch: job.Epoch{Term: 1}, Lead: true}})
	purged := func(until time.Duration) (n int) {
		for now := storyStart.Add(until - 24*time.Hour); now.Before(storyStart.Add(until)); now = now.Add(purgeEvery) {
			for _, r := range c.Step(now).Propose {
				if _, ok := r.(job.PurgeRecord); ok {
					n++
				}
			}
		}
		return n
	}
	if n := purged(24 * time.Hour); n != 1 {
		t.Errorf("%d jobs were purged on the first day, want 1", n)
	}
	if n := purged(8*24*time.Hour + time.Hour); n != 2 {
		t.Errorf("%d jobs were purged after a week, want 2", n)
	}
}

// The clock of a host does not decide how long its jobs are kept.
func TestPurgeGoesByTheOwnersClock(t *testing.T) {
	x := newBench(t, 1, 4)
	x.step(step.Submit{Token: 1, Submission: job.Submission{Spec: benchSpec(0)}})
	x.sentOffer(t, func(m contract.Offer) {
		x.step(step.FromWorker{Peer: "w0", Msg: contract.Commit{Offer: m.ID, Attempt: m.Attempt, Group: 7, Session: 1}})
		x.step(step.FromWorker{Peer: "w0", Msg: contract.Event{
			Attempt: m.Attempt, Group: 7, N: 1, State: job.Succeeded,
			Exit: &job.Exit{State: job.Succeeded, Started: true, Ended: x.now.Add(-8 * 24 * time.Hour)},
		}})
	})
	for range 24 * 6 {
		x.now = x.now.Add(time.Hour)
		for _, r := range x.core.Step(x.now).Propose {
			if _, ok := r.(job.PurgeRecord); ok {
				t.Fatalf("purged %s after the submission, want it kept", x.now.Sub(storyStart))
			}
		}
	}
}

// sentOffer calls do with the first sent offer.
func (x *bench) sentOffer(t *testing.T, do func(contract.Offer)) {
	t.Helper()
	sent := x.sent
	x.sent = nil
	for _, o := range sent {
		if m, ok := o.Msg.(contract.Offer); ok {
			do(m)
			return
		}
	}
	t.Fatal("nothing was offered")
}
