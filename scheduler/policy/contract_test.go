package policy

// What every policy must do. A policy in Named is tested here without further code.

import (
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler/fleet"
)

// drawNeed draws a request.
func drawNeed(t *rapid.T) job.Resources {
	need := job.Resources{
		CPUs:   rapid.IntRange(0, 12).Draw(t, "cpus"),
		Memory: job.Size(rapid.IntRange(0, 32).Draw(t, "memory")) << 30,
	}
	switch rapid.IntRange(0, 2).Draw(t, "kind") {
	case 0:
		return need
	case 1:
		need.GPUShare = float64(rapid.IntRange(1, 99).Draw(t, "share")) / 100
	default:
		need.GPUs = rapid.IntRange(1, 4).Draw(t, "gpus")
	}
	need.GPUModel = rapid.SampledFrom([]string{"", "", "t4", "h100", "t4|h100"}).Draw(t, "model")
	need.GPUMemory = job.Size(rapid.SampledFrom([]int{0, 0, 8, 40}).Draw(t, "gpu memory")) << 30
	return need
}

// drawHost draws what a host reports.
func drawHost(t *rapid.T, name string) contract.Hello {
	m := contract.Hello{Profile: contract.Profile{
		Name: name, CPUs: rapid.IntRange(1, 64).Draw(t, "cpus"), Memory: job.Size(rapid.IntRange(1, 256).Draw(t, "memory")) << 30, Worker: true,
	}}
	if rack := rapid.IntRange(0, 3).Draw(t, "rack"); rack > 0 {
		m.Profile.Labels = map[string]string{"rack": fmt.Sprint("r", rack), "leaf": fmt.Sprint("l", rack/2), "cost": []string{"", "1", "2.5", "NaN"}[rack]}
	}
	m.Free = contract.Free{
		CPUs:   rapid.IntRange(0, m.Profile.CPUs).Draw(t, "free cpus"),
		Memory: job.Size(rapid.Int64Range(0, int64(m.Profile.Memory)).Draw(t, "free memory")),
		Tasks:  rapid.IntRange(0, 5).Draw(t, "tasks"),
	}
	mixed := rapid.IntRange(0, 4).Draw(t, "mixed") == 0
	model := rapid.SampledFrom([]string{"t4", "h100-80gb"}).Draw(t, "model")
	for i := range rapid.IntRange(0, 8).Draw(t, "gpus") {
		if mixed {
			model = []string{"t4", "h100-80gb"}[i%2]
		}
		d := gpu.Device{UUID: fmt.Sprint(name, "-", i), Class: model, Memory: 16 << 30, NUMA: i / 2}
		if model != "t4" {
			d.Memory = 80 << 30
		}
		if i%4 != 0 {
			d.Links = []gpu.Link{{To: fmt.Sprint(name, "-", i-1), Kind: gpu.LinkNVLink, NVLinks: 4}}
		}
		m.Profile.GPUs = append(m.Profile.GPUs, d)
		g := contract.FreeGPU{UUID: d.UUID, Milli: 1000, Memory: d.Memory}
		switch rapid.IntRange(0, 3).Draw(t, "state") {
		case 0:
			continue // not free
		case 1:
			g.Milli = rapid.IntRange(1, 999).Draw(t, "milli")
			g.Memory = job.Size(rapid.Int64Range(0, int64(d.Memory)).Draw(t, "device memory"))
		}
		m.Free.GPUs = append(m.Free.GPUs, g)
	}
	return m
}

// drawTypical draws what users usually request; nil means that it is unknown.
func drawTypical(t *rapid.T) *Typical {
	n := rapid.IntRange(-1, 20).Draw(t, "typical")
	if n < 0 {
		return nil
	}
	typical := &Typical{}
	for range n {
		typical.Asked(drawNeed(t), rapid.IntRange(1, 50).Draw(t, "times"))
	}
	return typical
}

// feasibleOf returns the hosts where the need fits.
func feasibleOf(need job.Resources, hosts []contract.Hello) []Candidate {
	table := fleet.NewTable()
	var out []Candidate
	for i, m := range hosts {
		h := table.Add(job.Peer("p-"+m.Profile.Name), i == 0)
		table.Hello(h, m, time.Time{})
		if h.Devices.Suffices(need, &h.Free) {
			out = append(out, CandidateOf(h, &h.Free))
		}
	}
	return out
}

// told shows choices as people see them: the host, the devices and the reason.
func told(chosen []Choice, feasible []Candidate) []string {
	var out []string
	for _, x := range chosen {
		out = append(out, fmt.Sprintln(feasible[x.Index].Host.Name(), x.Devices, x.Why))
	}
	return out
}

var leavesText = regexp.MustCompile(`leaves (\S+) of (\d+) (GPUs|CPUs)`)

// checkReason checks the numbers of a reason, and that it says "this host" only of this host.
func checkReason(t *rapid.T, why string, need job.Resources, c *Candidate) {
	if why == "" || len(why) > contract.MaxDetail {
		t.Fatalf("%s: the reason is %q, want one of bounded length", c.Host.Name(), why)
	}
	if why == "this host" && !c.Local {
		t.Fatalf("%s is not this host, but the reason says so", c.Host.Name())
	}
	m := leavesText.FindStringSubmatch(why)
	if m == nil {
		return
	}
	left, all := float64(c.Free.CPUs-need.CPUs), c.Profile.CPUs
	if m[3] == "GPUs" {
		left, all = 0, len(c.Profile.GPUs)
		for _, g := range c.Free.GPUs {
			left += float64(g.Milli)
		}
		left = (left - float64(gpu.Count(need)*gpu.Milli(need))) / 1000
	}
	said, err := strconv.ParseFloat(m[1], 64)
	if err != nil || said != left || m[2] != strconv.Itoa(all) {
		t.Fatalf("%s: the reason is %q, but it leaves %v of %d", c.Host.Name(), why, left, all)
	}
}

// checkChoice checks that the devices of a choice are different, and that the need fits on them.
func checkChoice(t *rapid.T, x Choice, need job.Resources, c *Candidate) {
	if len(x.Devices) != gpu.Count(need) {
		t.Fatalf("%s: devices %v for %+v, want %v of them", c.Host.Name(), x.Devices, need, gpu.Count(need))
	}
	for i, uuid := range x.Devices {
		at := slices.IndexFunc(c.Free.GPUs, func(g contract.FreeGPU) bool { return g.UUID == uuid })
		if at < 0 || slices.Contains(x.Devices[:i], uuid) {
			t.Fatalf("%s: devices %v, want different ones of the free %v", c.Host.Name(), x.Devices, c.Free.GPUs)
		}
		g, d := c.Free.GPUs[at], c.Devices.Device(at)
		if g.Milli < gpu.Milli(need) || g.Memory < need.GPUMemory || !contract.GPUMeets(*d, need) {
			t.Fatalf("%s: %+v of %+v does not meet %+v", c.Host.Name(), g, d, need)
		}
	}
	checkReason(t, x.Why, need, c)
}

// all are the registered policies, and the example.
func all() map[string]Policy {
	policies := Named()
	policies["example"] = Cheapest{}
	return policies
}

// TestEachPolicyKeepsTheContract checks what every policy must do.
func TestEachPolicyKeepsTheContract(t *testing.T) {
	for name, used := range all() {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				ask := Ask{Need: drawNeed(t), Typical: drawTypical(t), Gang: rapid.Bool().Draw(t, "gang")}
				var hosts []contract.Hello
				for i := range rapid.IntRange(0, 12).Draw(t, "hosts") {
					hosts = append(hosts, drawHost(t, fmt.Sprint("h", i)))
				}
				feasible := feasibleOf(ask.Need, hosts)
				n := rapid.IntRange(0, len(feasible)+1).Draw(t, "n")

				chosen := used.Choose([]Choice{{Index: 42}}, ask, feasible, n)
				if chosen[0].Index != 42 || len(chosen) != 1+min(n, len(feasible)) {
					t.Fatalf("%d choices of %d for %d: %v, want [0].Index 42 and %v of them", len(chosen)-1, len(feasible), n, chosen, 1+min(n, len(feasible)))
				}
				chosen = chosen[1:]
				for i, x := range chosen {
					if slices.ContainsFunc(chosen[:i], func(y Choice) bool { return y.Index == x.Index }) {
						t.Fatalf("candidate %d is chosen twice", x.Index)
					}
					checkChoice(t, x, ask.Need, &feasible[x.Index])
				}
				want := told(chosen, feasible)

				if again := told(used.Choose(nil, ask, feasible, n), feasible); !slices.Equal(again, want) {
					t.Fatalf("the second time %v, the first time %v", again, want)
				}
				if other := told(all()[name].Choose(nil, ask, feasible, n), feasible); !slices.Equal(other, want) {
					t.Fatalf("a new policy chooses %v, one that was used %v", other, want)
				}
				shuffled := slices.Clone(feasible)
				rand.New(rand.NewPCG(1, 2)).Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
				if other := told(used.Choose(nil, ask, shuffled, n), shuffled); !slices.Equal(other, want) {
					t.Fatalf("of the same candidates in another order %v, not %v", other, want)
				}
				if all := told(used.Choose(nil, ask, feasible, len(feasible)), feasible); !ask.Gang && !slices.Equal(all[:len(want)], want) {
					t.Fatalf("the best are %v, of all %v", want, all)
				}
			})
		})
	}
}

// drawNonsense draws what a host that lies may report. A session accepts it: each number is in its range.
func drawNonsense(t *rapid.T, name string) contract.Hello {
	number := func(what string, most int) int {
		return rapid.SampledFrom([]int{0, 1, most / 2, most}).Draw(t, what)
	}
	size := func(what string) job.Size {
		return job.Size(rapid.SampledFrom([]int64{0, 1, 80 << 30, math.MaxInt64}).Draw(t, what))
	}
	words := rapid.SampledFrom([]string{"", "NaN", "Inf", "-1", "h100", "t4|h100", "/", strings.Repeat("x", job.MaxName)})
	m := contract.Hello{
		Profile: contract.Profile{
			Name: name, CPUs: number("cpus", job.MaxCPUs), Memory: size("memory"), Worker: true,
			Labels: map[string]string{"rack": words.Draw(t, "rack"), "leaf": words.Draw(t, "leaf"), "cost": words.Draw(t, "cost")},
		},
		Free: contract.Free{CPUs: number("free cpus", job.MaxCPUs), Memory: size("free memory"), Tasks: number("tasks", contract.MaxLive)},
	}
	for i := range number("gpus", 40) {
		uuid := fmt.Sprint(name, "-", i)
		m.Profile.GPUs = append(m.Profile.GPUs, gpu.Device{
			UUID: uuid, Class: words.Draw(t, "class"), Memory: size("device memory"), NUMA: number("numa", 1<<16-1) - 1,
			Links: []gpu.Link{{To: uuid, Kind: gpu.LinkNVLink}, {To: "none", Kind: gpu.LinkNVLink}},
		})
	}
	for i := range number("free gpus", 40) { // some of them are none of its devices
		m.Free.GPUs = append(m.Free.GPUs, contract.FreeGPU{
			UUID: fmt.Sprint(name, "-", i), Milli: number("milli", gpu.Whole), Memory: size("left"),
		})
	}
	return m
}

// Hosts that report nonsense neither stop a policy nor make it choose what does not fit by their report.
func TestNonsenseOfHostsDoesNotStopAPolicy(t *testing.T) {
	for name, p := range all() {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				ask := Ask{Need: drawNeed(t), Typical: drawTypical(t), Gang: rapid.Bool().Draw(t, "gang")}
				hosts := []contract.Hello{drawHost(t, "honest")}
				for i := range 4 {
					hosts = append(hosts, drawNonsense(t, fmt.Sprint("h", i)))
				}
				feasible := feasibleOf(ask.Need, hosts)
				chosen := p.Choose(nil, ask, feasible, len(feasible))
				if len(chosen) != len(feasible) {
					t.Fatalf("%d choices of %d, want all", len(chosen), len(feasible))
				}
				for i, x := range chosen {
					if slices.ContainsFunc(chosen[:i], func(y Choice) bool { return y.Index == x.Index }) {
						t.Fatalf("candidate %d is chosen twice", x.Index)
					}
					checkChoice(t, x, ask.Need, &feasible[x.Index])
				}
			})
		})
	}
}

// A policy does not change the candidates, and keeps no reference to them: its later choices do not depend on them.
func TestPoliciesKeepNoCandidates(t *testing.T) {
	need := job.Resources{CPUs: 1, GPUShare: 0.3}
	typical := &Typical{}
	typical.Asked(need, 3)
	typical.Asked(job.Resources{CPUs: 8, GPUs: 2, GPUModel: "h100"}, 2)
	ask := Ask{Need: need, Typical: typical}
	hosts := func(seed int) []contract.Hello {
		var out []contract.Hello
		for i := range 20 {
			out = append(out, rapid.Custom(func(t *rapid.T) contract.Hello { return drawHost(t, fmt.Sprint("h", i)) }).Example(seed+i))
		}
		return out
	}
	for name, p := range all() {
		first, same := feasibleOf(need, hosts(1)), feasibleOf(need, hosts(1))
		p.Choose(nil, ask, first, 3)
		if !reflect.DeepEqual(first, same) {
			t.Errorf("%s changes the candidates", name)
		}
		for i := range first {
			first[i] = Candidate{} // their memory is used for something else
		}
		second := feasibleOf(need, hosts(100))
		got, want := p.Choose(nil, ask, second, 3), all()[name].Choose(nil, ask, second, 3)
		if len(second) < 3 || !slices.Equal(told(got, second), told(want, second)) {
			t.Errorf("%s chooses %v after other candidates, %v without them", name, told(got, second), told(want, second))
		}
	}
}

func TestCheckKnowsEachPolicy(t *testing.T) {
	for _, name := range append(Names(), "", Default, DefaultOfGangs) {
		if err := Check(name); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
	want := `policy "best": want one of balanced, frag, pack, simple, spread, topology`
	if err := Check("best"); err == nil || err.Error() != want {
		t.Errorf("an unknown policy: %v, want an error and %v", err, want)
	}
}
