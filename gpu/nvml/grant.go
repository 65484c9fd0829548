package nvml

// Grant: what a task gets with its GPUs, or with its share of one.
//
// The limits of MPS are variables of the task, which a program can unset. Since release 615 (CUDA 13.4) NVIDIA's driver
// registers memory with the kernel, which then enforces the limit; see worker/cgroup/devicememory.go. The variables stay
// set for older kernels and drivers, for the part of the processors, and for containers. A control daemon of MPS for each
// share would enforce them too, but then only one share could compute at a time.

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/job"
)

const mebibyte = 1 << 20

// sharedMemory is what clients of MPS and its server share besides the pipe directory. A container or a task may have a
// /dev/shm of its own.
const sharedMemory = "/dev/shm"

// Grant returns what a task with these devices gets. A kernel that accounts the memory of GPUs limits a task to the
// memory of its share. On a host where MPS runs, MPS limits a task to its share of the processors and of the memory,
// unless the task changes its environment.
func (d *Driver) Grant(devices []gpu.Device, need job.Resources) gpu.Grant {
	g := d.kernel.Grant(devices)
	pipe := ""
	if slices.ContainsFunc(devices, func(dev gpu.Device) bool { return !dev.Simulated }) {
		pipe = mpsPipe()
	}
	if pipe != "" { // programs use MPS where it runs, also those with whole GPUs
		g.Shared = []string{pipe, sharedMemory}
	}
	if len(devices) != 1 || devices[0].Simulated || devices[0].Parent != "" {
		return g
	}
	milli, memory, ok := gpu.ShareOf(need, devices[0])
	if !ok {
		return g
	}
	if memory > 0 && devices[0].PCI != "" {
		g.Memory = []gpu.MemoryLimit{{PCI: devices[0].PCI, Bytes: memory}}
	}
	if pipe == "" {
		return g
	}
	maps.Copy(g.Env, map[string]string{ // the task sees its only device as number 0
		"CUDA_MPS_PIPE_DIRECTORY":           pipe,
		"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": strconv.Itoa(max(1, milli*100/gpu.Whole)),
		"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT":  fmt.Sprintf("0=%dM", max(1, memory/mebibyte)),
	})
	g.Engine.Mounts = slices.Clone(g.Shared)
	return g
}
