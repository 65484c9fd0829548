// Package machine reports what this host has besides GPUs: processors, memory,
// disk, the limits that hold for this process, and which of its boots this is.
package machine

import (
	"context"
	"fmt"
	"math"
	"runtime"

	"github.com/shirou/gopsutil/v4/cpu"
	"github.com/shirou/gopsutil/v4/disk"
	"github.com/shirou/gopsutil/v4/mem"

	"github.com/musterhq/muster/job"
)

// Facts is what Read found out. What a system does not tell is zero.
type Facts struct {
	CPUs     int      // that this process and its children may use; at least 1
	HostCPUs int      // that the host has
	Quota    float64  // processors' worth of time that the cgroup allows; 0: all
	Memory   job.Size // that this process and its children may use
	HostMem  job.Size // that the host has
	FreeMem  job.Size // of Memory, that is not in use now

	Disk       job.Size // of the file system that holds the data directory
	DiskFree   job.Size // of it, to this user
	FileSystem string   // its type

	CgroupVersion int      // 2; 1, also where both are mounted; 0: none
	Controllers   []string // of this process's cgroup, version 2 only
	Delegated     bool     // this process may make cgroups below its own

	OpenFiles    uint64 // that a process may have open
	MaxOpenFiles uint64 // to which it may raise that

	// Incarnation names one boot of this host as this process sees it: after a
	// reboot, or a restart of the container, it is another, and no process of
	// before is left. A change of the clock does not change it.
	Incarnation string
}

// group is what the cgroup of this process says.
type group struct {
	version     int
	controllers []string
	delegated   bool
	quota       float64  // processors; 0: no limit
	memory      job.Size // 0: no limit
	used        job.Size // of memory
}

// Read finds out the facts; dataDir must exist.
func Read(ctx context.Context, dataDir string) (Facts, error) {
	g := readGroup()
	f := Facts{Quota: g.quota, CgroupVersion: g.version, Controllers: g.controllers, Delegated: g.delegated}
	var err error
	if f.HostCPUs, err = cpu.CountsWithContext(ctx, true); err != nil {
		return Facts{}, fmt.Errorf("machine: count the processors: %w", err)
	}
	f.CPUs = usable(runtime.NumCPU(), g.quota)
	m, err := mem.VirtualMemoryWithContext(ctx)
	if err != nil {
		return Facts{}, fmt.Errorf("machine: read the memory: %w", err)
	}
	f.HostMem = job.Size(min(m.Total, math.MaxInt64))
	f.Memory, f.FreeMem = limited(f.HostMem, job.Size(min(m.Available, math.MaxInt64)), g)
	d, err := disk.UsageWithContext(ctx, dataDir)
	if err != nil {
		return Facts{}, fmt.Errorf("machine: read the disk of %s: %w", dataDir, err)
	}
	f.Disk, f.DiskFree, f.FileSystem = job.Size(min(d.Total, math.MaxInt64)), job.Size(min(d.Free, math.MaxInt64)), d.Fstype
	if f.OpenFiles, f.MaxOpenFiles, err = openFiles(); err != nil {
		return Facts{}, fmt.Errorf("machine: read the limit of open files: %w", err)
	}
	if f.Incarnation, err = Incarnation(ctx); err != nil {
		return Facts{}, err
	}
	return f, nil
}

// DiskFree is the room for this user on the file system of path.
func DiskFree(ctx context.Context, path string) (job.Size, error) {
	d, err := disk.UsageWithContext(ctx, path)
	if err != nil {
		return 0, fmt.Errorf("machine: read the disk of %s: %w", path, err)
	}
	return job.Size(min(d.Free, math.MaxInt64)), nil
}

// usable is the number of processors under a quota: whole ones, at least one.
// How many are in this process's set is for the caller to say.
func usable(inSet int, quota float64) int {
	if quota > 0 {
		inSet = min(inSet, int(quota))
	}
	return max(1, inSet)
}

// limited is the memory under the cgroup's limit, and what of it is free.
func limited(total, available job.Size, g group) (memory, free job.Size) {
	if g.memory <= 0 || g.memory >= total {
		return total, available
	}
	return g.memory, min(available, max(0, g.memory-g.used))
}
