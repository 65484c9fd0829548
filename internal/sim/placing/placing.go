// Package placing is the placement experiment of public traces: requests arrive one at a time and never leave. Each is
// placed at once, or rejected for good because it fits at no machine. The figure is the part of all GPUs that is
// allocated, as a function of the part of them that the requests so far have asked for.
//
// The policies of muster choose with package scheduler/place, the code that places the tasks of a daemon. The other
// policies are those of the paper "Beware of Fragmentation" (USENIX ATC 2023), as published. This package checks each
// choice against its own account of what is free.
//
// CPUs are counted in thousandths, GPUs in thousandths of a device. See docs/adr, ADR 98.
package placing

import (
	"context"
	"fmt"
	"slices"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/internal/sim/load"
	"github.com/musterhq/muster/scheduler/policy"
)

// Config configures one run of the experiment.
type Config struct {
	Machines []load.Machine
	Arrivals []load.Request // in the order in which they arrive
	Workload []load.Request // the table from which the usual requests are estimated; nil: the arrivals
	Policy   string         // one of Policies
	// Candidates is the number of random machines, of those where the request fits, from which the policy chooses; 0:
	// all.
	Candidates int
	Seed       int64
	// Ranks has a number for each machine. Of machines with equal scores, the published policies take the one with the
	// smallest rank. nil: the order of the names. Inflate returns the ranks of the published runs.
	Ranks []int
	// Log gets each decision, in the order of arrival; an error ends the run. It may be nil.
	Log func(Decision) error
	// Progress is called now and then with how many of the requests have been placed or rejected. It may be nil.
	Progress func(done, of int)
}

// Decision is the decision about one request.
type Decision struct {
	Request string // its name
	Machine int    // index in Config.Machines; -1: it fits at none
	Devices []int  // indices of the GPUs there, in ascending order; valid until the next decision
	Milli   int    // thousandths of each of these GPUs
}

// progressEvery is the number of requests between two calls of Progress.
const progressEvery = 256

// Policies returns the names of the policies: those of muster, then the published ones.
func Policies() []string { return append(policy.Names(), Published()...) }

// CheckPolicy returns an error if there is no policy of this name.
func CheckPolicy(name string) error {
	if slices.Contains(Policies(), name) {
		return nil
	}
	return fmt.Errorf("policy %.40q: want one of %v", name, Policies())
}

// chooser is a policy, with what it remembers of a run.
type chooser interface {
	// choose returns a machine where the request fits, and the devices that it gets there; -1 if there is none. The
	// devices are valid until the next call.
	choose(r *request) (machine int, devices []int)
	// placed says that the cluster has given the request what was chosen.
	placed(r *request, machine int, devices []int)
}

// Run places all arrivals.
func Run(ctx context.Context, cfg Config) (*Result, error) {
	c, err := newCluster(cfg.Machines)
	if err != nil {
		return nil, err
	}
	arrivals, err := c.requests(cfg.Arrivals)
	if err != nil {
		return nil, err
	}
	workload := arrivals
	if cfg.Workload != nil {
		if workload, err = c.requests(cfg.Workload); err != nil {
			return nil, err
		}
	}
	if cfg.Candidates < 0 {
		return nil, fmt.Errorf("%d candidates: want 0 for all, or more", cfg.Candidates)
	}
	ch, err := newChooser(&cfg, c, workload)
	if err != nil {
		return nil, err
	}
	m := newMeter(c, targetOf(c, workload))
	for i, r := range arrivals {
		if i%progressEvery == 0 {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			cfg.tell(i, len(arrivals))
		}
		d, err := c.decide(ch, r)
		if err != nil {
			return nil, fmt.Errorf("policy %s, request %s: %w", cfg.Policy, r.name, err)
		}
		m.arrived(r, d.Machine)
		if err := cfg.log(d); err != nil {
			return nil, err
		}
	}
	cfg.tell(len(arrivals), len(arrivals))
	return m.result(&cfg), nil
}

// tell reports the progress, if Progress is set.
func (c *Config) tell(done, of int) {
	if c.Progress != nil {
		c.Progress(done, of)
	}
}

// log logs the decision, if Log is set.
func (c *Config) log(d Decision) error {
	if c.Log == nil {
		return nil
	}
	return c.Log(d)
}

// decide lets the policy choose, and takes what was chosen. It returns an error if the choice is not legal.
func (c *cluster) decide(ch chooser, r *request) (Decision, error) {
	at, devices := ch.choose(r)
	if at < 0 {
		if i := slices.IndexFunc(c.machines, func(m machine) bool { return m.fits(r) }); i >= 0 {
			return Decision{}, fmt.Errorf("rejected, but it fits at %s", c.machines[i].name)
		}
		return Decision{Request: r.name, Machine: -1}, nil
	}
	if err := c.machines[at].take(r, devices); err != nil {
		return Decision{}, fmt.Errorf("at %s: %w", c.machines[at].name, err)
	}
	ch.placed(r, at, devices)
	return Decision{Request: r.name, Machine: at, Devices: devices, Milli: r.milli}, nil
}

// newChooser returns the policy of this name.
func newChooser(cfg *Config, c *cluster, workload []*request) (chooser, error) { //nolint:ireturn // a policy of muster, or a published one
	if err := CheckPolicy(cfg.Policy); err != nil {
		return nil, err
	}
	if p := policy.Named()[cfg.Policy]; p != nil {
		return newMuster(cfg, c, p, workload), nil
	}
	return newPublished(cfg, c, workload)
}

// checkMachine applies the bounds of a host to what a machine has.
func checkMachine(m *load.Machine) error {
	switch {
	case m.GPUs < 0 || m.GPUs > contract.MaxGPUs:
		return fmt.Errorf("machine %s: %d GPUs: want 0 to %d", m.Name, m.GPUs, contract.MaxGPUs)
	case m.CPUs < 0 || m.Memory < 0:
		return fmt.Errorf("machine %s: %d thousandths of a CPU and %d bytes of memory: want no negative number", m.Name, m.CPUs, m.Memory)
	}
	return nil
}

// checkRequest refuses what the experiment does not model.
func checkRequest(r *load.Request) error {
	switch need := &r.Need; {
	case need.Exclusive || need.GPUMemory > 0:
		return fmt.Errorf("request %s: the placement experiment knows CPUs, memory, GPUs, shares and models of GPUs only", r.Name)
	case need.CPUs < 0 || need.Memory < 0 || need.GPUs < 0:
		return fmt.Errorf("request %s: it asks for less than nothing", r.Name)
	case gpu.Count(*need) != r.GPUs || gpu.Milli(*need) != r.Milli:
		return fmt.Errorf("request %s: %d thousandths of %d GPUs are not what its need says", r.Name, r.Milli, r.GPUs)
	}
	return nil
}
