package scheduler

// Elections with hosts that are late, of an earlier version, or that lie, and with very many tasks.

import (
	"fmt"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler/step"
)

// An elected host never says that it keeps something. So the host before it is not released, and the end of the elected
// one is no loss.
func TestHostBeforeKeepsUntilTheElectedHostAnswers(t *testing.T) {
	b := newBallot(t, 3, single)
	b.says("g1", 55*time.Minute)
	b.want("a start is known", "g1")
	b.says("g2", 20*time.Minute)
	for range 10 {
		b.lasts(time.Minute)
		b.want("the better one has not answered", "g1", "g2")
	}
	b.step(step.SessionDown{Peer: "g2"})
	delete(b.offers, "g2")
	b.settles()
	b.want("it is gone", "g1")
	b.step(step.SessionDown{Peer: "g1"})
	delete(b.offers, "g1")
	b.want("the last one that showed a start is gone", "g0")
}

// All three hosts report a start, and the elected ones disappear one after the other. At any time some host keeps
// something.
func TestSomeHostKeepsWhileElectedHostsDisappear(t *testing.T) {
	b := newBallot(t, 3, single)
	for i, p := range []job.Peer{"g0", "g1", "g2"} {
		b.says(p, time.Duration(1+i)*time.Hour)
	}
	b.want("the first is the earliest", "g0")
	b.step(step.SessionDown{Peer: "g0"})
	delete(b.offers, "g0")
	if k := b.keeping(); !k["g1"] {
		t.Errorf("the hosts %v keep something, want the second one among them", k)
	}
	b.says("g1", 2*time.Hour)
	b.settles()
	b.want("it does", "g1")
	b.step(step.SessionDown{Peer: "g1"})
	delete(b.offers, "g1")
	b.want("so does the third one", "g2")
}

// A host of an earlier version does not know that it may stop keeping something, and never says that it keeps nothing.
// The others are released only after it has sent a forecast since its election.
func TestElectionAmongHostsOfAnEarlierVersion(t *testing.T) {
	b := newBallot(t, 3, single)
	old := func(start time.Duration) {
		b.step(step.FromWorker{Peer: "g1", Msg: contract.Availability{Forecasts: []contract.Forecast{{Offer: b.offers["g1"], Start: start}}}})
	}
	old(time.Hour)
	b.want("it is elected", "g1")
	b.says("g2", 10*time.Minute)
	b.says("g2", 10*time.Minute)
	b.settles()
	b.want("another one is better", "g2")
	b.says("g2", 5*time.Hour)
	b.settles()
	b.want("it is elected again, and has not said anything since", "g1", "g2")
	old(50 * time.Minute)
	b.settles()
	b.want("it has", "g1")
}

// What a host says that it keeps, and for whom, is only shown to people. Tasks are offered to it as before.
func TestReportOfWhatAHostKeepsDoesNotChangeOffers(t *testing.T) {
	x := newBench(t, 1, 8)
	all := contract.Kept{Job: "0000000000-0000000000001", User: "eve", Priority: job.MaxPriority, CPUs: 8, Memory: benchMemory, For: contract.MaxForecast, Starts: true}
	x.step(step.FromWorker{Peer: "w0", Msg: contract.Availability{Free: contract.Free{CPUs: 8, Memory: benchMemory}, Kept: []contract.Kept{all}}})
	x.tok++
	x.step(step.Submit{Token: x.tok, Submission: job.Submission{Spec: benchSpec(0)}})
	for _, m := range x.sent {
		if o, ok := m.Msg.(contract.Offer); ok && m.To == "w0" && o.Wait < queueWait {
			return
		}
	}
	t.Errorf("it was not offered: %v, want an offer", x.sent)
}

// A host can forecast only the offers that were made to it. For another offer it is not elected.
func TestForecastOfAnotherHostsOfferElectsNobody(t *testing.T) {
	b := newBallot(t, 3, single)
	b.step(step.FromWorker{Peer: "g2", Msg: contract.Availability{Forecasts: []contract.Forecast{{Offer: b.offers["g0"], Start: time.Minute}, {Offer: 4711, Start: time.Minute}}}})
	b.want("nothing is known", "g0", "g1", "g2")
}

// Ten thousand jobs wait, each with another need. Forecasts cost as much as the offers that they are about.
func TestElectionsOfManyTasksCostLittle(t *testing.T) {
	x := newBench(t, 0, 0)
	x.gangHosts(4, 8)
	for p := range x.core.hosts.workers {
		x.step(step.FromWorker{Peer: p, Msg: contract.Availability{}})
	}
	const n = 10_000
	for i := range n {
		s := benchSpec(0)
		s.Resources.Memory = job.Size(1+i%5000) << 20
		x.tok++
		x.step(step.Submit{Token: x.tok, Submission: job.Submission{Spec: s}})
	}
	offers := map[job.Peer][]uint64{}
	for _, m := range x.sent {
		if o, ok := m.Msg.(contract.Offer); ok {
			offers[m.To] = append(offers[m.To], o.ID)
		}
	}
	x.sent = nil
	const rounds = 200
	began := time.Now()
	for i := range rounds {
		p := job.Peer(fmt.Sprintf("g%d", i%4))
		var all []contract.Forecast
		for k, id := range offers[p][:min(len(offers[p]), 16)] { // a host forecasts so many
			all = append(all, contract.Forecast{Offer: id, Start: time.Hour + time.Duration((i*7+k*13)%60)*time.Minute})
		}
		x.step(step.FromWorker{Peer: p, Msg: contract.Availability{Forecasts: all}})
		x.now = x.now.Add(time.Second)
	}
	t.Logf("%d offers at g0; %v for each of %d messages, %d offers sent again", len(offers["g0"]), time.Since(began)/rounds, rounds, len(x.sent))
	if len(x.sent) > rounds*16 {
		t.Errorf("%d messages, want at most %v", len(x.sent), rounds*16)
	}
}
