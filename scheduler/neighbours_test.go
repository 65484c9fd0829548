package scheduler

// The cost of the path to a host, and gangs that look for hosts of one rack.

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler/fleet"
	"github.com/musterhq/muster/scheduler/step"
)

// The cost of a path is that of its session. It is unknown before it is measured and after the session ends. The
// measurement and the Hello may come in any order. A host without a session has no cost.
func TestDistanceIsKnownOnlyDuringASession(t *testing.T) {
	x := newBench(t, 0, 0)
	distance := func(p job.Peer) fleet.Distance { return x.core.hosts.fleet.Host(p).Distance }
	x.step(step.Measured{Peer: "g0", RoundTrip: time.Millisecond}) // late: of an earlier session
	x.gangHosts(2, 32)
	if d := distance("g0"); d.Known() {
		t.Errorf("unmeasured: %s, want an unknown distance", d)
	}
	x.step(step.Measured{Peer: "g0", RoundTrip: time.Millisecond}, step.Measured{Peer: "g1", RoundTrip: -5})
	if distance("g0") != fleet.DistanceOf(time.Millisecond) || distance("g1").Known() {
		t.Errorf("measured: %s, %s, want 1 ms and an unknown distance", distance("g0"), distance("g1"))
	}
	x.step(step.SessionDown{Peer: "g0"})
	if d := distance("g0"); d.Known() {
		t.Errorf("without a session: %s, want an unknown distance", d)
	}
	x.step(step.SessionUp{Peer: "g0"}, step.Measured{Peer: "g0", RoundTrip: time.Second})
	x.step(step.FromWorker{Peer: "g0", Msg: contract.Hello{Profile: contract.Profile{Name: "g0", CPUs: 32, Memory: benchMemory, Worker: true}}})
	if distance("g0") != fleet.DistanceOf(time.Second) {
		t.Errorf("measured before the Hello: %s, want %v", distance("g0"), fleet.DistanceOf(time.Second))
	}
}

// rackHosts opens sessions with hosts, each with a label that names its rack.
func (x *bench) rackHosts(first int, racks ...string) {
	for i, rack := range racks {
		p := job.Peer(fmt.Sprintf("g%d", first+i))
		x.step(step.SessionUp{Peer: p, Path: contract.Path{Local: "10.9.9.9", Remote: gangAddress(p)}}, step.FromWorker{Peer: p, Msg: contract.Hello{
			Profile: contract.Profile{
				Name: string(p), Store: "s", CPUs: 32, Memory: benchMemory, Drivers: []string{"exec"}, Worker: true,
				Labels: map[string]string{"rack": rack},
			},
			Free: contract.Free{CPUs: 32, Memory: benchMemory},
		}})
	}
}

// offered returns the hosts that have an offer of the gang.
func (x *bench) offered(id job.ID) (hosts []string) {
	if d := x.gangOf(id); d != nil {
		for _, o := range d.offers {
			hosts = append(hosts, o.worker.Name())
		}
	}
	slices.Sort(hosts)
	return hosts
}

// A scheduler that knows two hosts of each rack searches for more before it places a gang of three. It places the gang
// with what was found, and does not search again for each gang.
func TestGangSearchesForHostsOfItsRack(t *testing.T) {
	x := newBench(t, 0, 0)
	x.rackHosts(0, "a", "a", "b", "b")
	id := x.submitGang(t, 3)
	if got := x.offered(id); got != nil {
		t.Fatalf("before any search: %v, want no offers", got)
	}
	x.rackHosts(4, "b")
	x.now = x.now.Add(seekWait)
	x.step()
	if got := x.offered(id); !slices.Equal(got, []string{"g2", "g3", "g4"}) {
		t.Errorf("the gang goes to %v, want those of rack b", got)
	}
	other := x.submitGang(t, 2)
	if got := x.offered(other); !slices.Equal(got, []string{"g0", "g1"}) {
		t.Errorf("another gang goes to %v, want those of rack a", got)
	}
	ns := x.core.plan.gangs.neighbours
	if len(ns.sought) != 2 {
		t.Errorf("%d racks were searched: %v, want 2", len(ns.sought), ns.sought)
	}
	for i := range 3 * maxSought {
		ns.seek(fmt.Sprint("label/rack=", i))
	}
	if len(ns.sought) > maxSought {
		t.Errorf("%d racks are remembered, want at most %v", len(ns.sought), maxSought)
	}
}

// Hosts that claim to be of one rack and then do not answer delay a gang by seconds: it goes to other hosts. Their lie
// gains them no more than the capacity that they claim.
func TestGangLeavesARackOfSilentHosts(t *testing.T) {
	x := newBench(t, 0, 0)
	x.rackHosts(0, "a", "a", "a", "b", "b", "b") // those of a are silent
	id := x.submitGang(t, 3)
	began := x.now
	started := 0
	for x.now.Sub(began) < time.Minute && started < 3 {
		sent := x.sent
		x.sent = nil
		for _, o := range sent {
			switch m := o.Msg.(type) {
			case contract.Offer:
				if o.To >= "g3" {
					x.step(step.FromWorker{Peer: o.To, Msg: commitTo(o.To, m)})
				}
			case contract.Start:
				started++
			default:
			}
		}
		if len(x.sent) == 0 {
			x.now = x.now.Add(time.Second)
			x.step()
		}
	}
	if started != 3 {
		t.Errorf("%d members have started after %s; offers are at %v, want 3", started, x.now.Sub(began), x.offered(id))
	}
}

// A gang is tied to its home for limited times, each twice as long as the one before, so that the home cannot delay the
// gang for ever.
func TestGangIsTiedToItsHomeForLimitedTimes(t *testing.T) {
	g := &gang{size: 2}
	g.home.Label, g.home.Value = "rack", "a"
	for minutes, home := range map[int]bool{-5: true, 0: true, 9: true, 10: false, 29: false, 30: true, 69: true, 70: false, 149: false, 150: true} {
		if got := g.homeAt(time.Duration(minutes)*time.Minute, 10*time.Minute) == g.home; got != home {
			t.Errorf("after %d minutes at home: %v, want %v", minutes, got, home)
		}
	}
	_ = g.homeAt(1<<62, 0)
}
