package placing

// The machines and what is free on them. Every choice is checked against this account.

import (
	"errors"
	"fmt"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/internal/sim/load"
	"github.com/musterhq/muster/job"
)

// cluster has all machines.
type cluster struct {
	machines []machine
	devices  []gpu.Device // one of each model
	milli    int          // of all GPUs
	models   map[string][]bool
}

// machine is one machine and what is free on it.
type machine struct {
	name    string
	cpu     int // thousandths
	memory  job.Size
	left    []int // thousandths of each device
	idle    int   // the sum of left
	model   int   // index in cluster.devices; -1 if it has none
	version int   // counts the requests that were placed
	kinds   uint64
}

// request is one request, in the units of the cluster.
type request struct {
	name   string
	need   job.Resources
	cpu    int
	memory job.Size
	gpus   int
	milli  int    // of each of the gpus
	models []bool // which of cluster.devices it accepts; the same slice for the same models
	kind   kind
}

// kind is what the published policies see of a request. Memory is not part of it.
type kind struct {
	cpu, milli, gpus int
	models           string // as the table writes them
}

// all returns what a request takes of all its GPUs together, in thousandths of a GPU.
func (r *request) all() int { return r.gpus * r.milli }

// share reports whether the request is for a part of one GPU.
func (r *request) share() bool { return r.gpus == 1 && r.milli < gpu.Whole }

// deviceMemory is the memory of a device if the list of machines does not give it. No request asks for memory of
// devices.
const deviceMemory = job.Size(16 << 30)

func newCluster(machines []load.Machine) (*cluster, error) {
	c := &cluster{models: map[string][]bool{}}
	index := map[string]int{}
	names := map[string]bool{}
	for i := range machines {
		m := &machines[i]
		if err := checkMachine(m); err != nil {
			return nil, err
		}
		if names[m.Name] {
			return nil, fmt.Errorf("machine %s: listed twice", m.Name)
		}
		names[m.Name] = true
		x := machine{name: m.Name, cpu: m.CPUs, memory: m.Memory, idle: m.GPUs * gpu.Whole, model: -1}
		for range m.GPUs {
			x.left = append(x.left, gpu.Whole)
		}
		if m.GPUs > 0 {
			class := contract.ModelName(m.Model)
			at, known := index[class]
			if !known {
				at = len(c.devices)
				index[class] = at
				memory := m.DeviceMemory
				if memory == 0 {
					memory = deviceMemory
				}
				c.devices = append(c.devices, gpu.Device{Class: class, Memory: memory})
			}
			x.model = at
		}
		c.milli += x.idle
		c.machines = append(c.machines, x)
	}
	if c.milli == 0 {
		return nil, errors.New("the machines have no GPUs")
	}
	return c, nil
}

// requests returns the requests in the units of the cluster.
func (c *cluster) requests(all []load.Request) ([]*request, error) {
	if len(all) == 0 {
		return nil, errors.New("no request is listed")
	}
	out := make([]*request, len(all))
	for i := range all {
		x := &all[i]
		if err := checkRequest(x); err != nil {
			return nil, err
		}
		out[i] = &request{
			name: x.Name, need: x.Need, cpu: x.Need.CPUs, memory: x.Need.Memory, gpus: x.GPUs, milli: x.Milli,
			models: c.accepted(x.Need.GPUModel), kind: kind{x.Need.CPUs, x.Milli, x.GPUs, x.Models},
		}
	}
	return out, nil
}

// accepted returns which models are accepted by a request that names these models.
func (c *cluster) accepted(models string) []bool {
	if known := c.models[models]; known != nil {
		return known
	}
	out := make([]bool, len(c.devices))
	for i := range c.devices {
		out[i] = contract.GPUMeets(c.devices[i], job.Resources{GPUs: 1, GPUModel: models})
	}
	c.models[models] = out
	return out
}

// fits reports whether the request fits at the machine now.
func (m *machine) fits(r *request) bool {
	if m.cpu < r.cpu || m.memory < r.memory {
		return false
	}
	if r.gpus == 0 {
		return true
	}
	return m.idle >= r.all() && r.models[m.model] && m.count(r.milli) >= r.gpus
}

// count returns how many devices have at least this much left.
func (m *machine) count(milli int) int {
	n := 0
	for _, left := range m.left {
		if left >= milli {
			n++
		}
	}
	return n
}

// take gives the devices, which are in ascending order, to the request. It returns an error if they are not free, or
// not what the request asks for.
func (m *machine) take(r *request, devices []int) error {
	if !m.fits(r) {
		return errors.New("it does not fit")
	}
	if len(devices) != r.gpus {
		return fmt.Errorf("it gets %d devices instead of %d", len(devices), r.gpus)
	}
	for i, d := range devices {
		if d < 0 || d >= len(m.left) || m.left[d] < r.milli || i > 0 && devices[i-1] >= d {
			return fmt.Errorf("the devices %v are not free for it", devices)
		}
	}
	for _, d := range devices {
		m.left[d] -= r.milli
	}
	m.cpu -= r.cpu
	m.memory -= r.memory
	m.idle -= r.all()
	m.kinds |= r.sort()
	m.version++
	return nil
}

// sort returns a bit for each kind of request that the policy GpuClustering distinguishes: shares, and each number of
// whole devices. It returns 0 for a request without GPUs.
func (r *request) sort() uint64 {
	switch {
	case r.gpus == 0:
		return 0
	case r.share():
		return 1
	}
	return 1 << min(r.gpus, 63)
}
