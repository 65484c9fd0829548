package placing

// The policies of muster: they use the machines as a scheduler's table of hosts, and the code that places its tasks.

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/internal/sim/load"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler/fleet"
	"github.com/musterhq/muster/scheduler/place"
	"github.com/musterhq/muster/scheduler/policy"
)

// muster has the hosts as a scheduler knows them.
type muster struct {
	fleet  fleet.Table
	placer *place.Placer
	policy policy.Policy
	tasks  map[job.Resources]*place.Task
	hosts  []*fleet.Host
	index  map[job.Peer]int // of the host's machine
	random *rand.Rand
	chosen []int
}

// epoch is the time of all decisions.
var epoch = time.Unix(0, 0)

// newMuster returns the policy with the usual requests of the workload. The hosts join in random order, and each
// decision begins to look at a random host, as in a daemon.
func newMuster(cfg *Config, c *cluster, p policy.Policy, workload []*request) *muster {
	m := &muster{
		fleet: fleet.NewTable(), policy: p, tasks: map[job.Resources]*place.Task{}, index: map[job.Peer]int{},
		hosts: make([]*fleet.Host, len(c.machines)), random: rand.New(rand.NewPCG(uint64(cfg.Seed), 0)),
	}
	typical := &policy.Typical{}
	for _, r := range workload {
		typical.Asked(r.need, 1)
	}
	m.placer = place.New(&m.fleet, typical)
	m.placer.Sample = cfg.Candidates
	if m.placer.Sample == 0 {
		m.placer.Sample = len(c.machines)
	}
	for _, i := range m.random.Perm(len(c.machines)) {
		peer := job.Peer(c.machines[i].name)
		m.index[peer] = i
		m.hosts[i] = m.fleet.Add(peer, false)
		m.fleet.Hello(m.hosts[i], helloOf(&cfg.Machines[i], &c.machines[i], c.devices), epoch)
	}
	return m
}

// helloOf returns the Hello that the machine's host would send.
func helloOf(of *load.Machine, m *machine, devices []gpu.Device) contract.Hello {
	h := contract.Hello{Profile: contract.Profile{
		Name: m.name, CPUs: m.cpu, Memory: m.memory, Worker: true, Drivers: []string{contract.DriverExec}, Labels: of.Labels,
	}}
	h.Free = contract.Free{CPUs: m.cpu, Memory: m.memory}
	for i := range m.left {
		d := devices[m.model]
		d.UUID = fmt.Sprint(m.name, "-", i)
		h.Profile.GPUs = append(h.Profile.GPUs, d)
		h.Free.GPUs = append(h.Free.GPUs, contract.FreeGPU{UUID: d.UUID, Memory: d.Memory, Milli: gpu.Whole})
	}
	return h
}

// task returns a task that asks for these resources. Equal resources get the same task.
func (m *muster) task(need job.Resources) *place.Task {
	t := m.tasks[need]
	if t == nil {
		s := job.Spec{Resources: need}
		clauses, err := fleet.ClausesOf(s)
		if err != nil {
			panic(err) // the spec has no constraint, and nothing else of it is parsed
		}
		t = &place.Task{Policy: m.policy, Request: fleet.Request{Shape: &fleet.Shape{
			Need: need, Foot: fleet.FootprintOf(need), Pool: m.fleet.JoinPool(fleet.PoolKey(s), clauses),
		}}}
		m.tasks[need] = t
	}
	return t
}

// choose decides as a scheduler does for one of its tasks.
func (m *muster) choose(r *request) (at int, devices []int) {
	m.fleet.Count(epoch)
	d := m.placer.Decide(m.task(r.need), m.random.IntN(len(m.hosts)), epoch)
	if d.Verdict != place.Fits {
		return -1, nil
	}
	m.chosen = m.chosen[:0]
	for i := range d.Host.Profile.GPUs {
		if slices.Contains(d.Devices, d.Host.Profile.GPUs[i].UUID) {
			m.chosen = append(m.chosen, i)
		}
	}
	return m.index[d.Host.Peer], m.chosen
}

// placed updates what the host has left, as the host would report it.
func (m *muster) placed(r *request, at int, devices []int) {
	h := m.hosts[at]
	free := h.Free
	free.CPUs -= r.cpu
	free.Memory -= r.memory
	free.Tasks++
	free.GPUs = make([]contract.FreeGPU, 0, len(h.Free.GPUs))
	for _, g := range h.Free.GPUs {
		i := slices.IndexFunc(h.Profile.GPUs, func(d gpu.Device) bool { return d.UUID == g.UUID })
		if slices.Contains(devices, i) {
			g.Milli -= r.milli
			g.Memory -= gpu.Memory(r.need, h.Profile.GPUs[i].Memory)
		}
		if g.Milli > 0 {
			free.GPUs = append(free.GPUs, g)
		}
	}
	h.SetFree(free)
}
