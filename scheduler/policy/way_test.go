package policy

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler/fleet"
)

// If the devices are equally near each other, topology prefers this host, then the host with the cheapest path, then
// the fullest. A path of unknown cost comes last.
func TestTopologyPrefersCheapPaths(t *testing.T) {
	far := func(n int) fleet.Distance { return fleet.DistanceOf(time.Duration(n) * time.Microsecond) }
	for _, c := range []struct {
		name  string
		local int // -1: none
		paths []fleet.Distance
		want  string
	}{
		{"this host", 2, []fleet.Distance{far(1), 0, 0}, "c this host"},
		{"the nearest", -1, []fleet.Distance{far(100), far(10), 0}, "b round trip up to 12µs"},
		{"the fullest of the nearest", -1, []fleet.Distance{far(10), far(10), far(10)}, "a round trip up to 12µs"},
		{"unknown is not near", -1, []fleet.Distance{0, far(1e6), 0}, "b round trip up to 1.1s"},
		{"nothing is known", -1, []fleet.Distance{0, 0, 0}, "a fullest host"},
	} {
		var hosts []contract.Hello
		for i, name := range []string{"a", "b", "c"} {
			m := hostOf(name, 8, "h100", 1000, 1000, 1000, 1000)
			m.Free.GPUs = m.Free.GPUs[:2+i]
			hosts = append(hosts, m)
		}
		need := job.Resources{CPUs: 1}
		feasible := remote(need, hosts...)
		for i := range feasible {
			feasible[i].Host.Distance, feasible[i].Local = c.paths[i], i == c.local
		}
		x := (&Topology{}).Choose(nil, Ask{Need: need}, feasible, 1)[0]
		why, _, _ := strings.Cut(x.Why, ": leaves")
		got := feasible[x.Index].Host.Name() + " " + why
		if got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// A gang on hosts without labels gets the nearest of them, and the reason gives their largest distance.
func TestGangWithoutLabelsGetsTheNearestHosts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		need := job.Resources{GPUs: 1}
		var hosts []contract.Hello
		for i := range rapid.IntRange(1, 20).Draw(t, "hosts") {
			hosts = append(hosts, hostOf(fmt.Sprint("h", i), rapid.IntRange(0, 64).Draw(t, "cpus"), "h100", 1000))
		}
		feasible := remote(need, hosts...)
		for i := range feasible {
			feasible[i].Host.Distance = fleet.DistanceOf(time.Duration(rapid.IntRange(0, 6).Draw(t, "far")) * time.Millisecond)
		}
		n := rapid.IntRange(1, len(feasible)).Draw(t, "n")
		chosen := (&Topology{}).Choose(nil, Ask{Need: need, Gang: true}, feasible, n)
		in := map[int]bool{}
		most := 0
		for _, x := range chosen {
			in[x.Index] = true
			most = max(most, feasible[x.Index].Host.Distance.Rank())
		}
		for i := range feasible {
			if !in[i] && feasible[i].Host.Distance.Rank() < most {
				t.Fatalf("%s, with round trip %s, is not in the gang, but a farther host is", feasible[i].Host.Name(), feasible[i].Host.Distance)
			}
		}
		says := strings.HasPrefix(chosen[0].Why, "nearest hosts, round trips up to ")
		if known := most < fleet.Distance(0).Rank(); says != known {
			t.Fatalf("%q, but the largest distance is known: %v", chosen[0].Why, known)
		}
	})
}

// A host may claim any label. A label about the cost of its path does not count: only the measured cost does.
func TestClaimedCostOfAPathIsIgnored(t *testing.T) {
	honest, liar := hostOf("a", 64, "h100", 1000), hostOf("b", 64, "h100", 1000)
	liar.Profile.Labels = map[string]string{"distance": "0", "cost": "0", "local": "true", "rack": "r1", "leaf": "l1"}
	need := job.Resources{GPUs: 1}
	feasible := remote(need, honest, liar)
	feasible[0].Host.Distance, feasible[1].Host.Distance = fleet.DistanceOf(time.Microsecond), fleet.DistanceOf(time.Millisecond)
	if x := (&Topology{}).Choose(nil, Ask{Need: need}, feasible, 1)[0]; feasible[x.Index].Host.Name() != "a" {
		t.Errorf(`the task goes to %s: %s, want "a"`, feasible[x.Index].Host.Name(), x.Why)
	}
}
