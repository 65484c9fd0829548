package policy

import (
	"testing"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/lease"
)

func host(name string, cpus, free int, local bool, memories ...job.Size) Host {
	h := Host{
		Peer: job.Peer("p-" + name), Name: name, Local: local,
		Profile: &lease.Profile{CPUs: cpus, Memory: 64e9},
		Free:    lease.Free{CPUs: free, Memory: 64e9},
	}
	for _, m := range memories {
		h.Profile.GPUs = append(h.Profile.GPUs, gpu.Device{UUID: name, Memory: m, Class: "x"})
		h.Free.GPUs = append(h.Free.GPUs, lease.FreeGPU{UUID: name, Memory: m, Milli: 1000})
	}
	return h
}

func TestSimplePrefers(t *testing.T) {
	cpu := job.Resources{CPUs: 2}
	for _, c := range []struct {
		name          string
		need          job.Resources
		better, worse Host
	}{
		{"this host to a fuller one", cpu, host("z", 64, 64, true), host("a", 64, 2, false)},
		{"this host with GPUs to one without", cpu, host("z", 64, 64, true, 80e9), host("a", 64, 2, false)},
		{"the fuller host", cpu, host("z", 64, 4, false), host("a", 64, 60, false)},
		{"no GPUs for a task without", cpu, host("z", 64, 60, false), host("a", 64, 2, false, 80e9)},
		{"the smaller device", job.Resources{GPUs: 1}, host("z", 8, 8, false, 16e9), host("a", 8, 8, false, 80e9)},
		{"fewer devices left", job.Resources{GPUs: 1}, host("z", 8, 8, false, 80e9), host("a", 8, 8, false, 80e9, 80e9)},
		{"the name in a tie", cpu, host("a", 8, 8, false), host("b", 8, 8, false)},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := Simple{}
			if Compare(c.better, c.worse, p.Score(c.need, c.better), p.Score(c.need, c.worse)) >= 0 {
				t.Errorf("%s scores %v, %s %v", c.better.Name, p.Score(c.need, c.better), c.worse.Name, p.Score(c.need, c.worse))
			}
			if p.Why(c.need, c.better) == "" {
				t.Error("no reason")
			}
		})
	}
}
