package resources

// What this host has, and how much of it is in use.

import (
	"fmt"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
)

// Capacity counts the resources of one host. If a new profile has less than attempts hold, nothing is free until enough
// attempts have ended.
type Capacity struct {
	cpus       int
	memory     job.Size
	usedCPUs   int
	usedMemory job.Size
	gpus       *gpu.Pool
	count      int         // attempts that hold resources
	exclusive  job.Attempt // the one that has the whole host; zero if none
}

func newCapacity(p contract.Profile) (Capacity, error) {
	pool, err := gpu.NewPool(p.GPUs)
	if err != nil {
		return Capacity{}, fmt.Errorf("worker: devices of this host: %w", err)
	}
	return Capacity{cpus: p.CPUs, memory: p.Memory, gpus: pool}, nil
}

func (r *Capacity) setProfile(p contract.Profile) error {
	if err := r.gpus.Update(p.GPUs); err != nil {
		return fmt.Errorf("worker: devices of this host: %w", err)
	}
	r.cpus, r.memory = p.CPUs, p.Memory
	return nil
}

// Never returns why the host cannot meet the need even when idle, or "" if it can.
func (r *Capacity) Never(need job.Resources) string {
	switch {
	case need.CPUs > r.cpus:
		return fmt.Sprintf("cpus: %d wanted, this host has %d", need.CPUs, r.cpus)
	case need.Memory > r.memory:
		return fmt.Sprintf("memory: %s wanted, this host has %s", need.Memory, r.memory)
	case gpu.Count(need) > 0:
		if ok, why := r.gpus.CouldEver(need); !ok {
			return "gpus: " + why
		}
	}
	return ""
}

// Allot returns what an attempt with these devices holds. An exclusive attempt holds all CPUs of the host and these
// devices, but only the memory that it asks for, as in Slurm.
func (r *Capacity) Allot(need job.Resources, devices []string) job.Resources {
	if !need.Exclusive {
		return need
	}
	return job.Resources{CPUs: max(r.cpus, need.CPUs), Memory: need.Memory, GPUs: len(devices), Exclusive: true}
}

// Whole returns what an attempt with this need would hold if all devices were free.
func (r *Capacity) Whole(need job.Resources) job.Resources {
	return contract.Whole(need, r.cpus, gpu.Len(r.gpus))
}

// Short returns which of CPUs and memory does not suffice now, for people, or "" if both do. It also names the task that
// has the host for itself.
func (r *Capacity) Short(need job.Resources) string {
	switch {
	case r.exclusive != job.Attempt{}:
		return fmt.Sprintf("task %s has this host for itself", r.exclusive)
	case need.Exclusive && r.count > 0:
		return fmt.Sprintf("exclusive: other tasks are here: %d", r.count)
	case need.CPUs > max(0, r.cpus-r.usedCPUs):
		return fmt.Sprintf("cpus: %d wanted, %d free", need.CPUs, max(0, r.cpus-r.usedCPUs))
	case need.Memory > max(0, r.memory-r.usedMemory):
		return fmt.Sprintf("memory: %s wanted, %s free", need.Memory, max(0, r.memory-r.usedMemory))
	}
	return ""
}

// Enough reports whether CPUs and memory suffice now, and whether the tasks here allow another one.
func (r *Capacity) Enough(need job.Resources) bool {
	if r.exclusive != (job.Attempt{}) || need.Exclusive && r.count > 0 {
		return false
	}
	return need.CPUs <= max(0, r.cpus-r.usedCPUs) && need.Memory <= max(0, r.memory-r.usedMemory)
}

// Choose returns devices for the need of an offer, or false if it does not fit now. A share gets the device that the
// scheduler prefers, if that has room. An exclusive need gets all devices that are wholly free, if they include what it
// asks for.
func (r *Capacity) Choose(need job.Resources, preferred string) ([]string, bool) {
	if !r.Enough(need) {
		return nil, false
	}
	var devices []string
	switch {
	case gpu.Count(need) == 0:
	case r.gpus.HasRoom(preferred, need):
		devices = []string{preferred}
	default:
		var fit bool
		if devices, fit = r.gpus.Choose(need); !fit {
			return nil, false
		}
	}
	if need.Exclusive {
		devices = nil
		for _, f := range r.gpus.Free() {
			if f.Milli == gpu.Whole {
				devices = append(devices, f.UUID)
			}
		}
	}
	return devices, true
}

// hold allocates what allot has returned: all of it, or nothing and an error.
func (r *Capacity) hold(a job.Attempt, need job.Resources, devices []string) error {
	if len(devices) > 0 {
		if err := r.gpus.Hold(a.String(), devices, gpu.Milli(need), need.GPUMemory); err != nil {
			return fmt.Errorf("worker: hold devices for %s: %w", a, err)
		}
	}
	r.take(a, need)
	return nil
}

func (r *Capacity) take(a job.Attempt, held job.Resources) {
	r.usedCPUs += held.CPUs
	r.usedMemory += held.Memory
	r.count++
	if held.Exclusive {
		r.exclusive = a
	}
}

// adopt records what an earlier run of the daemon had allocated to an attempt.
func (r *Capacity) adopt(rec contract.Record) error {
	r.take(rec.Attempt, rec.Need)
	if len(rec.Devices) == 0 {
		return nil
	}
	if err := r.gpus.Adopt(rec.Attempt.String(), rec.Devices, gpu.Milli(rec.Need), rec.Need.GPUMemory); err != nil {
		return fmt.Errorf("worker: adopt devices of %s: %w", rec.Attempt, err)
	}
	return nil
}

func (r *Capacity) release(a job.Attempt, need job.Resources, devices []string) {
	if len(devices) > 0 {
		r.gpus.Release(a.String())
	}
	r.usedCPUs -= need.CPUs
	r.usedMemory -= need.Memory
	r.count--
	if r.exclusive == a {
		r.exclusive = job.Attempt{}
	}
}

// Spare returns the CPUs and memory that are free. Both are negative if a new profile has less than attempts hold.
func (r *Capacity) Spare() (cpus int, memory job.Size) {
	return r.cpus - r.usedCPUs, r.memory - r.usedMemory
}

// Aside calls a function while some CPUs and memory count as used.
func (r *Capacity) Aside(cpus int, memory job.Size, do func()) {
	r.usedCPUs, r.usedMemory = r.usedCPUs+cpus, r.usedMemory+memory
	do()
	r.usedCPUs, r.usedMemory = r.usedCPUs-cpus, r.usedMemory-memory
}

// Pool returns the devices of this host, and who holds them.
func (r *Capacity) Pool() *gpu.Pool { return r.gpus }

// Tasks returns how many attempts hold resources.
func (r *Capacity) Tasks() int { return r.count }

// Alone returns the attempt that has the whole host; zero if none has.
func (r *Capacity) Alone() job.Attempt { return r.exclusive }

func (r *Capacity) free() contract.Free {
	if r.exclusive != (job.Attempt{}) {
		return contract.Free{Tasks: r.count, Exclusive: true, Quarantined: r.gpus.Idle()}
	}
	f := contract.Free{Tasks: r.count, CPUs: max(0, r.cpus-r.usedCPUs), Memory: max(0, r.memory-r.usedMemory)}
	for _, g := range r.gpus.Free() {
		f.GPUs = append(f.GPUs, contract.FreeGPU{UUID: g.UUID, Memory: g.Memory, Milli: g.Milli})
	}
	f.Quarantined = r.gpus.Idle()
	return f
}
