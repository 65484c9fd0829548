package worker

// NVIDIA's multi-process service (MPS) limits a task to its share of a GPU. On a host where MPS does not run, shares are
// not enforced.

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/lease"
)

const mebibyte = 1 << 20

// shareLimits returns the environment with which MPS limits a task to its share of a device: percent of the processors,
// and MiB of the memory. The task sees its only device as number 0. pipe is the pipe directory of MPS.
func shareLimits(rec lease.Record, d gpu.Device, pipe string) map[string]string {
	return map[string]string{
		"CUDA_MPS_PIPE_DIRECTORY":           pipe,
		"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": strconv.Itoa(max(1, rec.Milli*100/gpu.Whole)),
		"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT":  fmt.Sprintf("0=%dM", max(1, gpu.Memory(rec.Need, d.Memory)/mebibyte)),
	}
}

// environment returns the environment of an attempt, with the limits of MPS if they apply.
func (ds *devices) environment(cfg Config, rec lease.Record) []string {
	env := Environment(cfg, rec)
	if ds.mps == "" || rec.Milli == 0 || rec.Milli == gpu.Whole || len(rec.Devices) != 1 {
		return env
	}
	d := ds.by[rec.Devices[0]]
	if d == nil || d.Simulated || d.Parent != "" {
		return env
	}
	more := shareLimits(rec, d.Device, ds.mps)
	env = slices.DeleteFunc(env, func(word string) bool { // the user's variables must not change the limits
		name, _, _ := strings.Cut(word, "=")
		_, ours := more[name]
		return ours
	})
	for _, name := range slices.Sorted(maps.Keys(more)) {
		env = append(env, name+"="+more[name])
	}
	slices.Sort(env)
	return env
}
