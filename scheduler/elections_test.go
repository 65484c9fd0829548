package scheduler

// Elections: one host keeps what a waiting task needs, and the others are told that they need not.

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
)

// ballot is a task that queues at hosts without room, which say when it should start there.
type ballot struct {
	*bench
	t      *testing.T
	id     job.ID
	offers map[job.Peer]uint64
}

// newBallot submits a job to so many hosts, which are all full.
func newBallot(t *testing.T, hosts int, change func(*job.Spec)) *ballot {
	x := newBench(t, 0, 0)
	x.gangHosts(hosts, 8)
	for p := range x.core.hosts.workers {
		x.step(FromWorker{Peer: p, Msg: contract.Availability{}})
	}
	b := &ballot{bench: x, t: t}
	b.id, _ = x.waits(t, change)
	b.collect()
	if len(b.offers) != hosts {
		t.Fatalf("it queues at %v, want %v of them", b.offers, hosts)
	}
	return b
}

// collect takes the newest offer to each host.
func (b *ballot) collect() {
	b.offers = map[job.Peer]uint64{}
	for _, m := range b.sent {
		if o, ok := m.Msg.(contract.Offer); ok && o.Attempt.Job == b.id {
			b.offers[m.To] = o.ID
		}
	}
}

// says has a host say when the job starts there, and whether it keeps something for it: as it was told last.
func (b *ballot) says(p job.Peer, start time.Duration) {
	b.step(FromWorker{Peer: p, Msg: contract.Availability{Forecasts: []contract.Forecast{
		{Offer: b.offers[p], Start: start, Elsewhere: start > 0 && !b.keeping()[p]},
	}}})
}

// keeping returns the hosts that keep something for the job, by what they were told last.
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

// settles lets the time pass for which an election that has changed must last.
func (b *ballot) settles() {
	b.lasts(electionPatienceMost)
}

func single(*job.Spec) {}

// The host that shows the earliest start keeps what the job needs, and no other. Another one is elected if it shows an
// earlier start by more than a margin, and the first one may let go once that one has said that it keeps it.
func TestTheEarliestHostIsElected(t *testing.T) {
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
	if v, _ := b.core.Job(b.id); !strings.Contains(v.Reason.Detail, " on g2, by the time limits") {
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

// An elected host is silent: its session ends. The others keep what the job needs again.
func TestElectedHostIsSilent(t *testing.T) {
	b := newBallot(t, 3, single)
	b.says("g1", 30*time.Minute)
	b.want("a start is known", "g1")
	b.step(SessionDown{Peer: "g1"})
	delete(b.offers, "g1")
	b.want("it is gone", "g0", "g2")
	b.says("g0", 50*time.Minute)
	b.settles()
	b.want("another shows a start", "g0")
}

// Forecasts that differ by less than what hosts tell do not have owners change their minds.
func TestElectionsDoNotFlap(t *testing.T) {
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

// Where the hosts that show a start change all the time, the others are told less and less often that they need not keep
// anything.
func TestElectionsThatChangeAllTheTime(t *testing.T) {
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

// A host that says again and again that the job starts soon, which it does not, has the others keep nothing for as long as
// it has said four times.
func TestElectionInVain(t *testing.T) {
	b := newBallot(t, 3, single)
	alone, all := time.Duration(0), time.Duration(0)
	for range 10 * 60 * 6 { // ten hours
		b.now = b.now.Add(10 * time.Second)
		for _, p := range []job.Peer{"g0", "g2"} { // that they live
			b.step(FromWorker{Peer: p, Msg: contract.Availability{}})
		}
		b.says("g1", 10*time.Minute)
		b.collect() // it may queue again
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

// A host that is late is judged by what it has said itself, whatever one before it had said. An honest one is booked again.
func TestLateHostIsNotReliedOn(t *testing.T) {
	b := newBallot(t, 3, single)
	starts := b.now.Add(10 * time.Hour)
	b.says("g0", starts.Sub(b.now))
	b.says("g1", time.Minute)
	for range 60 * 6 { // an hour
		b.now = b.now.Add(10 * time.Second)
		for _, p := range []job.Peer{"g0", "g2"} {
			b.step(FromWorker{Peer: p, Msg: contract.Availability{}})
		}
		b.says("g1", time.Minute)
		b.collect()
	}
	b.says("g0", starts.Sub(b.now))
	if k := b.keeping(); !k["g0"] || k["g1"] {
		t.Errorf("%v keep something", k)
	}
}

// Where a start is far off, hosts that show none go on keeping something: it may be sooner there. Those that show a later
// one need not.
func TestFarStart(t *testing.T) {
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

// A gang keeps something at as many hosts as it has members, those that show the earliest starts.
func TestGangsKeepWhereTheyAreBooked(t *testing.T) {
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
	if v, _ := b.core.Job(b.id); !strings.Contains(v.Reason.Detail, " on g2, by the time limits") {
		t.Errorf(`reason %s, want Detail " on g2, by the time limits" in it`, v.Reason)
	}
}

// A gang that may queue at no more hosts, and hears of one that has room for a member, takes back an offer to a host that keeps
// nothing.
func TestGangsKeepTheirBookings(t *testing.T) {
	x := newBench(t, 0, 0)
	x.gangHosts(5, 8)
	for p := range x.core.hosts.workers {
		x.step(FromWorker{Peer: p, Msg: contract.Availability{}})
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
			b.step(FromWorker{Peer: p, Msg: contract.Availability{Free: contract.Free{CPUs: 8, Memory: benchMemory}}})
		}
	}
	released := 0
	for _, m := range b.sent {
		if _, ok := m.Msg.(contract.Release); ok {
			released++
		}
	}
	if released != 1 || len(booked) != 2 || !sameOffers(d.election.booked, booked) {
		t.Errorf("%d offers were taken back; %d are elected, %d were", released, len(d.election.booked), len(booked))
	}
}

// Where a task is booked it need not stand, so other tasks may at the hosts that keep nothing for it.
func TestBookedTasksDoNotStand(t *testing.T) {
	b := newBallot(t, 3, single)
	if n := len(b.core.offers.kept); n != 3 {
		t.Fatalf("it stands at %d hosts, want 3", n)
	}
	b.says("g1", time.Hour)
	if kept := slices.Collect(maps.Keys(b.core.offers.kept)); len(kept) != 1 || kept[0].Peer != "g1" {
		t.Errorf("it stands at %d hosts", len(kept))
	}
	b.lasts(standsEvery + time.Second)
	b.want("it is booked", "g1")
	b.says("g1", 0)
	if n := len(b.core.offers.kept); n != 3 {
		t.Errorf("it stands at %d hosts again, want 3", n)
	}
}

// What is free at a host that keeps nothing is for any task at once, as far as the owner knows.
func TestWhatIsNotKeptIsForOthers(t *testing.T) {
	b := newBallot(t, 3, func(s *job.Spec) { s.Resources.CPUs, s.TimeLimit = 8, job.Duration(time.Hour) })
	b.says("g1", time.Hour)
	b.sent = nil
	b.step(FromWorker{Peer: "g2", Msg: contract.Availability{Free: contract.Free{CPUs: 4, Memory: benchMemory}}})
	b.waits(t, func(s *job.Spec) { s.Resources.CPUs = 2 })
	for _, m := range b.sent {
		if o, ok := m.Msg.(contract.Offer); ok && o.Attempt.Job != b.id {
			if m.To != "g2" || o.Wait >= queueWait {
				t.Errorf(`offered to %s, to wait for %v, want "g2" and less than %v`, m.To, o.Wait, queueWait)
			}
			return
		}
	}
	t.Error("it was not offered")
}

// Owners whose users see only their own jobs do not have hosts name them.
func TestPrivateOffers(t *testing.T) {
	for _, private := range []bool{true, false} {
		x := newBench(t, 1, 8)
		x.core.cfg.Private = private
		if _, o := x.queued(t, single); o.Private != private {
			t.Errorf("private %v: %v", private, o.Private)
		}
	}
}
