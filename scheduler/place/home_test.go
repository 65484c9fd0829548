package place

import (
	"fmt"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler/fleet"
	"github.com/musterhq/muster/scheduler/policy"
)

// If there are many hosts with capacity, a policy that uses the cost of paths gets the nearest, including this host. A
// host of known cost always comes before one of unknown cost. Another policy gets those from the slot on.
func TestPolicyOfDistanceGetsTheNearestHosts(t *testing.T) {
	var hosts []host
	for i := range 500 {
		hosts = append(hosts, host{name: fmt.Sprintf("%03d", i), free: 8, local: i == 400})
	}
	table, p := aFleet(hosts...)
	for i := range 500 {
		h := table.Host(job.Peer(fmt.Sprintf("p-%03d", i)))
		if i%2 == 0 {
			fleet.SetDistance(table, h, fleet.DistanceOf(time.Duration(1000-i)*time.Millisecond)) // the even ones, the last one nearest
		}
	}
	task := aTask(table, 2, 0)
	task.Policy = &policy.Topology{}
	where := func() string { return p.Decide(task, 77, now).Host.Name() }
	if got := where(); got != "400" {
		t.Errorf(`it goes to %s, not to this host, want "400"`, got)
	}
	table.Host("p-400").SetFree(contract.Free{})
	table.Count(now)
	nearest := fleet.DistanceOf(502 * time.Millisecond)
	if h := p.Decide(task, 77, now).Host; h.Distance != nearest {
		t.Errorf("it goes to %s, round trip %s, want %s", h.Name(), h.Distance, nearest)
	}
	for i := range 500 { // no host of known distance is left
		if h := table.Host(job.Peer(fmt.Sprintf("p-%03d", i))); h.Distance.Known() {
			h.SetFree(contract.Free{})
		}
	}
	table.Count(now)
	if h := p.Decide(task, 77, now).Host; h == nil || h.Distance.Known() {
		t.Errorf("it goes to %v, want a host of unknown distance", h)
	}
}

// The home of a gang is the rack where the most members fit now, then the one with the shortest queues, then the
// nearest. A rack of a single host is no home.
func TestHomeOfAGangIsTheRackWhereMostMembersFit(t *testing.T) {
	table, p := racks(60, func(i int) bool { return i%10 >= 3 }) // racks r0 to r9 of six hosts; r0 to r2 are idle
	task := prefersTask(table, "")
	for size, want := range map[int]string{6: "r0", 7: ""} {
		if got := HomeOf(p.Parts(task, "rack", size), size); got.Value != want {
			t.Errorf("a gang of %d has its home in %q, want %q", size, got.Value, want)
		}
	}
	for i := range 60 {
		far := fleet.DistanceOf(time.Millisecond)
		if i%10 == 2 {
			far = fleet.DistanceOf(time.Microsecond)
		}
		if i%10 != 0 {
			fleet.SetDistance(table, table.Host(job.Peer(fmt.Sprint("p-n", i))), far)
		}
	}
	if got := HomeOf(p.Parts(task, "rack", 6), 6).Value; got != "r2" {
		t.Errorf(`the nearest of equal racks is r2, not %s, want "r2"`, got)
	}
	busy := table.Host("p-n2")
	busy.SetFree(contract.Free{})
	table.Count(now)
	if got := HomeOf(p.Parts(task, "rack", 6), 6).Value; got != "r1" {
		t.Errorf(`the nearest rack with room for all is r1, not %q, want "r1"`, got)
	}
	if got := p.Parts(task, "shelf", 2); len(got) != 0 || HomeOf(got, 2) != (Home{}) || !(Home{}).Has(busy) {
		t.Errorf("without labels: %v, want no parts and no home", got)
	}
	x := *task
	x.Home = Home{"rack", "r1"}
	for h := range table.Candidates(x.Shape) {
		if may, _ := p.MayTakeQueued(&x, h, now); may != (h.Profile.Labels["rack"] == "r1") {
			t.Errorf("%s of rack %s may take the gang: %v, want %v", h.Name(), h.Profile.Labels["rack"], may, (h.Profile.Labels["rack"] == "r1"))
		}
	}
}

// BenchmarkHomes finds the home of a gang among 10,000 hosts in 313 racks.
func BenchmarkHomes(b *testing.B) {
	table := fleet.NewTable()
	for i := range 10_000 {
		p := job.Peer(fmt.Sprint("p", i))
		table.Hello(table.Add(p, false), contract.Hello{
			Profile: contract.Profile{
				Name: string(p), CPUs: 8, Worker: true, Drivers: []string{contract.DriverExec}, Labels: map[string]string{"rack": fmt.Sprint("r", i/32)},
			},
			Free: contract.Free{CPUs: 8},
		}, now)
	}
	table.Count(now)
	p := New(&table, nil)
	task := prefersTask(&table, "")
	for b.Loop() {
		if HomeOf(p.Parts(task, "rack", 16), 16).Label == "" {
			b.Fatal("no home, want a home")
		}
	}
}
