package policy

import (
	"cmp"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
)

// linked is a host with devices in NVLink islands of these sizes, two islands to a NUMA node. Only the first free
// devices of each island are free.
func linked(name string, free int, islands ...int) contract.Hello {
	m := hostOf(name, 64, "h100", slices.Repeat([]int{1000}, sum64(islands))...)
	m.Free.GPUs = nil
	first := 0
	for k, n := range islands {
		for i := first; i < first+n; i++ {
			d := &m.Profile.GPUs[i]
			d.NUMA = k / 2
			if i > first {
				d.Links = []gpu.Link{{To: m.Profile.GPUs[i-1].UUID, Kind: gpu.LinkNVLink}}
			}
			if i < first+free {
				m.Free.GPUs = append(m.Free.GPUs, contract.FreeGPU{UUID: d.UUID, Memory: d.Memory, Milli: 1000})
			}
		}
		first += n
	}
	return m
}

func sum64(ns []int) int {
	all := 0
	for _, n := range ns {
		all += n
	}
	return all
}

// For a single task the devices nearest to each other come first, then the fullest host.
func TestTopologyPrefersNearDevices(t *testing.T) {
	for _, c := range []struct {
		name  string
		gpus  int
		hosts []contract.Hello
		want  string
	}{
		{"an island", 4, []contract.Hello{linked("a", 2, 2, 2, 2, 2), linked("b", 4, 4, 4)}, "b [b0 b1 b2 b3] GPUs of one NVLink island, fullest host: leaves 4 of 8 GPUs"},
		{"the smallest island", 2, []contract.Hello{linked("a", 4, 4, 2)}, "a [a4 a5] GPUs of one NVLink island, fullest host: leaves 4 of 6 GPUs"},
		{"the fullest host", 2, []contract.Hello{linked("a", 4, 4, 4), linked("b", 2, 4, 4)}, "b [b0 b1] GPUs of one NVLink island, fullest host: leaves 2 of 8 GPUs"},
		{"a NUMA node", 4, []contract.Hello{linked("a", 1, 4, 4, 4, 4), linked("b", 2, 2, 2, 2)}, "b [b0 b1 b2 b3] GPUs of one NUMA node, fullest host: leaves 2 of 6 GPUs"},
		{"several nodes", 4, []contract.Hello{linked("a", 1, 4, 4, 4, 4)}, "a [a0 a4 a8 a12] GPUs of several NUMA nodes, fullest host: leaves 0 of 16 GPUs"},
		{"one device", 1, []contract.Hello{linked("a", 4, 4, 2)}, "a [a4] fullest host: leaves 5 of 6 GPUs"},
		{"no device", 0, []contract.Hello{linked("a", 4, 4), hostOf("b", 9, "")}, "b [] fullest host: leaves 8 of 64 CPUs"},
	} {
		t.Run(c.name, func(t *testing.T) {
			need := job.Resources{CPUs: 1, GPUs: c.gpus}
			feasible := remote(need, c.hosts...)
			x := (&Topology{}).Choose(nil, Ask{Need: need}, feasible, 1)[0]
			if got := fmt.Sprint(feasible[x.Index].Host.Name(), " ", x.Devices, " ", x.Why); got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
		})
	}
}

// A device can be free although other processes use its memory. It is then too small for a need for memory.
func TestTopologyCountsFreeMemory(t *testing.T) {
	m := linked("a", 2, 2, 2)
	m.Free.GPUs[0].Memory = 1 << 30
	need := job.Resources{GPUs: 2, GPUMemory: 8 << 30}
	x := (&Topology{}).Choose(nil, Ask{Need: need}, remote(need, m), 1)[0]
	if want := []string{"a2", "a3"}; !slices.Equal(x.Devices, want) {
		t.Errorf("devices %v, want %v", x.Devices, want)
	}
}

// A gang gets hosts of one rack, else below one leaf, else below few leaves. Of several racks the smallest with enough
// hosts is chosen.
func TestTopologyPrefersOneRackForAGang(t *testing.T) {
	// Leaf 1: rack a with four hosts, rack b with two. Leaf 2: racks c and d with three each. No label: two.
	var hosts []contract.Hello
	add := func(n int, labels map[string]string) {
		for range n {
			m := hostOf(fmt.Sprintf("h%02d", len(hosts)), 8, "h100", 1000)
			m.Profile.Labels = labels
			hosts = append(hosts, m)
		}
	}
	at := func(leaf, rack string) map[string]string { return map[string]string{"leaf": leaf, "rack": rack} }
	add(4, at("1", "a"))
	add(2, at("1", "b"))
	add(3, at("2", "c"))
	add(3, at("2", "d"))
	add(2, nil)
	need := job.Resources{GPUs: 1}
	for _, c := range []struct {
		n     int
		racks string
		why   string
	}{
		{1, "~", "fullest hosts, as not all have the label rack"},
		{2, "b b", "its gang is in one rack"},
		{3, "c c c", "its gang is in one rack"},
		{4, "a a a a", "its gang is in one rack"},
		{5, "a a a a b", "its gang is in 2 racks below one leaf"},
		{6, "a a a a b b", "its gang is in 2 racks below one leaf"},
		{8, "a a a a b b c c", "its gang is in 3 racks below 2 leaves"},
		{11, "a a a a b b c c c d d", "its gang is in 4 racks below 2 leaves"},
		{14, "a a a a b b c c c d d d ~ ~", "fullest hosts, as not all have the label rack"},
		{20, "a a a a b b c c c d d d ~ ~", "fullest hosts, as not all have the label rack"},
	} {
		feasible := remote(need, hosts...)
		var racks []string
		for _, x := range (&Topology{}).Choose(nil, Ask{Need: need, Gang: true}, feasible, c.n) {
			rack := cmp.Or(feasible[x.Index].Profile.Labels["rack"], "~")
			racks = append(racks, rack)
			if want := c.why + ": leaves 0 of 1 GPUs"; x.Why != want {
				t.Errorf("%d hosts: %q, want %q", c.n, x.Why, want)
			}
		}
		slices.Sort(racks)
		if got := strings.Join(racks, " "); got != c.racks {
			t.Errorf("%d hosts are in racks %s, want %s", c.n, got, c.racks)
		}
	}
}

// The hosts of a gang, whatever labels there are: in one rack if a rack has enough, else below one leaf in as few racks
// as possible, else below as few leaves as possible. Hosts of one rack follow each other.
func TestHostsOfAGangAreNearEachOther(t *testing.T) {
	need := job.Resources{GPUs: 1}
	rapid.Check(t, func(t *rapid.T) {
		var hosts []contract.Hello
		racksOf, leafs, sizes := map[string]map[string]int{}, map[string]int{}, map[string]int{}
		for i := range rapid.IntRange(1, 40).Draw(t, "hosts") {
			m := hostOf(fmt.Sprint("h", i), rapid.IntRange(0, 64).Draw(t, "cpus"), "h100", 1000)
			m.Profile.Labels = map[string]string{}
			rack, leaf := rapid.SampledFrom([]string{"", "a", "b", "c"}).Draw(t, "rack"), rapid.SampledFrom([]string{"", "x", "y"}).Draw(t, "leaf")
			if rack != "" {
				m.Profile.Labels["rack"] = rack
			}
			if leaf != "" {
				m.Profile.Labels["leaf"] = leaf
			}
			hosts = append(hosts, m)
			l, r := whereIs(m)
			if racksOf[l] == nil {
				racksOf[l] = map[string]int{}
			}
			racksOf[l][r]++
			leafs[l]++
			sizes[r]++
		}
		feasible := remote(need, hosts...)
		n := rapid.IntRange(1, len(feasible)).Draw(t, "n")
		racks, leaves := map[string]int{}, map[string]int{}
		last := ""
		for _, x := range (&Topology{}).Choose(nil, Ask{Need: need, Gang: true}, feasible, n) {
			l, r := whereIs(hosts[x.Index])
			if racks[r] > 0 && last != r {
				t.Fatalf("the hosts in rack %s do not follow each other", r)
			}
			racks[r]++
			leaves[l]++
			last = r
		}
		if want := fewest(leafs, n); len(leaves) != want {
			t.Fatalf("%d hosts are below %d leaves, could be below %d", n, len(leaves), want)
		}
		if want := fewest(sizes, n); want == 1 && len(racks) != 1 {
			t.Fatalf("%d hosts are in %d racks, want 1", n, len(racks))
		}
		for l := range leaves {
			if want := fewest(racksOf[l], n); len(leaves) == 1 && len(racks) != want {
				t.Fatalf("%d hosts below one leaf are in %d racks, could be in %d", n, len(racks), want)
			}
		}
	})
}

// whereIs returns the leaf and the rack of a host.
func whereIs(m contract.Hello) (leaf, rack string) {
	leaf, rack = m.Profile.Labels["leaf"], m.Profile.Labels["rack"]
	switch {
	case leaf == "" && rack == "":
		return "of " + m.Profile.Name, "of " + m.Profile.Name
	case leaf == "":
		return "of rack " + rack, "of rack " + rack
	case rack == "":
		return leaf, "of " + m.Profile.Name
	}
	return leaf, leaf + " " + rack
}

// fewest returns how many of the domains of these sizes are needed for n hosts.
func fewest(domains map[string]int, n int) int {
	sizes := slices.Sorted(maps.Values(domains))
	for i, size := range slices.Backward(sizes) {
		if n -= size; n <= 0 {
			return len(sizes) - i
		}
	}
	return len(sizes)
}

// Ten thousand hosts without labels, of which a gang gets a thousand: the explanation of a large gang compares these.
func TestLargeGangIsChosenQuickly(t *testing.T) {
	need := job.Resources{CPUs: 1}
	feasible := make([]Candidate, 10_000)
	for i := range feasible {
		feasible[i] = candidate(fmt.Sprintf("h%05d", i), 8, 8, false)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	began := threadTime(t)
	chosen := (&Topology{}).Choose(nil, Ask{Need: need, Gang: true}, feasible, 1000)
	if len(chosen) != 1000 || chosen[999].Index != 999 {
		t.Fatalf("%d choices, the last is %+v, want 1000, the last of them 999", len(chosen), chosen[len(chosen)-1])
	}
	if took := threadTime(t) - began; took > 2*time.Second {
		t.Errorf("it takes %s of CPU time, want at most %v", took, 2*time.Second)
	}
}

// threadTime returns the CPU time of this thread. Other work of the machine is not in it.
func threadTime(t *testing.T) time.Duration {
	t.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_THREAD, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkGang chooses 16 of 64 hosts in 8 racks below 2 leaves.
func BenchmarkGang(b *testing.B) {
	var hosts []contract.Hello
	for i := range 64 {
		m := linked(fmt.Sprintf("h%02d", i), 4, 4, 4)
		m.Profile.Labels = map[string]string{"rack": fmt.Sprint("r", i%8), "leaf": fmt.Sprint("l", i%2)}
		hosts = append(hosts, m)
	}
	ask := Ask{Need: job.Resources{CPUs: 1, GPUs: 2}, Gang: true}
	feasible := remote(ask.Need, hosts...)
	p := &Topology{}
	var chosen []Choice
	for b.Loop() {
		if chosen = p.Choose(chosen[:0], ask, feasible, 16); len(chosen) != 16 {
			b.Fatalf("%d choices, want 16", len(chosen))
		}
	}
}
