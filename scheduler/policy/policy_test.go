package policy

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler/fleet"
)

// candidate is a host with so many CPUs, of which some are free, and free devices of these sizes.
func candidate(name string, cpus, free int, local bool, memories ...job.Size) Candidate {
	m := contract.Hello{
		Profile: contract.Profile{Name: name, CPUs: cpus, Memory: 64e9},
		Free:    contract.Free{CPUs: free, Memory: 64e9},
	}
	for i, memory := range memories {
		uuid := fmt.Sprint(name, i)
		m.Profile.GPUs = append(m.Profile.GPUs, gpu.Device{UUID: uuid, Memory: memory, Class: "x"})
		m.Free.GPUs = append(m.Free.GPUs, contract.FreeGPU{UUID: uuid, Memory: memory, Milli: 1000})
	}
	t := fleet.NewTable()
	h := t.Add(job.Peer("p-"+name), local)
	t.Hello(h, m, time.Time{})
	return CandidateOf(h, &h.Free)
}

func TestSimplePrefersTheLocalThenTheFullestHost(t *testing.T) {
	cpu := job.Resources{CPUs: 2}
	for _, c := range []struct {
		name          string
		need          job.Resources
		better, worse Candidate
		why           string
	}{
		{"this host to a fuller one", cpu, candidate("z", 64, 64, true), candidate("a", 64, 2, false), "this host"},
		{"this host with GPUs to one without", cpu, candidate("z", 64, 64, true, 80e9), candidate("a", 64, 2, false), "this host"},
		{"the fuller host", cpu, candidate("z", 64, 4, false), candidate("a", 64, 60, false), "least waste: leaves 2 of 64 CPUs"},
		{"no GPUs for a task without", cpu, candidate("z", 64, 60, false), candidate("a", 64, 2, false, 80e9), "least waste: leaves 58 of 64 CPUs"},
		{"the smaller device", job.Resources{GPUs: 1}, candidate("z", 8, 8, false, 16e9), candidate("a", 8, 8, false, 80e9), "least waste: leaves 0 of 1 GPUs"},
		{"fewer devices left", job.Resources{GPUs: 1}, candidate("z", 8, 8, false, 80e9), candidate("a", 8, 8, false, 80e9, 80e9), "least waste: leaves 0 of 1 GPUs"},
		{"the name in a tie", cpu, candidate("a", 8, 8, false), candidate("b", 8, 8, false), "least waste: leaves 6 of 8 CPUs"},
	} {
		t.Run(c.name, func(t *testing.T) {
			for i, feasible := range [][]Candidate{{c.better, c.worse}, {c.worse, c.better}} {
				got := Simple{}.Choose(nil, Ask{Need: c.need}, feasible, 1)
				if len(got) != 1 || got[0].Index != i {
					t.Fatalf("of %s and %s it chooses %+v, want 1 of them and [0].Index %v", feasible[0].Host.Name(), feasible[1].Host.Name(), got, i)
				}
				if got[0].Why != c.why || len(got[0].Devices) != c.need.GPUs {
					t.Errorf("reason %q, want %q; devices %v", got[0].Why, c.why, got[0].Devices)
				}
			}
		})
	}
}

// Several choices come best first, and are appended. There are as many as were requested if there are enough
// candidates.
func TestSeveralChoicesComeBestFirst(t *testing.T) {
	var feasible []Candidate
	for i, free := range []int{9, 3, 7, 5, 3} {
		feasible = append(feasible, candidate(fmt.Sprint("n", i), 9, free, false))
	}
	for n, want := range [][]int{{}, {1}, {1, 4}, {1, 4, 3}, {1, 4, 3, 2}, {1, 4, 3, 2, 0}, {1, 4, 3, 2, 0}} {
		chosen := Simple{}.Choose([]Choice{{Index: 42}}, Ask{Need: job.Resources{CPUs: 1}}, feasible, n)
		var got []int
		for _, c := range chosen[1:] {
			got = append(got, c.Index)
		}
		if chosen[0].Index != 42 || !slices.Equal(got, want) {
			t.Errorf("%d choices: %v, want %v", n, got, want)
		}
	}
	if got := (Simple{}).Choose(nil, Ask{}, nil, 1); len(got) != 0 {
		t.Errorf("of no candidates it chooses %v, want none", got)
	}
}

// What balanced, pack and spread prefer.
func TestPreferencesOfEachPolicy(t *testing.T) {
	busy := func(m contract.Hello, tasks int) contract.Hello {
		m.Free.Tasks = tasks
		return m
	}
	gpus, cpus := job.Resources{CPUs: 1, GPUs: 1}, job.Resources{CPUs: 1}
	for _, c := range []struct {
		name, policy  string
		need          job.Resources
		better, worse contract.Hello
		why           string
	}{
		{"fewer tasks", "balanced", gpus, busy(hostOf("z", 8, "x", 1000, 1000), 1), busy(hostOf("a", 8, "x", 1000, 1000), 2), "fewest tasks for what is free: leaves 1 of 2 GPUs"},
		{"fewer tasks for each GPU", "balanced", gpus, busy(hostOf("z", 8, "x", 1000, 1000, 1000), 2), busy(hostOf("a", 8, "x", 1000), 1), "fewest tasks for what is free: leaves 2 of 3 GPUs"},
		{"fewer tasks for each CPU", "balanced", cpus, busy(hostOf("z", 64, ""), 3), busy(hostOf("a", 8, ""), 1), "fewest tasks for what is free: leaves 63 of 64 CPUs"},
		{"the fuller host", "pack", gpus, hostOf("z", 8, "x", 1000, 0), hostOf("a", 8, "x", 1000, 1000), "fullest host: leaves 0 of 2 GPUs"},
		{"the fuller of two with as many GPUs", "pack", gpus, hostOf("z", 7, "x", 1000), hostOf("a", 8, "x", 1000), "fullest host: leaves 0 of 1 GPUs"},
		{"a part of a device", "pack", job.Resources{GPUShare: 0.25}, hostOf("z", 8, "x", 500, 0), hostOf("a", 8, "x", 1000, 0), "fullest host: leaves 0.25 of 2 GPUs"},
		{"the emptier host", "spread", gpus, hostOf("z", 8, "x", 1000, 1000), hostOf("a", 8, "x", 1000, 0), "emptiest host: leaves 1 of 2 GPUs"},
		{"the larger free part", "spread", gpus, hostOf("z", 8, "x", 1000), hostOf("a", 8, "x", 1000, 1000, 0), "emptiest host: leaves 0 of 1 GPUs"},
		{"more free CPUs", "spread", cpus, hostOf("z", 9, ""), hostOf("a", 8, ""), "emptiest host: leaves 8 of 64 CPUs"},
	} {
		t.Run(c.policy+": "+c.name, func(t *testing.T) {
			got := Named()[c.policy].Choose(nil, Ask{Need: c.need}, remote(c.need, c.worse, c.better), 1)[0]
			if got.Index != 1 || got.Why != c.why {
				t.Errorf("it chooses %d, %q; want 1, %q", got.Index, got.Why, c.why)
			}
		})
	}
}
