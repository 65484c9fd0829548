package scheduler

// Elections: one host keeps what a waiting task needs, and the others learn that they need not.

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler/step"
)

// ballot is a task that queues at full hosts, which forecast when it will start.
type ballot struct {
	*bench
	t      *testing.T
	id     job.ID
	offers map[job.Peer]uint64
}

// newBallot submits a job that queues at so many hosts, all of them full.
func newBallot(t *testing.T, hosts int, change func(*job.Spec)) *ballot {
	x := newBench(t, 0, 0)
	x.gangHosts(hosts, 8)
	for p := range x.core.hosts.workers {
		x.step(step.FromWorker{Peer: p, Msg: contract.Availability{}})
	}
	b := &ballot{bench: x, t: t}
	b.id, _ = x.waits(t, change)
	b.collect()
	if len(b.offers) != hosts {
		t.Fatalf("it queues at %v, want %v of them", b.offers, hosts)
	}
	return b
}

// collect records the newest offer to each host.
func (b *ballot) collect() {
	b.offers = map[job.Peer]uint64{}
	for _, m := range b.sent {
		if o, ok := m.Msg.(contract.Offer); ok && o.Attempt.Job == b.id {
			b.offers[m.To] = o.ID
		}
	}
}

// says has a host forecast the start of the job, and whether it keeps something for it, as it was last told.
func (b *ballot) says(p job.Peer, start time.Duration) {
	b.step(step.FromWorker{Peer: p, Msg: contract.Availability{Forecasts: []contract.Forecast{
		{Offer: b.offers[p], Start: start, Elsewhere: start > 0 && !b.keeping()[p]},
	}}})
}

// keeping returns the hosts that keep something for the job, by what they were last told.
func (b *ballot) keeping() map[job.Peer]bool {
	out := map[job.Peer]bool{}
	for _, m := range b.sent {
		if o, ok := m.Msg.(contract.Offer); ok && b.offers[m.To] == o.ID {
			out[m.To] = !o.Elsewhere
		}
	}
	return out
}

// want checks which hosts keep something for the job.
func (b *ballot) want(what string, hosts ...job.Peer) {
	b.t.Helper()
	var got []job.Peer
	for p, keeps := range b.keeping() {
		if keeps {
			got = append(got, p)
		}
	}
	slices.Sort(got)
	if !slices.Equal(got, hosts) {
		b.t.Errorf("%s: %v keep something, want %v", what, got, hosts)
	}
}

// settles lets the time pass after which a changed election takes effect.
func (b *ballot) settles() {
	b.lasts(electionPatienceMost)
}

func single(*job.Spec) {}

// The host with the earliest forecast keeps what the job needs, and no other. Another host is elected if its start is
// earlier by more than a margin. The first one may release its booking once the new one has said that it keeps it.
func TestHostWithTheEarliestStartIsElected(t *testing.T) {
	b := newBallot(t, 3, single)
	b.want("nothing is known", "g0", "g1", "g2")
	b.says("g1", 40*time.Minute)
	b.want("a start is known", "g1")
	b.says("g2", 39*time.Minute)
	b.want("another is hardly earlier", "g1")
	b.says("g2", 20*time.Minute)
	b.want("another is earlier, and has not said that it keeps", "g1", "g2")
	b.says("g2", 20*time.Minute)
	b.settles()
	b.want("it has", "g2")
	if v, _ := b.core.View().Job(b.id); !strings.Contains(v.Reason.Detail, " on g2, by the time limits") {
		t.Errorf(`reason %s, want Detail " on g2, by the time limits" in it`, v.Reason)
	}
	b.says("g2", 55*time.Minute)
	b.want("it became worse", "g1", "g2")
	b.says("g1", 40*time.Minute)
	b.settles()
	b.want("the first one keeps again", "g1")
	b.says("g1", 0)
	b.want("nothing shows when it starts there any more", "g1", "g2")
	b.says("g2", 55*time.Minute)
	b.says("g1", 0)
	b.settles()
	b.want("the other one keeps", "g2")
	b.says("g2", 0)
	b.want("nothing is known any more", "g0", "g1", "g2")
}

// The session with an elected host ends. The others keep what the job needs again.
func TestOtherHostsKeepAgainWhenTheElectedOneIsSilent(t *testing.T) {
	b := newBallot(t, 3, single)
	b.says("g1", 30*time.Minute)
	b.want("a start is known", "g1")
	b.step(step.SessionDown{Peer: "g1"})
	delete(b.offers, "g1")
	b.want("it is gone", "g0", "g2")
	b.says("g0", 50*time.Minute)
	b.settles()
	b.want("another shows a start", "g0")
}

// Forecasts that differ by less than the margin do not change an election.
func TestSmallDifferencesOfForecastsDoNotChangeAnElection(t *testing.T) {
	b := newBallot(t, 3, single)
	b.says("g0", time.Hour)
	told := len(b.sent)
	for i := range 200 {
		b.now = b.now.Add(time.Second)
		left := time.Hour - time.Duration(i)*time.Second
		b.says([]job.Peer{"g0", "g1"}[i%2], left-left/32*time.Duration(i%3-1))
	}
	offers := 0
	for _, m := range b.sent[told:] {
		if _, ok := m.Msg.(contract.Offer); ok {
			offers++
		}
	}
	if b.want("as before", "g0"); offers > 3*200/20 {
		t.Errorf("%d offers in 200 s, a renewal every 20 s would be 30, want at most %v", offers, 3*200/20)
	}
}

// The hosts with a forecast change all the time. Then the others are told less and less often that they need not keep
// anything.
func TestElectionsThatChangeOftenPause(t *testing.T) {
	b := newBallot(t, 3, single)
	told := len(b.sent)
	for i := range 120 {
		b.now = b.now.Add(500 * time.Millisecond)
		p := []job.Peer{"g0", "g1"}[i%2]
		b.says(p, time.Hour)
		b.says(map[job.Peer]job.Peer{"g0": "g1", "g1": "g0"}[p], 0)
	}
	offers := map[job.Peer]int{}
	for _, m := range b.sent[told:] {
		if _, ok := m.Msg.(contract.Offer); ok {
			offers[m.To]++
		}
	}
	for p, n := range offers {
		if n > 12 {
			t.Errorf("%d offers to %s in a minute, want at most 12", n, p)
		}
	}
}

// A host announces again and again an early start that never comes. The others keep nothing for about the time of four
// such announcements.
func TestHostThatForecastsFalselyKeepsOthersFromBookingForALimitedTime(t *testing.T) {
	b := newBallot(t, 3, single)
	alone, all := time.Duration(0), time.Duration(0)
	for range 10 * 60 * 6 { // ten hours
		b.now = b.now.Add(10 * time.Second)
		for _, p := range []job.Peer{"g0", "g2"} { // they renew, so that they count as alive
			b.step(step.FromWorker{Peer: p, Msg: contract.Availability{}})
		}
		b.says("g1", 10*time.Minute)
		b.collect() // the job may queue again
		if k := b.keeping(); k["g0"] && k["g2"] {
			all += 10 * time.Second
		} else {
			alone += 10 * time.Second
		}
	}
	if alone < 40*time.Minute || alone > 50*time.Minute {
		t.Errorf("for %v only the liar kept something, and for %v all did, want at least %v and at most %v", alone, all, 40*time.Minute, 50*time.Minute)
	}
}

// A host that is late is judged by its own forecasts, whatever an earlier host forecast. An honest host is booked
// again.
func TestLateHostIsNotElectedAgain(t *testing.T) {
	b := newBallot(t, 3, single)
	starts := b.now.Add(10 * time.Hour)
	b.says("g0", starts.Sub(b.now))
	b.says("g1", time.Minute)
	for range 60 * 6 { // an hour
		b.now = b.now.Add(10 * time.Second)
		for _, p := range []job.Peer{"g0", "g2"} {
			b.step(step.FromWorker{Peer: p, Msg: contract.Availability{}})
		}
		b.says("g1", time.Minute)
		b.collect()
	}
	b.says("g0", starts.Sub(b.now))
	if k := b.keeping(); !k["g0"] || k["g1"] {
		t.Errorf("%v keep something, want g0 and not g1", k)
	}
}

// If the forecast start is far away, hosts without a forecast keep something, as the job may start sooner there. Hosts
// with a later forecast need not.
func TestHostsWithoutAForecastKeepWhileTheStartIsFar(t *testing.T) {
	for _, far := range []time.Duration{2 * time.Hour, 30 * 24 * time.Hour, 10 * 365 * 24 * time.Hour} {
		b := newBallot(t, 3, single)
		b.says("g0", far+far/3)
		b.says("g1", far)
		b.settles()
		b.want("g1 is the earlier one of two", "g1", "g2")
	}
	b := newBallot(t, 3, single)
	b.says("g1", electionNear)
	b.want("a start is near", "g1")
	b.says("g1", electionNear+electionNear/10)
	b.want("a little less near", "g1")
	b.says("g1", 2*electionNear)
	b.want("far off", "g0", "g1", "g2")
	if n := len(b.core.offers.kept); n != 3 {
		t.Errorf("it stands at %d hosts again, want 3", n)
	}
}

// A gang keeps something at as many hosts as it has members: those with the earliest forecasts.
func TestGangIsBookedAtTheEarliestHosts(t *testing.T) {
	b := newBallot(t, 4, func(s *job.Spec) { s.Nodes = 2 })
	b.says("g0", 20*time.Minute)
	b.want("one host shows a start", "g0", "g1", "g2", "g3")
	b.says("g1", 55*time.Minute)
	b.want("two do", "g0", "g1")
	b.says("g2", 40*time.Minute)
	b.want("a third is earlier", "g0", "g1", "g2")
	b.says("g2", 40*time.Minute)
	b.settles()
	b.want("and keeps a place", "g0", "g2")
	if v, _ := b.core.View().Job(b.id); !strings.Contains(v.Reason.Detail, " on g2, by the time limits") {
		t.Errorf(`reason %s, want Detail " on g2, by the time limits" in it`, v.Reason)
	}
}

// A gang that has all its offers learns of a host with capacity for a member. It withdraws an offer to a host that
// keeps nothing.
func TestGangWithdrawsNoBookedOffer(t *testing.T) {
	x := newBench(t, 0, 0)
	x.gangHosts(5, 8)
	for p := range x.core.hosts.workers {
		x.step(step.FromWorker{Peer: p, Msg: contract.Availability{}})
	}
	b := &ballot{bench: x, t: t}
	b.id, _ = x.waits(t, func(s *job.Spec) { s.Nodes = 2 })
	b.collect()
	d := x.core.entries.byID[b.id].tasks[0].dispatch
	for _, o := range d.offers[len(d.offers)-2:] {
		b.says(o.worker.Peer, 50*time.Minute)
	}
	b.settles()
	booked := slices.Clone(d.election.booked)
	for p := range x.core.hosts.workers {
		if _, there := b.offers[p]; !there {
			b.sent = nil
			b.step(step.FromWorker{Peer: p, Msg: contract.Availability{Free: contract.Free{CPUs: 8, Memory: benchMemory}}})
		}
	}
	released := 0
	for _, m := range b.sent {
		if _, ok := m.Msg.(contract.Release); ok {
			released++
		}
	}
	if released != 1 || len(booked) != 2 || !sameOffers(d.election.booked, booked) {
		t.Errorf("%d offers were taken back; %d are elected, %d were, want 1, and the same 2 elected", released, len(d.election.booked), len(booked))
	}
}

// Once a task is booked at a host, the other hosts keep nothing for it and may keep something for other tasks.
func TestBookedTaskLeavesOtherHostsToOtherTasks(t *testing.T) {
	b := newBallot(t, 3, single)
	if n := len(b.core.offers.kept); n != 3 {
		t.Fatalf("it stands at %d hosts, want 3", n)
	}
	b.says("g1", time.Hour)
	if kept := slices.Collect(maps.Keys(b.core.offers.kept)); len(kept) != 1 || kept[0].Peer != "g1" {
		t.Errorf("it stands at %d hosts, want g1 alone", len(kept))
	}
	b.lasts(setAsideEvery + time.Second)
	b.want("it is booked", "g1")
	b.says("g1", 0)
	if n := len(b.core.offers.kept); n != 3 {
		t.Errorf("it stands at %d hosts again, want 3", n)
	}
}

// As far as the owner knows, capacity at a host that keeps nothing is free for any task at once.
func TestCapacityThatIsNotKeptIsOfferedAtOnce(t *testing.T) {
	b := newBallot(t, 3, func(s *job.Spec) { s.Resources.CPUs, s.TimeLimit = 8, job.Duration(time.Hour) })
	b.says("g1", time.Hour)
	b.sent = nil
	b.step(step.FromWorker{Peer: "g2", Msg: contract.Availability{Free: contract.Free{CPUs: 4, Memory: benchMemory}}})
	b.waits(t, func(s *job.Spec) { s.Resources.CPUs = 2 })
	for _, m := range b.sent {
		if o, ok := m.Msg.(contract.Offer); ok && o.Attempt.Job != b.id {
			if m.To != "g2" || o.Wait >= queueWait {
				t.Errorf(`offered to %s, to wait for %v, want "g2" and less than %v`, m.To, o.Wait, queueWait)
			}
			return
		}
	}
	t.Error("it was not offered, want an offer to g2")
}

// If users see only their own jobs, hosts are not to name the jobs of this owner.
func TestOffersArePrivateWhereUsersSeeOnlyTheirOwnJobs(t *testing.T) {
	for _, private := range []bool{true, false} {
		x := newBench(t, 1, 8)
		x.core.turn.Config.Private = private
		if _, o := x.queued(t, single); o.Private != private {
			t.Errorf("private %v, want %v", o.Private, private)
		}
	}
}
