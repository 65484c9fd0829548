package central

// Where tasks go: by best fit, at random, or by a placement policy of muster that sees all machines.

import (
	"fmt"
	"slices"
	"time"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/internal/sim/load"
	"github.com/musterhq/muster/internal/sim/record"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler/fleet"
	"github.com/musterhq/muster/scheduler/place"
	"github.com/musterhq/muster/scheduler/policy"
)

// placer gives tasks their machines and devices.
type placer interface {
	place(x *item) []record.Alloc // takes what it returns; nil: the task does not fit
	takeBack(x *item, where []record.Alloc)
	release(x *item)     // of a task that runs
	refresh(machine int) // called when a fault has changed what the machine can give
}

func (r *run) newPlacer(machines []load.Machine) (placer, error) { //nolint:ireturn // there are two
	switch r.options.Place {
	case BestFit, "":
		return simple{r, r.cluster.bestFit}, nil
	case Random:
		return simple{r, r.random}, nil
	}
	p := policy.Named()[string(r.options.Place)]
	if p == nil {
		return nil, fmt.Errorf("no placement policy is called %q; there are %v, %s and %s", r.options.Place, policy.Names(), BestFit, Random)
	}
	return newPolicies(r, p, machines)
}

// simple is a placer that is one function of the cluster.
type simple struct {
	r      *run
	choose func(*shape) []record.Alloc
}

func (p simple) place(x *item) []record.Alloc {
	where := p.choose(x.shape)
	if where != nil {
		p.r.cluster.take(x.shape, where)
	}
	return where
}

func (p simple) takeBack(x *item, where []record.Alloc) { p.r.cluster.give(x.shape, where) }
func (p simple) release(x *item)                        { p.r.cluster.give(x.shape, x.where) }
func (p simple) refresh(int)                            {}

// random chooses random machines where a shape fits.
func (r *run) random(s *shape) []record.Alloc {
	var fits []int
	for i := range r.cluster.machines {
		if r.cluster.machines[i].fits(s) {
			fits = append(fits, i)
		}
	}
	if len(fits) < s.members {
		return nil
	}
	r.rng.Shuffle(len(fits), func(i, j int) { fits[i], fits[j] = fits[j], fits[i] })
	return r.cluster.allocs(s, fits[:s.members])
}

// policies lets a policy of muster choose among all machines.
type policies struct {
	r        *run
	table    fleet.Table
	placer   *place.Placer
	hosts    []*fleet.Host
	machines map[*fleet.Host]int
	tasks    map[*shape]*place.Task
	uuids    [][]string // of each machine's devices
	memory   []job.Size // of each of a machine's devices
	tasksAt  []int
}

// epoch is the time of all decisions: what hosts report does not age here.
var epoch = time.Unix(0, 0)

func newPolicies(r *run, p policy.Policy, machines []load.Machine) (*policies, error) {
	x := &policies{r: r, table: fleet.NewTable(), machines: map[*fleet.Host]int{}, tasks: map[*shape]*place.Task{}, tasksAt: make([]int, len(machines))}
	typical := &policy.Typical{}
	for _, y := range r.arrivals {
		typical.Asked(y.shape.need, y.shape.members)
	}
	x.placer = place.New(&x.table, typical)
	x.placer.Sample = len(machines)
	for i := range machines {
		profile := machines[i].Profile()
		var uuids []string
		for _, d := range profile.GPUs {
			uuids = append(uuids, d.UUID)
		}
		x.uuids = append(x.uuids, uuids)
		memory := job.Size(0)
		if len(profile.GPUs) > 0 {
			memory = profile.GPUs[0].Memory
		}
		x.memory = append(x.memory, memory)
		h := x.table.Add(job.Peer(machines[i].Name), false)
		h.Address = machines[i].Name // members of gangs reach each other
		x.hosts = append(x.hosts, h)
		x.machines[h] = i
		x.table.Hello(h, contract.Hello{Profile: profile, Free: x.free(i)}, epoch)
	}
	for _, s := range r.waiting.shapes {
		clauses, err := fleet.ClausesOf(s.spec)
		if err != nil {
			return nil, err
		}
		x.tasks[s] = &place.Task{Policy: p, Request: fleet.Request{Shape: &fleet.Shape{
			Need: s.need, Foot: fleet.FootprintOf(s.need), Pool: x.table.JoinPool(fleet.PoolKey(s.spec), clauses),
		}}}
	}
	return x, nil
}

// free returns what a machine has free, as its daemon would report it.
func (p *policies) free(i int) contract.Free {
	m := &p.r.cluster.machines[i]
	if m.closed > 0 {
		return contract.Free{}
	}
	f := contract.Free{CPUs: m.cpus, Memory: m.mem, Tasks: p.tasksAt[i]}
	for d, left := range m.left {
		if left > 0 {
			f.GPUs = append(f.GPUs, contract.FreeGPU{UUID: p.uuids[i][d], Memory: p.memory[i] * job.Size(left) / gpu.Whole, Milli: left})
		}
	}
	return f
}

func (p *policies) place(x *item) []record.Alloc {
	p.table.Count(epoch)
	t, from := p.tasks[x.shape], p.r.rng.IntN(len(p.hosts))
	var spots []place.Spot
	if x.shape.members > 1 {
		if spots, _, _ = p.placer.Gather(t, from, epoch, x.shape.members, 0); len(spots) < x.shape.members {
			return nil
		}
	} else {
		d := p.placer.Decide(t, from, epoch)
		if d.Verdict != place.Fits {
			return nil
		}
		spots = []place.Spot{{Host: d.Host, Devices: d.Devices}}
	}
	var where []record.Alloc
	for _, s := range spots {
		i := p.machines[s.Host]
		a := record.Alloc{Machine: i, Milli: x.shape.milli}
		for _, u := range s.Devices {
			a.Devices = append(a.Devices, slices.Index(p.uuids[i], u))
		}
		slices.Sort(a.Devices)
		where = append(where, a)
	}
	p.r.cluster.take(x.shape, where)
	p.changed(where, 1)
	return where
}

func (p *policies) takeBack(x *item, where []record.Alloc) {
	p.r.cluster.give(x.shape, where)
	p.changed(where, -1)
}

func (p *policies) release(x *item) { p.takeBack(x, x.where) }

func (p *policies) refresh(machine int) { p.hosts[machine].SetFree(p.free(machine)) }

// changed updates the table of hosts with what is free now.
func (p *policies) changed(where []record.Alloc, tasks int) {
	for _, a := range where {
		p.tasksAt[a.Machine] += tasks
		p.hosts[a.Machine].SetFree(p.free(a.Machine))
	}
}
