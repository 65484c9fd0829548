package fleet

import (
	"fmt"
	"testing"
	"time"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
)

// near is a host with 8 CPUs, 64 GB and GPUs of a model, of which so much is free.
func near(t *Table, name string, cpus int, memory job.Size, gpus, freeGPUs int, model string) *Host {
	m := contract.Hello{
		Profile: contract.Profile{Name: name, CPUs: 8, Memory: 64e9, Drivers: []string{contract.DriverExec}, Worker: true},
		Free:    contract.Free{CPUs: cpus, Memory: memory},
	}
	for i := range gpus {
		d := gpu.Device{UUID: fmt.Sprint(name, i), Model: model, Class: model, Memory: 80e9}
		m.Profile.GPUs = append(m.Profile.GPUs, d)
		if i < freeGPUs {
			m.Free.GPUs = append(m.Free.GPUs, contract.FreeGPU{UUID: d.UUID, Memory: 80e9, Milli: 1000})
		}
	}
	h := t.Add(job.Peer(name), false)
	t.Hello(h, m, time.Time{})
	return h
}

func TestNearestToARequestThatFitsNowhere(t *testing.T) {
	table := NewTable()
	hosts := []*Host{
		near(&table, "a", 2, 64e9, 8, 3, "h100-80gb"),
		near(&table, "b", 8, 16e9, 8, 8, "h100-80gb"),
		near(&table, "c", 8, 64e9, 8, 8, "a100-80gb"),
		near(&table, "d", 8, 64e9, 8, 1, "h100-80gb"),
	}
	down := near(&table, "e", 8, 64e9, 8, 8, "h100-80gb")
	down.Down(time.Time{})
	hosts = append(hosts, down)
	for _, h := range hosts[:2] { // they have declined a GPU for eve, because of a limit
		h.Quotas.refuse("eve", job.Resources{CPUs: 1, GPUs: 1}, "limit")
	}
	free := map[bool]func(*Host) *contract.Free{true: IdleOf, false: func(h *Host) *contract.Free { return &h.Free }}
	for name, c := range map[string]struct {
		need  job.Resources
		idle  bool
		want  contract.Nearest
		nodes int
		user  string
	}{
		"gang":            {need: job.Resources{CPUs: 1, GPUs: 4, GPUModel: "h100", Memory: 1e9}, nodes: 2, want: contract.Nearest{GPUs: 6}},
		"larger gang":     {need: job.Resources{CPUs: 1, GPUs: 4, GPUModel: "h100", Memory: 1e9}, nodes: 4, want: contract.Nearest{}},
		"limit":           {need: job.Resources{CPUs: 1, GPUs: 4, GPUModel: "h100", Memory: 32e9}, user: "eve", want: contract.Nearest{GPUs: 1}},
		"gpus":            {need: job.Resources{CPUs: 1, Memory: 32e9, GPUs: 4, GPUModel: "h100"}, idle: false, want: contract.Nearest{Memory: 16e9, GPUs: 3}},
		"cpus":            {need: job.Resources{CPUs: 4, GPUs: 2, GPUModel: "h100", Memory: 32e9}, idle: false, want: contract.Nearest{CPUs: 2, Memory: 16e9, GPUs: 1}},
		"one gpu or none": {need: job.Resources{CPUs: 1, GPUs: 1, GPUModel: "v100"}, idle: false, want: contract.Nearest{}},
		"two at once":     {need: job.Resources{CPUs: 9, Memory: 65e9}, idle: false, want: contract.Nearest{}},
		"ever":            {need: job.Resources{CPUs: 1, GPUs: 16, GPUModel: "h100"}, idle: true, want: contract.Nearest{GPUs: 8}},
		"ever, memory":    {need: job.Resources{CPUs: 1, Memory: 100e9}, idle: true, want: contract.Nearest{Memory: 64e9}},
	} {
		t.Run(name, func(t *testing.T) {
			s := job.DefaultSpec()
			s.Resources = c.need
			clauses, err := ClausesOf(s)
			if err != nil {
				t.Fatal(err)
			}
			if got := Nearest(clauses, c.user, c.need, c.nodes, hosts, free[c.idle]); got != c.want {
				t.Errorf("nearest %+v, want %+v", got, c.want)
			}
		})
	}
}
