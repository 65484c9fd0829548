package worker

// What this host has, and how much of it is in use.

import (
	"fmt"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
)

// capacity counts the resources of one host. If a new profile has less than attempts hold, nothing is free until enough
// attempts have ended.
type capacity struct {
	cpus       int
	memory     job.Size
	usedCPUs   int
	usedMemory job.Size
	gpus       *gpu.Pool
	tasks      int         // attempts that hold resources
	alone      job.Attempt // the one that has the whole host; zero if none
}

func newCapacity(p contract.Profile) (capacity, error) {
	pool, err := gpu.NewPool(p.GPUs)
	if err != nil {
		return capacity{}, fmt.Errorf("worker: devices of this host: %w", err)
	}
	return capacity{cpus: p.CPUs, memory: p.Memory, gpus: pool}, nil
}

func (r *capacity) setProfile(p contract.Profile) error {
	if err := r.gpus.Update(p.GPUs); err != nil {
		return fmt.Errorf("worker: devices of this host: %w", err)
	}
	r.cpus, r.memory = p.CPUs, p.Memory
	return nil
}

// never returns why the host cannot meet the need even when idle, or "" if it can.
func (r *capacity) never(need job.Resources) string {
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

// allot returns what an attempt with these devices holds. An exclusive attempt holds all CPUs of the host and these
// devices, but only the memory that it asks for, as in Slurm.
func (r *capacity) allot(need job.Resources, devices []string) job.Resources {
	if !need.Exclusive {
		return need
	}
	return job.Resources{CPUs: max(r.cpus, need.CPUs), Memory: need.Memory, GPUs: len(devices), Exclusive: true}
}

// whole returns what an attempt with this need would hold if all devices were free.
func (r *capacity) whole(need job.Resources) job.Resources {
	return contract.Whole(need, r.cpus, gpu.Len(r.gpus))
}

// short returns which of CPUs and memory does not suffice now, for people, or "" if both do. It also names the task that
// has the host for itself.
func (r *capacity) short(need job.Resources) string {
	switch {
	case r.alone != job.Attempt{}:
		return fmt.Sprintf("task %s has this host for itself", r.alone)
	case need.Exclusive && r.tasks > 0:
		return fmt.Sprintf("exclusive: other tasks are here: %d", r.tasks)
	case need.CPUs > max(0, r.cpus-r.usedCPUs):
		return fmt.Sprintf("cpus: %d wanted, %d free", need.CPUs, max(0, r.cpus-r.usedCPUs))
	case need.Memory > max(0, r.memory-r.usedMemory):
		return fmt.Sprintf("memory: %s wanted, %s free", need.Memory, max(0, r.memory-r.usedMemory))
	}
	return ""
}

// enough reports whether CPUs and memory suffice now, and whether the tasks here allow another one.
func (r *capacity) enough(need job.Resources) bool {
	if r.alone != (job.Attempt{}) || need.Exclusive && r.tasks > 0 {
		return false
	}
	return need.CPUs <= max(0, r.cpus-r.usedCPUs) && need.Memory <= max(0, r.memory-r.usedMemory)
}

// choose returns devices for the need of an offer, or false if it does not fit now. A share gets the device that the
// scheduler prefers, if that has room. An exclusive need gets all devices that are wholly free, if they include what it
// asks for.
func (r *capacity) choose(need job.Resources, preferred string) ([]string, bool) {
	if !r.enough(need) {
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
func (r *capacity) hold(a job.Attempt, need job.Resources, devices []string) error {
	if len(devices) > 0 {
		if err := r.gpus.Hold(a.String(), devices, gpu.Milli(need), need.GPUMemory); err != nil {
			return fmt.Errorf("worker: hold devices for %s: %w", a, err)
		}
	}
	r.take(a, need)
	return nil
}

func (r *capacity) take(a job.Attempt, held job.Resources) {
	r.usedCPUs += held.CPUs
	r.usedMemory += held.Memory
	r.tasks++
	if held.Exclusive {
		r.alone = a
	}
}

// adopt records what an earlier run of the daemon had allocated to an attempt.
func (r *capacity) adopt(rec contract.Record) error {
	r.take(rec.Attempt, rec.Need)
	if len(rec.Devices) == 0 {
		return nil
	}
	if err := r.gpus.Adopt(rec.Attempt.String(), rec.Devices, gpu.Milli(rec.Need), rec.Need.GPUMemory); err != nil {
		return fmt.Errorf("worker: adopt devices of %s: %w", rec.Attempt, err)
	}
	return nil
}

func (r *capacity) release(a job.Attempt, need job.Resources, devices []string) {
	if len(devices) > 0 {
		r.gpus.Release(a.String())
	}
	r.usedCPUs -= need.CPUs
	r.usedMemory -= need.Memory
	r.tasks--
	if r.alone == a {
		r.alone = job.Attempt{}
	}
}

func (r *capacity) free() contract.Free {
	if r.alone != (job.Attempt{}) {
		return contract.Free{Tasks: r.tasks, Exclusive: true, Quarantined: r.gpus.Idle()}
	}
	f := contract.Free{Tasks: r.tasks, CPUs: max(0, r.cpus-r.usedCPUs), Memory: max(0, r.memory-r.usedMemory)}
	for _, g := range r.gpus.Free() {
		f.GPUs = append(f.GPUs, contract.FreeGPU{UUID: g.UUID, Memory: g.Memory, Milli: g.Milli})
	}
	f.Quarantined = r.gpus.Idle()
	return f
}
